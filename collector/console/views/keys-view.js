// <keys-view>: the tenant's keys and who did what; for those with the scope admin.

import { api } from "../api.js";
import { h } from "../dom.js";
import { Reading } from "../fleet.js";
import { age, confirmed, copyable, emptyState, field, keyName, note } from "../parts.js";
import { ago, until } from "../time.js";

const DAY = 86400;
const LASTING = { "": "Never", [30 * DAY]: "30 days", [90 * DAY]: "90 days", [365 * DAY]: "A year" };
const OVERLAPS = { 0: "at once", 3600: "after an hour", [DAY]: "after a day", [7 * DAY]: "after a week" };
const TITLES = ["Key", "Name", "Scopes", "Created", "Last used", "Expires", ""];
const ACTS = {
  "key.created": "Created key",
  "key.rotated": "Rotated key",
  "key.revoked": "Revoked key",
  "worker.removed": "Removed worker",
  "workers.removed": "Removed workers",
  "tenant.removed": "Removed tenant",
};
// The operator works at the store itself, without a key.
const OPERATOR = "operator";

const known = (at, words) => (at === null ? "never" : age(at, words));

class KeysView extends HTMLElement {
  connectedCallback() {
    if (!this.session.scopes.includes("admin")) {
      this.replaceChildren(h("h1", {}, "Keys"), note("", "Keys and the audit are for those whose key has the scope ", h("code", {}, "admin"), "; yours lacks it."));
      return;
    }
    this.told = h("div", { "aria-live": "polite" });
    this.keys = h("div");
    this.audit = h("div");
    this.replaceChildren(
      h("div", { class: "page-head" }, h("h1", {}, "Keys"), h("button", { class: "primary", type: "button", "data-acts": true, onclick: () => this.create() }, "New key…")),
      this.told,
      this.keys,
      h("section", { "aria-label": "Audit" }, h("h2", {}, "Audit"), this.audit),
    );
    this.reading = new Reading(() => this.read(), this.told);
    this.load();
  }

  disconnectedCallback() {
    this.reading?.stop();
  }

  load() {
    return this.reading.again();
  }

  async read() {
    const [{ keys }, audit] = await Promise.all([api.keys(), api.audit({ limit: 50 })]);
    this.names = new Map(keys.map(({ id, name }) => [id, name]));
    this.showKeys(keys);
    this.audit.replaceChildren();
    this.showActs(audit);
  }

  showKeys(keys) {
    const order = { active: 0, expired: 1, revoked: 2 };
    const sorted = [...keys].sort((a, b) => order[a.state] - order[b.state] || b.created_at - a.created_at);
    this.keys.replaceChildren(
      h(
        "div",
        { class: "scroll keys", tabindex: "0", role: "region", "aria-label": "Keys" },
        h("table", { role: "table" }, h("thead", {}, h("tr", { role: "row" }, TITLES.map((title) => h("th", { scope: "col", role: "columnheader" }, title || h("span", { class: "aside" }, "Actions"))))), h("tbody", {}, sorted.map((key) => this.keyRow(key)))),
      ),
    );
  }

  keyRow(key) {
    const ends = { active: () => known(key.expires_at, until), expired: () => ["expired ", age(key.expires_at, ago)], revoked: () => ["revoked ", age(key.revoked_at, ago)] }[key.state]();
    const actions = key.state === "active" && [
      h("button", { class: "quiet", type: "button", "data-acts": true, onclick: () => this.rotate(key) }, "Rotate…"),
      h("button", { class: "quiet danger", type: "button", "data-acts": true, onclick: () => this.revoke(key) }, "Revoke…"),
    ];
    const cells = [
      [h("code", {}, keyName(key.id)), key.id === this.session.key_id && h("span", { class: "chip own" }, "yours")],
      key.name ?? "–",
      key.scopes.map((scope) => h("span", { class: "chip" }, scope)),
      age(key.created_at, ago),
      known(key.last_used_at, ago),
      ends,
    ];
    // On a phone the rows are no table to the eye, and their roles say that they are one.
    return h(
      "tr",
      { class: key.state === "active" ? null : "gone", role: "row" },
      cells.map((cell, nth) => h("td", { class: nth === 1 ? "name" : null, role: "cell", "data-title": TITLES[nth] }, h("span", {}, cell))),
      h("td", { class: "actions", role: "cell" }, actions),
    );
  }

