// Small pieces that several views show.

import { h, s, setClass, setText, setVariable, uniqueId } from "./dom.js";
import { dateTime, everySecond } from "./time.js";

export const STATE_WORDS = {
  idle: "idle",
  busy: "busy",
  left: "left",
  lost: "lost",
  conflict: "conflict",
};

export const STATE_HINTS = {
  idle: "Beats arrive, no session",
  busy: "Beats arrive, with sessions",
  left: "Said goodbye",
  lost: "Silent for more than 45 s",
  conflict: "Two processes beat under this id",
};

export function stateBadge() {
  const word = h("span");
  const badge = h("span", { class: "state" }, h("i", { class: "dot", "aria-hidden": "true" }), word);
  badge.show = (state) => {
    setClass(badge, `state ${state}`);
    setText(word, STATE_WORDS[state]);
    badge.title = STATE_HINTS[state];
  };
  return badge;
}

export function meter(label) {
  const figure = h("span", { class: "figure" });
  const bar = h("span", { class: "meter" }, h("i", { "aria-hidden": "true" }), figure);
  bar.show = (percent, title = "") => {
    const known = percent !== null && percent !== undefined;
    setClass(bar, known ? `meter${percent >= 90 ? " high" : ""}` : "meter unknown");
    setVariable(bar, "--part", String(known ? Math.min(100, percent) : 0));
    setText(figure, known ? `${Math.round(percent)}%` : "–");
    bar.title = known ? `${label} ${percent}%${title}` : `${label} is not known`;
  };
  return bar;
}

export function bytes(count) {
  if (count === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  const value = count / 1024 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

// What a key is called: enough of it to know it again.
export const keyName = (id) => `vk_${id}…`;

// A time whose words stay true as long as it is on the page.
export function age(at, words) {
  const shown = h("time", { datetime: new Date(at * 1000).toISOString(), title: dateTime(at) }, words(at));
  const stop = everySecond(() => (shown.isConnected ? setText(shown, words(at)) : stop()));
  return shown;
}

// How the collector's own absence is drawn; whatever is drawn so is filled with `url(#id)`.
export function hatch(id) {
  const line = s("line", { x1: "0", y1: "0", x2: "0", y2: "6", class: "hatch" });
  return s("defs", {}, s("pattern", { id, width: "6", height: "6", patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, line));
}

export function swatch(kind, ...words) {
  return h("span", { class: `swatch ${kind}` }, ...words);
}

export function copyable(text, ...label) {
  const button = h("button", { class: "quiet copy", type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // Without https there is no clipboard for a page: select it, so that a key press copies it.
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  const code = h("code", {}, text);
  const figure = h("figure", { class: "copyable" }, h("figcaption", {}, h("span", {}, ...label), button), h("pre", { tabindex: "0" }, code));
  figure.show = (words) => setText(code, words);
  return figure;
}

export function note(kind, ...words) {
  return h("p", { class: `note ${kind}`, role: kind === "bad" ? "alert" : "status" }, ...words);
}

export function emptyState(title, ...rest) {
  return h("div", { class: "empty" }, h("h2", {}, title), ...rest);
}

export function field(label, control, hint = null) {
  const id = uniqueId("field");
  control.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("small", {}, hint));
}

// Asks before something is done that can't be taken back; true if it was meant.
export function confirmed({ title, words, verb }) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { class: "ask", "aria-labelledby": "ask-title" },
      h("h2", { id: "ask-title" }, title),
      h("p", {}, words),
      h(
        "form",
        { method: "dialog", class: "actions" },
        h("button", { value: "no", class: "quiet" }, "Cancel"),
        h("button", { value: "yes", class: "danger" }, verb),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
