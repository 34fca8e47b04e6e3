// One line of the log, in words.

import * as address from "../address.js";
import { h } from "../dom.js";
import { clockTime, dateTime } from "../time.js";

const WORDS = {
  "worker.online": ["came online", "idle"],
  "worker.changed": ["changed", "plain"],
  "worker.conflict": ["conflict", "conflict"],
  "worker.left": ["left", "left"],
  "worker.offline": ["lost", "lost"],
  "worker.removed": ["removed", "left"],
};

export const KINDS = Object.fromEntries(Object.entries(WORDS).map(([type, [word]]) => [type, word]));

export function eventRow(event, { withWorker = true } = {}) {
  const { worker } = event;
  // A change is told by what it led to.
  const [word, state] = event.type === "worker.changed" ? [worker.status, worker.status] : (WORDS[event.type] ?? [event.type, "plain"]);
  const rest = [worker.active_sessions && `${worker.active_sessions.toLocaleString()} in hand`, worker.version, worker.region, event.reason === "collector_gap" && "silent while the collector was away"].filter(Boolean).join(" · ");
  const link = address.href({ view: "worker", id: worker.agent_id });
  return h(
    "div",
    { class: "event" },
    h("time", { datetime: new Date(event.at * 1000).toISOString(), title: dateTime(event.at) }, clockTime(event.at)),
    h("span", { class: `state ${state}` }, h("i", { class: "dot", "aria-hidden": "true" }), word),
    withWorker && h("a", { class: "id", href: link, "data-in": true }, worker.agent_id),
    withWorker && h("span", { class: "name" }, worker.agent_name),
    h("span", { class: "rest" }, rest),
  );
}
