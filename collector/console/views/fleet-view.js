// <fleet-view>: everybody, by group, with what they do now.

import * as address from "../address.js";
import { arrange, count, GROUPINGS, LARGEST_FIRST, SORTS, stateOf, turned, valuesOf } from "../arrange.js";
import { h, setClass, setText, setVariable } from "../dom.js";
import { fleet } from "../fleet.js";
import { bytes, meter, plural, stateBadge } from "../parts.js";
import { ago, dateTime, everySecond } from "../time.js";
import "../virtual-list.js";
import "./first-minute.js";
import "./hour-band.js";

// Each column, and what it sorts by.
const COLUMNS = { Worker: "agent_id", Status: "status", Sessions: "active_sessions", Version: "version", Region: "region", Host: "host", CPU: "cpu_pct", Memory: "memory_pct", "Last beat": "last_seen" };
const STATUSES = { "": "All", online: "Online", busy: "Busy", idle: "Idle", offline: "Offline", lost: "Lost", left: "Left", conflict: "Conflict" };

class FleetView extends HTMLElement {
  connectedCallback() {
    this.choices = address.read();
    this.full = h("div", { class: "fleet" }, h("h1", { class: "aside" }, "Fleet"), this.figures(), (this.band = h("hour-band")), this.toolbar(), this.table());
    this.first = null;
    this.onChange = () => this.plan();
    fleet.addEventListener("change", this.onChange);
    this.stop = everySecond(() => this.tick());
    this.refresh();
  }

  disconnectedCallback() {
    fleet.removeEventListener("change", this.onChange);
    clearTimeout(this.planned);
    cancelAnimationFrame(this.drawing);
    this.stop();
  }

  // Many changes, one drawing; and a drawing that took long leaves the page to its reader for longer.
  plan() {
    if (this.planned) return;
    this.planned = setTimeout(() => {
      this.planned = null;
      this.drawing = requestAnimationFrame(() => {
        const began = performance.now();
        this.refresh();
        this.pause = Math.min(2000, 10 * (performance.now() - began));
      });
    }, this.pause ?? 0);
  }

  refresh() {
    if (!fleet.isKnown) {
      this.replaceChildren(h("p", { class: "waiting", role: "status" }, "Reading the roster…"));
      return;
    }
    if (!fleet.workers.size) {
      this.first ??= Object.assign(h("first-minute"), { session: this.session });
      if (this.firstElementChild !== this.first) this.replaceChildren(this.first);
      return;
    }
    if (this.firstElementChild !== this.full) this.replaceChildren(this.full);
    this.showFigures(count(fleet.workers.values()));
    this.showChoices();
    const { rows, counts, groups } = arrange(fleet.inOrder(), this.choices);
    this.list.rows = rows;
    const shown = counts.workers === fleet.workers.size ? plural(counts.workers, "worker") : `${counts.workers.toLocaleString()} of ${plural(fleet.workers.size, "worker")}`;
    setText(this.found, groups ? `${shown} in ${plural(groups, "group")}` : shown);
    this.none.hidden = rows.length > 0;
  }

  tick() {
    if (this.list) for (const row of this.list.children) row.tick?.();
  }

  // What is chosen at once can be undone by going back; what is typed, and what is opened, goes with the page.
  choose(choices, { push = true } = {}) {
    Object.assign(this.choices, choices);
    for (const [name, value] of Object.entries(choices)) if (!value) delete this.choices[name];
    address.write(choices, { push });
    this.refresh();
  }

  sortBy(field) {
    this.choose({ sort: field === defaults.sort ? "" : field, desc: LARGEST_FIRST.includes(field) ? "1" : "" });
  }

  reverse() {
    this.choose({ desc: this.choices.desc === "1" ? "" : "1" });
  }

