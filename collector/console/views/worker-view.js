// <worker-view>: one worker, all of it, and its history.

import * as address from "../address.js";
import { api } from "../api.js";
import { stateOf } from "../arrange.js";
import { h, s, setText, setVariable, uniqueId } from "../dom.js";
import { fleet, Reading } from "../fleet.js";
import { bytes, confirmed, emptyState, hatch, note, plural, stateBadge, STATE_HINTS, swatch } from "../parts.js";
import { ago, clockTime, dateTime, duration, everySecond, minuteTime, now } from "../time.js";
import { eventLine, settle } from "./event-row.js";

const DAY = 86400;
// Why somebody is not simply there.
const TROUBLED = ["lost", "left", "conflict"];
const REASONS = { left: "left", lost: "lost", removed: "removed" };

class WorkerView extends HTMLElement {
  connectedCallback() {
    this.agentId = address.read().id ?? "";
    this.onChange = () => this.show();
    this.onTold = ({ detail }) => {
      if (detail.some((event) => event.worker.agent_id === this.agentId)) this.load();
    };
    fleet.addEventListener("change", this.onChange);
    this.onBegun = () => this.load();
    fleet.addEventListener("told", this.onTold);
    fleet.addEventListener("begun", this.onBegun);
    this.stop = everySecond(() => this.tick());
    this.build();
    this.reading = new Reading(() => this.read(), this.told);
    this.show();
    this.load();
  }

  disconnectedCallback() {
    fleet.removeEventListener("change", this.onChange);
    fleet.removeEventListener("told", this.onTold);
    fleet.removeEventListener("begun", this.onBegun);
    this.reading.stop();
    this.stop();
  }

  build() {
    this.state = stateBadge();
    this.why = h("span", { class: "why" });
    this.told = h("div");
    this.facts = h("dl", { class: "facts" });
    this.history = h("div", { class: "history" });
    this.removal = h("button", { class: "danger quiet", type: "button", "data-acts": true, hidden: true, onclick: () => this.remove() }, "Remove…");
    const isAdmin = this.session?.scopes.includes("admin");
    this.replaceChildren(
      h(
        "article",
        { class: "worker-page" },
        h("nav", { "aria-label": "Back" }, h("a", { class: "quiet", href: address.href({}), "data-in": true }, "← Fleet")),
        h("header", {}, h("div", {}, h("h1", { class: "id" }, this.agentId), h("p", { class: "now" }, this.state, this.why)), isAdmin && this.removal),
        this.told,
        h("section", { "aria-label": "What it says of itself" }, this.facts),
        this.history,
      ),
    );
  }

  show() {
    const worker = fleet.workers.get(this.agentId);
    if (worker && worker === this.shown) return;
    this.shown = worker;
    this.state.hidden = this.facts.parentElement.hidden = this.removal.hidden = !worker;
    if (!worker) {
      setText(this.why, fleet.isKnown ? "It is not on the roster." : "Reading the roster…");
      return;
    }
    this.state.show(stateOf(worker));
    this.tick();
    this.showFacts(worker);
    if (!this.drawn) this.draw();
  }

