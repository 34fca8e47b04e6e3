// One line of the log, in words.

import * as address from "../address.js";
import { h } from "../dom.js";
import { plural } from "../parts.js";
import { clockTime, dateTime, day, now } from "../time.js";

const WORDS = {
  "worker.online": ["came online", "idle"],
  "worker.changed": ["changed", "plain"],
  "worker.conflict": ["conflict", "conflict"],
  "worker.left": ["left", "left"],
  "worker.offline": ["lost", "lost"],
  "worker.removed": ["removed", "left"],
};

export const KINDS = Object.fromEntries(Object.entries(WORDS).map(([type, [word]]) => [type, word]));

export function eventLine(event, { withWorker = true, isNew = false } = {}) {
  const { worker } = event;
  // A change is told by what it led to, and quietly: it is what workers do all day.
  const [word, state] = event.type === "worker.changed" ? [worker.status, `${worker.status} flip`] : (WORDS[event.type] ?? [event.type, "plain"]);
  const rest = [worker.active_sessions && plural(worker.active_sessions, "session"), worker.version, worker.region, event.reason === "collector_gap" && "silent while the collector was away"].filter(Boolean).join(" · ");
  const link = address.href({ view: "worker", id: worker.agent_id });
  const time = h("time", { datetime: new Date(event.at * 1000).toISOString(), title: dateTime(event.at) }, clockTime(event.at));
  const line = h(
    "li",
    { class: isNew ? "new" : null },
    h(
      "div",
      { class: "event" },
      time,
      h("span", { class: `state ${state}` }, h("i", { class: "dot", "aria-hidden": "true" }), word),
      withWorker && h("a", { class: "id", href: link, title: worker.agent_id, "data-in": true }, worker.agent_id),
      withWorker && h("span", { class: "name", title: worker.agent_name }, worker.agent_name),
      h("span", { class: "rest", title: rest }, rest),
    ),
  );
  return Object.assign(line, { time, day: day(event.at) });
}

// A day, and to the eye a time, stand only where they differ from the line above; above all is today.
// The first `count` lines are new; the one below them may now repeat what they say.
export function settle(list, count = list.children.length) {
  const lines = [...list.children].slice(0, count + 1);
  let above = { day: day(now()) };
  for (const line of lines) {
    const isNewDay = line.day !== above.day;
    line.querySelector(".day")?.remove();
    if (isNewDay) line.prepend(h("h2", { class: "day" }, line.day));
    line.time.classList.toggle("same", !isNewDay && line.time.textContent === above.time?.textContent);
    above = line;
  }
}