  figures() {
    this.counted = {};
    const figure = (name, label, state) => {
      const number = h("b", { class: "number" }, "0");
      const shown = [h("span", { class: "label" }, state && h("i", { class: "dot", "aria-hidden": "true" }), label), h("span", {}, number)];
      const onclick = () => this.choose({ status: this.choices.status === name ? "" : name });
      const tile = STATUSES[name] ? h("button", { class: `tile ${state}`, type: "button", title: `Show only these: ${label}`, onclick }, shown) : h("div", { class: "tile" }, shown);
      this.counted[name] = { tile, number };
      return tile;
    };
    this.share = h("span", { class: "share" });
    const tiles = h(
      "section",
      { class: "tiles", "aria-label": "The fleet in figures" },
      figure("online", "Online", ""),
      figure("busy", "Busy", "busy"),
      figure("idle", "Idle", "idle"),
      figure("lost", "Lost", "lost"),
      figure("left", "Left", "left"),
      figure("sessions", "Sessions", ""),
      figure("conflict", "Conflict", "conflict"),
    );
    this.counted.online.number.after(this.share);
    return tiles;
  }

  showFigures(counts) {
    const online = counts.busy + counts.idle;
    const shown = { ...counts, online, left: counts.offline - counts.lost };
    for (const [name, { number }] of Object.entries(this.counted)) setText(number, shown[name].toLocaleString());
    for (const name of ["lost", "conflict"]) setClass(this.counted[name].tile, shown[name] ? `tile ${name} alarm` : `tile ${name}`);
    this.counted.conflict.tile.hidden = !counts.conflict;
    this.band.current = online;
    setText(this.share, `of ${counts.workers.toLocaleString()}`);
  }

  toolbar() {
    this.search = h("input", { type: "search", placeholder: "Search id, name, host, version…", "aria-label": "Search workers", value: this.choices.q });
    this.search.addEventListener("input", () => this.choose({ q: this.search.value }, { push: false }));
    this.selects = {
      status: this.select("Status", "status", STATUSES),
      version: this.select("Version", "version", {}),
      region: this.select("Region", "region", {}),
      project: this.select("Project", "project", {}),
      group: this.select("Group", "group", GROUPINGS),
      sort: this.select("Sort", "sort", SORTS),
    };
    this.turn = h("button", { class: "icon", type: "button", "aria-label": "Reverse the order", title: "Reverse the order" }, "↓");
    this.turn.addEventListener("click", () => this.reverse());
    this.found = h("span", { class: "found", role: "status" });
    const { sort, ...others } = this.selects;
    others.group.classList.add("apart");
    const filters = h("div", { class: "filters" }, Object.values(others), h("span", { class: "joined" }, sort, this.turn));
    // On a phone they scroll, and a browser leaves one that is half in sight where it is.
    filters.addEventListener("focusin", ({ target }) => target.scrollIntoView({ block: "nearest", inline: "nearest" }));
    return h("div", { class: "toolbar", role: "search" }, this.search, filters, this.found);
  }

  select(label, name, options) {
    const select = h("select", { "aria-label": label });
    const choose = () => this.choose({ [name]: defaults[name] === select.value ? "" : select.value });
    select.addEventListener("change", name === "sort" ? () => this.sortBy(select.value) : choose);
    select.show = (given) => {
      const wanted = Object.entries(given).map(([value]) => value).join("\n");
      if (select.dataset.values !== wanted) {
        select.dataset.values = wanted;
        select.replaceChildren(...Object.entries(given).map(([value, word]) => h("option", { value }, `${value === "" ? label + ": " : name === "group" || name === "sort" ? label + ": " : ""}${word}`)));
      }
      select.value = this.choices[name] ?? defaults[name];
      select.classList.toggle("chosen", defaults[name] === "" && select.value !== "");
    };
    select.show(options);
    return select;
  }

