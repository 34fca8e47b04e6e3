// <events-view>: the live feed, which can be filtered and held.

import * as address from "../address.js";
import { api } from "../api.js";
import { h, setText } from "../dom.js";
import { fleet, Reading } from "../fleet.js";
import { emptyState, plural } from "../parts.js";
import { eventLine, KINDS, settle } from "./event-row.js";

const KEPT = 500;
const PROBLEMS = ["worker.offline", "worker.conflict"];

class EventsView extends HTMLElement {
  connectedCallback() {
    this.choices = address.read();
    this.events = [];
    this.waiting = [];
    this.isHeld = false;
    this.build();
    this.onTold = ({ detail }) => this.hear(detail);
    fleet.addEventListener("told", this.onTold);
    this.reading = new Reading(() => this.read(), this.told);
    // What was told between that reading and the stream's beginning is in neither.
    this.onBegun = () => this.isHeld || this.reading.again();
    fleet.addEventListener("begun", this.onBegun);
    this.reading.again();
  }

  disconnectedCallback() {
    fleet.removeEventListener("told", this.onTold);
    fleet.removeEventListener("begun", this.onBegun);
    this.reading.stop();
  }

  build() {
    const search = h("input", { type: "search", placeholder: "Filter by id or name…", "aria-label": "Filter events", value: this.choices.q });
    search.addEventListener("input", () => this.choose({ q: search.value }, { push: false }));
    const kind = h("select", { "aria-label": "Kind" }, h("option", { value: "" }, "Kind: All"), h("option", { value: "problems" }, "Problems only"), Object.entries(KINDS).map(([type, word]) => h("option", { value: type }, word)));
    kind.value = this.choices.kind ?? "";
    kind.classList.toggle("chosen", kind.value !== "");
    kind.addEventListener("change", () => {
      kind.classList.toggle("chosen", kind.value !== "");
      this.choose({ kind: kind.value });
    });
    this.hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.turn() }, "Pause");
    this.found = h("span", { class: "found", role: "status" });
    this.list = h("ol", { class: "events", "aria-label": "Events, newest first" });
    this.told = h("div");
    this.none = h("div");
    this.end = h("p", { class: "hint end", hidden: true }, `These are the latest ${KEPT} events, or those of them that match; `, h("code", {}, "collector events --last 1000"), " reads further back.");
    this.replaceChildren(h("div", { class: "page-head" }, h("h1", {}, "Events")), h("div", { class: "toolbar", role: "search" }, search, kind, this.hold, this.found), this.told, this.none, this.list, this.end);
  }

  async read() {
    const { events } = await api.lastEvents(KEPT);
    const read = events.filter((event) => event.type !== "snapshot").reverse();
    this.events = [...this.since(read), ...read].slice(0, KEPT);
    this.show();
  }

  // What the stream told after that was read.
  since(read) {
    const known = new Set(read.map((event) => event.cursor));
    const first = this.events.findIndex((event) => known.has(event.cursor));
    return first < 0 ? this.events.filter((event) => !read.length || event.at >= read[0].at) : this.events.slice(0, first);
  }

  hear(events) {
    const newest = [...events].reverse();
    if (this.isHeld) {
      this.waiting = [...newest, ...this.waiting].slice(0, KEPT);
      this.showFound();
      return;
    }
    this.events = [...newest, ...this.events].slice(0, KEPT);
    const lines = newest.filter(this.matching()).map((event) => eventLine(event, { isNew: true }));
    if (!this.list.children.length) return this.show();
    this.list.prepend(...lines);
    settle(this.list, lines.length);
    while (this.list.children.length > KEPT) this.list.lastElementChild.remove();
    this.showFound();
  }

  turn() {
    this.isHeld = !this.isHeld;
    this.hold.setAttribute("aria-pressed", String(this.isHeld));
    setText(this.hold, this.isHeld ? "Go on" : "Pause");
    if (!this.isHeld) {
      this.events = [...this.waiting, ...this.events].slice(0, KEPT);
      this.waiting = [];
      this.show();
    }
    this.showFound();
  }

  choose(choices, { push = true } = {}) {
    Object.assign(this.choices, choices);
    address.write(choices, { push });
    this.show();
  }

  matching() {
    const word = (this.choices.q || "").toLowerCase();
    const { kind } = this.choices;
    const isKind = kind === "problems" ? (type) => PROBLEMS.includes(type) : (type) => !kind || type === kind;
    return ({ type, worker }) => isKind(type) && (!word || `${worker.agent_id}\n${worker.agent_name}`.toLowerCase().includes(word));
  }

  show() {
    const shown = this.events.filter(this.matching());
    this.list.replaceChildren(...shown.map((event) => eventLine(event)));
    settle(this.list);
    this.none.replaceChildren(...(shown.length ? [] : [emptyState(this.events.length ? "Nothing matches" : "Nothing has happened yet")]));
    this.showFound();
  }

  showFound() {
    this.end.hidden = this.events.length < KEPT;
    const shown = this.list.children.length;
    const latest = this.events.length < KEPT ? plural(shown, "event") : shown < KEPT ? `${shown} of the latest ${KEPT} events` : `Latest ${KEPT} events`;
    const words = [latest, this.isHeld && `held, ${this.waiting.length.toLocaleString()} waiting`];
    setText(this.found, words.filter(Boolean).join(" · "));
  }
}

customElements.define("events-view", EventsView);
