// From a fleet and somebody's choices to the rows that are shown. Pure: nothing here touches the page.

export const GROUPINGS = { agent_name: "Agent", version: "Version", region: "Region", project: "Project", host: "Host", none: "None" };
export const SORTS = {
  agent_id: "Name",
  status: "Status",
  active_sessions: "Sessions",
  last_seen: "Last beat",
  version: "Version",
  region: "Region",
  host: "Host",
  cpu_pct: "CPU",
  memory_pct: "Memory",
};
// Of these the largest, or the newest, is what one looks for.
export const LARGEST_FIRST = ["active_sessions", "last_seen", "cpu_pct", "memory_pct"];
// Few enough to be shown at once, before anybody has opened a group.
const OPEN_BY_ITSELF = 40;
const VITALS = ["cpu_pct", "memory_pct"];
const RANK = { busy: 0, idle: 1, offline: 2 };
const COLLATOR = new Intl.Collator(undefined, { numeric: true });

export const byName = COLLATOR.compare;

// Where a name belongs among names that are in order.
export function placeOf(name, names) {
  let [low, high] = [0, names.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (byName(names[middle], name) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function stateOf(worker) {
  if (worker.conflict) return "conflict";
  return worker.status === "offline" ? worker.reason : worker.status;
}

export function count(workers) {
  const counts = { workers: 0, idle: 0, busy: 0, offline: 0, lost: 0, conflict: 0, sessions: 0 };
  for (const worker of workers) {
    counts.workers += 1;
    counts[worker.status] += 1;
    counts.sessions += worker.active_sessions;
    if (worker.reason === "lost") counts.lost += 1;
    if (worker.conflict) counts.conflict += 1;
  }
  return counts;
}

// `workers` come by name, and stay so among equals.
export function arrange(workers, choices) {
  const found = workers.filter(matching(choices));
  const order = ordering(choices.sort || "agent_id", choices.desc === "1");
  const counts = count(found);
  const grouping = choices.group || "agent_name";
  if (grouping === "none") {
    return { counts, groups: 0, rows: order(found).map((worker) => ({ kind: "worker", worker })) };
  }
  const groups = grouped(found, grouping);
  const isOpen = opening(choices, found.length);
  const rows = [];
  for (const group of groups) {
    group.isOpen = isOpen(group.name);
    rows.push(group);
    if (!group.isOpen) continue;
    for (const worker of order(group.workers)) rows.push({ kind: "worker", worker });
  }
  return { counts, groups: groups.length, rows };
}

function matching(choices) {
  const words = (choices.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const exact = ["version", "region", "project"].filter((name) => choices[name]);
  return (worker) => {
    if (choices.status && !isOf(choices.status, worker)) return false;
    if (exact.some((name) => (worker[name] ?? "") !== choices[name])) return false;
    if (!words.length) return true;
    const text = [worker.agent_id, worker.agent_name, worker.host, worker.version, worker.region, worker.project, worker.dispatch_name]
      .join("\n")
      .toLowerCase();
    return words.every((word) => text.includes(word));
  };
}

function isOf(status, worker) {
  if (status === "online") return worker.status !== "offline";
  if (status === "conflict") return worker.conflict;
  if (status === "lost" || status === "left") return worker.reason === status;
  return worker.status === status;
}

function ordering(field, descending) {
  if (field === "agent_id") return (workers) => (descending ? workers.reverse() : workers);
  const sign = descending ? -1 : 1;
  return (workers) => workers.sort((a, b) => compareBy(field, sign, a, b));
}

function compareBy(field, sign, a, b) {
  if (field === "status") return sign * (RANK[a.status] - RANK[b.status]);
  const [x, y] = [known(a, field), known(b, field)];
  // What is not known comes last, whichever way round.
  if (x === null || y === null) return (x === null) - (y === null);
  return sign * (typeof x === "number" ? x - y : byName(x, y));
}

// Nobody knows what a process that is not there takes.
function known(worker, field) {
  return worker.status === "offline" && VITALS.includes(field) ? null : worker[field];
}

function grouped(workers, grouping) {
  const groups = new Map();
  for (const worker of workers) {
    const name = worker[grouping] ?? "";
    if (!groups.has(name)) groups.set(name, { kind: "group", name, workers: [] });
    groups.get(name).workers.push(worker);
  }
  for (const group of groups.values()) {
    group.counts = count(group.workers);
    group.versions = versionsOf(group.workers);
  }
  return [...groups.values()].sort((a, b) => byName(a.name, b.name));
}

// Of those that are there: two versions at once are a deploy in progress.
export function versionsOf(workers) {
  const versions = new Map();
  for (const worker of workers) {
    if (worker.status === "offline" || worker.version === null) continue;
    versions.set(worker.version, (versions.get(worker.version) || 0) + 1);
  }
  return [...versions].sort(([a], [b]) => byName(b, a));
}

function opening(choices, size) {
  if (choices.open !== undefined) {
    const open = new Set(choices.open.split("\n"));
    return (name) => open.has("*") || open.has(`=${name}`);
  }
  return () => size <= OPEN_BY_ITSELF;
}

// The `open` choice after one group was turned.
export function turned(rows, name) {
  const open = rows.filter((row) => row.kind === "group" && row.isOpen !== (row.name === name));
  return open.map((row) => `=${row.name}`).join("\n") || "-";
}

export function valuesOf(workers, field) {
  const values = new Set();
  for (const worker of workers) if (worker[field]) values.add(worker[field]);
  return [...values].sort(byName);
}