  showChoices() {
    this.selects.status.show(STATUSES);
    this.selects.group.show(GROUPINGS);
    this.selects.sort.show(SORTS);
    for (const name of ["version", "region", "project"]) {
      const values = valuesOf(fleet.workers.values(), name);
      const chosen = this.choices[name];
      if (chosen && !values.includes(chosen)) values.push(chosen);
      this.selects[name].hidden = values.length < 2 && !chosen;
      this.selects[name].show(Object.fromEntries([["", "All"], ...values.map((value) => [value, value])]));
    }
    const isDescending = this.choices.desc === "1";
    setText(this.turn, isDescending ? "↓" : "↑");
    this.turn.setAttribute("aria-pressed", String(isDescending));
    const sort = this.choices.sort ?? defaults.sort;
    for (const { cell, field } of this.columns) {
      if (field === sort) cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    for (const [name, { tile }] of Object.entries(this.counted)) if (STATUSES[name]) tile.setAttribute("aria-pressed", String(this.choices.status === name));
  }

  table() {
    this.list = h("virtual-list", { role: "rowgroup" });
    this.list.prepare({ make: () => new Row(this), show: (row, shown) => row.show(shown), key: keyOf });
    this.none = h("p", { class: "waiting none" }, "Nobody matches. ", h("button", { class: "quiet", type: "button", onclick: () => this.clear() }, "Show all"));
    this.columns = Object.entries(COLUMNS).map(([title, field]) => ({ field, cell: h("span", { role: "columnheader" }, this.heading(title, field)) }));
    const head = h("div", { class: "row head", role: "row" }, this.columns.map(({ cell }) => cell));
    return h("div", { class: "table", role: "table", "aria-label": "Workers" }, h("div", { role: "rowgroup" }, head), this.list, this.none);
  }

  heading(title, field) {
    const sort = () => ((this.choices.sort ?? defaults.sort) === field ? this.reverse() : this.sortBy(field));
    return h("button", { class: "heading", type: "button", onclick: sort }, title);
  }

  clear() {
    this.search.value = "";
    this.choose({ q: "", status: "", version: "", region: "", project: "" });
  }

  turnGroup(name) {
    this.choose({ open: turned(this.list.rows, name) }, { push: false });
  }
}

const VERSIONS_SHOWN = 4;
const defaults = { status: "", version: "", region: "", project: "", group: "agent_name", sort: "agent_id" };

const keyOf = (row) => (row.kind === "group" ? `group ${row.name}` : `worker ${row.worker.agent_id}`);

// One element that can be a group's row or a worker's; scrolling gives it another one to show.
class Row extends HTMLElement {
  constructor(view) {
    super();
    this.view = view;
    this.setAttribute("role", "row");
    this.group = this.makeGroup();
    this.worker = this.makeWorker();
  }

  show(row) {
    this.row = row;
    const wanted = row.kind === "group" ? this.group.root : this.worker.root;
    if (this.firstElementChild !== wanted) this.replaceChildren(wanted);
    if (row.kind === "group") this.showGroup(row);
    else if (this.shown !== row.worker) this.showWorker(row.worker);
  }

  tick() {
    if (!this.hidden && this.row?.kind === "worker") setText(this.worker.age, ago(this.row.worker.last_seen));
  }

  makeGroup() {
    const name = h("span", { class: "name" });
    const button = h("button", { class: "turn", type: "button", onclick: () => this.view.turnGroup(this.row.name) }, h("i", { class: "chevron", "aria-hidden": "true" }), name);
    const bar = h("span", { class: "split", "aria-hidden": "true" }, ["busy", "idle", "lost", "left"].map((state) => h("i", { class: state })));
    const online = h("span", { class: "figures" });
    const versions = h("span", { class: "versions" });
    const counted = (state) => h("span", { class: `state ${state}` }, h("i", { class: "dot", "aria-hidden": "true" }), h("span"));
    const [lost, conflict, sessions] = [counted("lost"), counted("conflict"), h("span", { class: "figures" })];
    const cells = [
      ["name", button],
      ["sum", bar, online],
      ["spread", versions],
      ["rest", lost, " ", conflict, " ", sessions],
    ];
    const root = h("div", { class: "row group" }, cells.map(([name, ...content]) => h("span", { role: "cell", class: name }, content)));
    return { root, name, button, bar, online, lost, conflict, sessions, versions };
  }