  // Of one that is not there all is as it was when it was last heard.
  showFacts(worker) {
    const then = worker.status === "offline" ? " when last heard" : "";
    const had = then && (this.timeline?.transitions.findLast((event) => event.worker.status !== "offline")?.worker.active_sessions ?? 0);
    const facts = {
      "Agent name": worker.agent_name,
      Sessions: `${worker.active_sessions.toLocaleString()}${had ? `, had ${had.toLocaleString()}${then}` : ""}`,
      Version: worker.version,
      Project: worker.project,
      Region: worker.region,
      Host: worker.host,
      CPU: worker.cpu_pct === null ? null : `${worker.cpu_pct}%${then}`,
      Memory: worker.memory_rss_bytes === null ? null : `${bytes(worker.memory_rss_bytes)} of ${bytes(worker.memory_total_bytes)}${worker.memory_pct === null ? "" : ` (${worker.memory_pct}%)`}${then}`,
      "Dispatch name": worker.dispatch_name,
      "Process started": worker.started_at && dateTime(worker.started_at),
      "First seen": dateTime(worker.first_seen),
      "Last beat": dateTime(worker.last_seen),
      "Its own clock then": worker.ts && dateTime(worker.ts),
    };
    this.facts.replaceChildren(...Object.entries(facts).flatMap(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))));
  }

  tick() {
    const worker = fleet.workers.get(this.agentId);
    if (!worker) return;
    const state = stateOf(worker);
    const words = [TROUBLED.includes(state) && STATE_HINTS[state], worker.active_sessions && plural(worker.active_sessions, "session"), `last beat ${ago(worker.last_seen)}`];
    setText(this.why, words.filter(Boolean).join(" · "));
  }

  load() {
    return this.reading.again();
  }

  async read() {
    try {
      this.timeline = await api.timeline(this.agentId);
      this.draw();
    } catch (refused) {
      if (refused.status !== 404) throw refused;
    }
  }

  // What was, once it is known and so is the worker itself.
  draw() {
    const { timeline, shown: worker } = this;
    if (!timeline || !worker) return;
    this.drawn = true;
    this.showFacts(worker);
    const changes = h("ol", { class: "events" }, timeline.transitions.slice(-100).reverse().map((event) => eventLine(event, { withWorker: false })));
    settle(changes);
    this.history.replaceChildren(
      h("section", { "aria-label": "Last 24 hours" }, h("h2", {}, "Last 24 hours"), this.strip(timeline, worker.first_seen)),
      h("section", { class: "tiles", "aria-label": "Uptime" }, this.uptimes(timeline, worker.first_seen)),
      h("section", { "aria-label": "Changes" }, h("h2", {}, "Changes"), changes.children.length ? changes : emptyState("Nothing has changed yet")),
    );
  }

  uptimes({ uptime, server_time: end }, firstSeen) {
    // In its first day a week says the same as the day.
    const spans = end - firstSeen > DAY ? Object.entries(uptime) : [["24h", uptime["24h"]]];
    return spans.map(([span, { ratio, counted_seconds: counted, gap_seconds: gap }]) =>
      h(
        "div",
        { class: "tile" },
        h("span", { class: "label" }, `Uptime ${span}`),
        h("b", { class: "number" }, ratio === null ? "–" : `${(ratio * 100).toFixed(ratio === 1 ? 0 : 2)}%`),
        h("small", {}, [`seen for ${duration(counted)}`, gap >= 1 && `collector away ${duration(gap)}`].filter(Boolean).join(" · ")),
      ),
    );
  }

  strip({ spells, gaps, server_time: end }, firstSeen) {
    const since = end - DAY;
    const pattern = uniqueId("away");
    const place = (at) => (Math.max(0, at - since) / DAY) * 1000;
    const drawn = (from, to, looks, words) => {
      const x = place(from);
      return s("rect", { x, y: 0, height: 28, width: Math.max(1.5, place(to) - x), ...looks }, s("title", {}, words));
    };
    const isYoung = firstSeen > since;
    const unknown = isYoung && drawn(since, firstSeen, { class: "not-known" }, `Not known yet: first seen ${clockTime(firstSeen)}`);
    const marks = spells
      .filter((spell) => (spell.online_until ?? end) > since)
      .map(({ online_from: from, online_until: to, reason }) => drawn(from, to ?? end, { class: "spell" }, `Online ${clockTime(from)} – ${to ? `${clockTime(to)}, ${REASONS[reason]}` : "now"} (${duration((to ?? now()) - from)})`));
    const missed = gaps.filter((gap) => gap.ended_at > Math.max(since, firstSeen));
    const away = missed.flatMap(({ began_at: from, ended_at: to }) => {
      const counted = Math.max(from, firstSeen);
      const words = `The collector was away, ${clockTime(from)} to ${clockTime(to)}`;
      return [drawn(counted, to, { class: "gap" }, words), drawn(counted, to, { fill: `url(#${pattern})` }, words)];
    });
    const seen = isYoung && h("span", { class: "since" }, `first seen ${minuteTime(firstSeen)}`);
    if (seen) setVariable(seen, "--at", String(place(firstSeen) / 1000));
    return h(
      "figure",
      { class: "strip" },
      s("svg", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img", "aria-label": `Online in the last 24 hours: ${plural(spells.length, "spell")}` }, hatch(pattern), unknown, marks, away),
      h("div", { class: "band-foot", "aria-hidden": "true" }, h("span", {}, `yesterday ${minuteTime(since)}`), seen, h("span", {}, "now")),
      h("figcaption", { class: "legend" }, swatch("there", `online, ${plural(marks.length, "spell")}`), swatch("not-there", "offline"), isYoung && swatch("not-known", "not known yet"), missed.length > 0 && swatch("away", "collector away")),
    );
  }

  async remove() {
    const sure = await confirmed({
      title: `Remove ${this.agentId}?`,
      words: "Its row and its history go. A worker that still beats comes back with its next beat.",
      verb: "Remove",
    });
    if (!sure) return;
    try {
      await api.remove(this.agentId);
      this.dispatchEvent(new CustomEvent("said", { bubbles: true, detail: `${this.agentId} was removed.` }));
      address.go({});
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
    }
  }
}

customElements.define("worker-view", WorkerView);
