// <worker-view>: one worker, all of it, and its history.

import * as address from "../address.js";
import { api } from "../api.js";
import { stateOf } from "../arrange.js";
import { h, s, setText } from "../dom.js";
import { fleet } from "../fleet.js";
import { bytes, confirmed, emptyState, note, stateBadge, STATE_HINTS } from "../parts.js";
import { ago, clockTime, dateTime, duration, everySecond, minuteTime, now } from "../time.js";
import { eventRow } from "./event-row.js";

const DAY = 86400;
const REASONS = { left: "left", lost: "lost", removed: "removed" };

class WorkerView extends HTMLElement {
  connectedCallback() {
    this.agentId = address.read().id ?? "";
    this.onChange = () => this.show();
    this.onTold = ({ detail }) => {
      if (detail.some((event) => event.worker.agent_id === this.agentId)) this.load();
    };
    fleet.addEventListener("change", this.onChange);
    fleet.addEventListener("told", this.onTold);
    this.stop = everySecond(() => this.tick());
    this.build();
    this.show();
    this.load();
  }

  disconnectedCallback() {
    fleet.removeEventListener("change", this.onChange);
    fleet.removeEventListener("told", this.onTold);
    this.stop();
  }

  build() {
    this.state = stateBadge();
    this.why = h("span", { class: "why" });
    this.told = h("div");
    this.facts = h("dl", { class: "facts" });
    this.history = h("div", { class: "history" });
    const remove = h("button", { class: "danger quiet", type: "button", onclick: () => this.remove() }, "Remove…");
    const isAdmin = this.session?.scopes.includes("admin");
    this.replaceChildren(
      h(
        "article",
        { class: "worker-page" },
        h("nav", { "aria-label": "Back" }, h("a", { href: address.href({}), "data-in": true }, "← Fleet")),
        h("header", {}, h("div", {}, h("h1", { class: "id" }, this.agentId), h("p", { class: "now" }, this.state, this.why)), isAdmin && remove),
        this.told,
        this.history,
        h("section", { "aria-label": "What it says of itself" }, h("h2", {}, "What it says of itself"), this.facts),
      ),
    );
  }

  show() {
    const worker = fleet.workers.get(this.agentId);
    this.state.hidden = !worker;
    if (!worker) {
      setText(this.why, fleet.isKnown ? "It is not on the roster." : "Reading the roster…");
      this.facts.replaceChildren();
      return;
    }
    this.state.show(stateOf(worker));
    this.tick();
    const facts = {
      "Agent name": worker.agent_name,
      Sessions: worker.active_sessions.toLocaleString(),
      Version: worker.version,
      Project: worker.project,
      Region: worker.region,
      Host: worker.host,
      "Dispatch name": worker.dispatch_name,
      "Process started": worker.started_at && dateTime(worker.started_at),
      "First seen": dateTime(worker.first_seen),
      "Last beat": dateTime(worker.last_seen),
      "Its own clock then": worker.ts && dateTime(worker.ts),
      CPU: worker.cpu_pct === null ? null : `${worker.cpu_pct}%`,
      Memory: worker.memory_rss_bytes === null ? null : `${bytes(worker.memory_rss_bytes)} of ${bytes(worker.memory_total_bytes)}${worker.memory_pct === null ? "" : ` (${worker.memory_pct}%)`}`,
    };
    this.facts.replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]));
  }

  tick() {
    const worker = fleet.workers.get(this.agentId);
    if (worker) setText(this.why, `${STATE_HINTS[stateOf(worker)]} · last beat ${ago(worker.last_seen)}`);
  }

  async load() {
    try {
      this.draw(await api.timeline(this.agentId));
    } catch (refused) {
      if (refused.status !== 404) this.told.replaceChildren(note("bad", refused.message));
    }
  }

  draw(timeline) {
    const uptime = Object.entries(timeline.uptime).map(([span, { ratio, online_seconds: online, gap_seconds: gap }]) =>
      h(
        "div",
        { class: "tile" },
        h("span", { class: "label" }, `Uptime ${span}`),
        h("b", { class: "number" }, ratio === null ? "–" : `${(ratio * 100).toFixed(ratio === 1 ? 0 : 2)}%`),
        h("small", {}, `online ${duration(online)}${gap >= 1 ? `, collector away ${duration(gap)}` : ""}`),
      ),
    );
    const spells = timeline.spells.length;
    const told = timeline.transitions.slice(-100).reverse();
    this.history.replaceChildren(
      h("section", { class: "tiles", "aria-label": "Uptime" }, uptime),
      h("section", { "aria-label": "Last 24 hours" }, h("h2", {}, "Last 24 hours"), this.strip(timeline), h("p", { class: "hint" }, `${spells === 1 ? "One spell" : `${spells} spells`} online.`)),
      h(
        "section",
        { "aria-label": "Changes" },
        h("h2", {}, "Changes"),
        told.length ? h("ol", { class: "events" }, told.map((event) => h("li", {}, eventRow(event, { withWorker: false })))) : emptyState("Nothing has changed yet"),
      ),
    );
  }

  strip({ spells, gaps, server_time: end }) {
    const since = end - DAY;
    const place = (at) => (Math.max(0, at - since) / DAY) * 1000;
    const drawn = (from, to, kind, words) => {
      const x = place(from);
      const mark = s("rect", { x, y: 0, height: 28, width: Math.max(1.5, place(to) - x), class: kind });
      mark.append(s("title", {}, words));
      return mark;
    };
    const marks = spells
      .filter((spell) => (spell.online_until ?? end) > since)
      .map(({ online_from: from, online_until: to, reason }) => drawn(from, to ?? end, "spell", `Online ${clockTime(from)} – ${to ? `${clockTime(to)}, ${REASONS[reason]}` : "now"} (${duration((to ?? now()) - from)})`));
    const away = gaps.filter((gap) => gap.ended_at > since).map(({ began_at: from, ended_at: to }) => drawn(from, to, "gap", `The collector was away, ${clockTime(from)} to ${clockTime(to)}`));
    return h(
      "figure",
      { class: "strip" },
      s("svg", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img", "aria-label": `Online in the last 24 hours: ${spells.length} spells` }, marks, away),
      h("figcaption", { class: "band-foot", "aria-hidden": "true" }, h("span", {}, minuteTime(since)), h("span", {}, "now")),
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
      address.go({});
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
    }
  }
}

customElements.define("worker-view", WorkerView);