  showGroup(row) {
    const { name, button, bar, online, lost, conflict, sessions, versions } = this.group;
    const { counts } = row;
    setText(name, row.name || "(none)");
    button.setAttribute("aria-expanded", String(row.isOpen));
    const parts = { busy: counts.busy, idle: counts.idle, lost: counts.lost, left: counts.offline - counts.lost };
    for (const part of bar.children) setVariable(part, "--part", String(parts[part.className]));
    setText(online, `${(counts.busy + counts.idle).toLocaleString()} of ${counts.workers.toLocaleString()}`);
    for (const [part, number, words] of [
      [lost, counts.lost, `${counts.lost.toLocaleString()} lost`],
      [conflict, counts.conflict, plural(counts.conflict, "conflict")],
    ]) {
      if (part.hidden !== !number) part.hidden = !number;
      setText(part.lastElementChild, words);
    }
    setText(sessions, plural(counts.sessions, "session"));
    const isSeveral = row.versions.length > 1;
    const spread = row.versions.map(([version, number]) => (isSeveral ? `${version} ×${number}` : version));
    const more = spread.length > VERSIONS_SHOWN ? [`+${spread.length - VERSIONS_SHOWN}`] : [];
    setText(versions, [...spread.slice(0, VERSIONS_SHOWN), ...more].join("  "));
    // Of one agent; a region's agents have each their own.
    const isDeploy = isSeveral && (this.view.choices.group ?? defaults.group) === "agent_name";
    setClass(versions, isDeploy ? "versions several" : "versions");
    const title = `${isDeploy ? "Several versions are online, a deploy in progress? " : ""}${isSeveral ? spread.join(", ") : ""}`;
    if (versions.title !== title) versions.title = title;
  }

  makeWorker() {
    const id = h("a", { class: "id", "data-in": true });
    const part = { id, state: stateBadge(), sessions: h("span"), unit: h("span", { class: "unit" }), version: h("span"), region: h("span"), host: h("span"), cpu: meter("CPU"), memory: meter("Memory"), age: h("span") };
    const cells = [
      ["who", id],
      ["what", part.state],
      ["sessions", part.sessions, part.unit],
      ["version", part.version],
      ["region", part.region],
      ["host", part.host],
      ["cpu", part.cpu],
      ["memory", part.memory],
      ["age", part.age],
    ];
    part.root = h("div", { class: "row worker" }, cells.map(([name, ...content]) => h("span", { role: "cell", class: name }, content)));
    return part;
  }

  // A worker that has changed is another object: the same one is shown already.
  showWorker(worker) {
    this.shown = worker;
    const part = this.worker;
    const link = address.href({ view: "worker", id: worker.agent_id });
    if (part.id.getAttribute("href") !== link) part.id.setAttribute("href", link);
    setText(part.id, worker.agent_id);
    part.id.title = worker.agent_id;
    part.state.show(stateOf(worker));
    const sessions = worker.active_sessions;
    setText(part.sessions, sessions ? sessions.toLocaleString() : "");
    setText(part.unit, sessions ? (sessions === 1 ? " session" : " sessions") : "");
    for (const name of ["version", "region", "host"]) setText(part[name], worker[name] ?? "–");
    // Who said goodbye is done with; who is lost is not.
    setClass(part.root, worker.reason === "left" ? "row worker gone" : "row worker");
    part.cpu.show(worker.status === "offline" ? null : worker.cpu_pct);
    part.memory.show(worker.status === "offline" ? null : worker.memory_pct, worker.memory_total_bytes ? `, ${bytes(worker.memory_rss_bytes)} of ${bytes(worker.memory_total_bytes)}` : "");
    setText(part.age, ago(worker.last_seen));
    part.age.title = dateTime(worker.last_seen);
  }
}

customElements.define("fleet-row", Row);
customElements.define("fleet-view", FleetView);