  showActs({ acts, next_before: before }) {
    if (!acts.length && !this.audit.children.length) {
      this.audit.replaceChildren(emptyState("Nothing was done yet"));
      return;
    }
    this.more?.remove();
    this.audit.append(
      h(
        "ol",
        { class: "events" },
        acts.map((act) =>
          h(
            "li",
            {},
            h(
              "div",
              { class: "event" },
              age(act.at, ago),
              h("span", { class: "act" }, ACTS[act.action] ?? act.action),
              h("span", { class: "id", title: act.subject }, act.action.startsWith("key.") ? keyName(act.subject) : act.subject),
              h("span", { class: "name" }, act.detail.name ?? this.names.get(act.subject)),
              h("span", { class: "rest" }, "by ", act.actor === OPERATOR ? "the operator" : h("span", { class: "id" }, keyName(act.actor))),
            ),
          ),
        ),
      ),
    );
    if (before === null) return;
    this.more = h("button", { class: "quiet", type: "button", onclick: () => this.showOlder(before) }, "Older");
    this.audit.append(this.more);
  }

  async showOlder(before) {
    try {
      this.showActs(await api.audit({ limit: 50, before }));
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
    }
  }

  create() {
    const name = h("input", { name: "name", maxlength: "256", autocomplete: "off", placeholder: "Where this key is used" });
    const scopes = this.session.scopes.map((scope) => h("label", { class: "check" }, h("input", { type: "checkbox", value: scope, checked: scope !== "admin" }), scope));
    const lasts = h("select", {}, Object.entries(LASTING).map(([seconds, word]) => h("option", { value: seconds }, word)));
    this.form("New key", [field("Name", name), h("fieldset", {}, h("legend", {}, "Scopes"), scopes), field("Expires", lasts)], "Create", async (form) => {
      const chosen = [...form.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value);
      if (!chosen.length) throw new Error("Choose at least one scope.");
      return api.createKey({ scopes: chosen, name: name.value || null, expires_in_seconds: lasts.value ? Number(lasts.value) : null });
    });
  }

  rotate(key) {
    const overlap = h("select", {}, Object.entries(OVERLAPS).map(([seconds, word]) => h("option", { value: seconds, selected: seconds === "3600" }, word)));
    this.form(`Rotate ${keyName(key.id)}`, [h("p", {}, "A successor with the same scopes is made now; both work until the old one ends."), field("The old one ends", overlap)], "Rotate", () => api.rotateKey(key.id, { overlap_seconds: Number(overlap.value) }));
  }

  // A dialog that makes a key, and then shows it, this once.
  form(title, fields, verb, act) {
    const told = h("div", { "aria-live": "polite" });
    const submit = h("button", { class: "primary" }, verb);
    const close = h("button", { class: "quiet", type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = h("form", {}, h("h2", { id: "form-title" }, title), fields, told, h("div", { class: "actions" }, close, submit));
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "form-title" }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        const made = await act(form);
        // It is gone with the dialog: no key press closes it unasked.
        dialog.setAttribute("closedby", "none");
        dialog.addEventListener("cancel", (asked) => asked.preventDefault());
        const done = h("button", { class: "primary", type: "button", onclick: () => dialog.close() }, "I have copied it");
        dialog.replaceChildren(h("h2", { id: "form-title" }, "The new key"), h("p", {}, "It is shown only now."), copyable(made.key, `Key ${keyName(made.id)}`), h("div", { class: "actions" }, done));
        this.load();
      } catch (refused) {
        told.replaceChildren(note("bad", refused.message));
        submit.disabled = false;
      }
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async revoke(key) {
    const own = key.id === this.session.key_id ? " It is the one you are signed in with: you will be signed out." : "";
    const sure = await confirmed({ title: `Revoke ${keyName(key.id)}?`, words: `Whoever uses it is refused within 2 s, for good.${own}`, verb: "Revoke" });
    if (!sure) return;
    try {
      await api.revokeKey(key.id);
      this.load();
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
    }
  }
}

customElements.define("keys-view", KeysView);
