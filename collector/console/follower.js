// Follows /events and keeps the fleet as the feed tells it. It runs in the hub, once for all tabs,
// or in the page itself where a browser has no shared workers.

const FLUSH_MS = 200;
// A page that takes in this many at a time still answers its reader in between.
const SLICE = 250;
// A comment comes every 15 s: after three of them a connection that says nothing is gone.
const SILENCE_MS = 45_000;
const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000];

export class Follower {
  // `session` is whose stream this is: the browser's cookie may become another's meanwhile.
  constructor(session, tell) {
    this.session = session;
    this.tell = (message) => tell({ ...message, session });
    this.workers = new Map();
    this.cursor = null;
    this.at = this.heardAt = null;
    this.connection = { state: "connecting", since: Date.now() };
    this.attempts = 0;
    this.arriving = null;
    this.clearBatch();
  }

  start() {
    this.stopped = false;
    this.run();
    this.flushing = setInterval(() => this.flush(), FLUSH_MS);
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
    clearInterval(this.flushing);
  }

  // All that a page needs to begin with.
  whole() {
    const workers = [...this.workers.values()];
    return { type: "fleet", workers, at: this.at, heardAt: this.heardAt, connection: this.connection, session: this.session };
  }

  async run() {
    while (!this.stopped) {
      const outcome = await this.follow();
      if (this.stopped) return;
      if (outcome === "out") {
        this.become("out");
        this.stopped = true;
        clearInterval(this.flushing);
        return;
      }
      this.become("away");
      const delay = RETRY_MS[Math.min(this.attempts, RETRY_MS.length - 1)];
      this.attempts += 1;
      await new Promise((resolve) => setTimeout(resolve, delay * (0.75 + Math.random() / 2)));
    }
  }

  async follow() {
    this.abort = new AbortController();
    this.arriving = null;
    try {
      const headers = this.cursor ? { "Last-Event-ID": this.cursor } : {};
      const answer = await fetch("/events", { headers, signal: this.abort.signal, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) return "out";
      if (!answer.ok) return "away";
      if (this.cursor) this.become("live");
      await this.read(answer.body.getReader());
    } catch {
      // Whatever it was, it is tried again.
    } finally {
      clearTimeout(this.watchdog);
    }
    return "away";
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      clearTimeout(this.watchdog);
      this.watchdog = setTimeout(() => this.abort.abort(), SILENCE_MS);
      const { value, done } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const frames = rest.split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.take(frame);
    }
  }

  take(frame) {
    const data = frame.split("\n").find((line) => line.startsWith("data: "));
    if (!data) return;
    const body = JSON.parse(data.slice(6));
    if (body.type === "snapshot") this.takeSnapshot(body);
    else if (body.type === "vitals") this.takeVitals(body);
    else this.takeChange(body);
  }

  takeSnapshot(body) {
    this.arriving ??= new Map();
    for (const worker of body.workers) this.arriving.set(worker.agent_id, worker);
    if (body.more) return;
    this.workers = this.arriving;
    this.arriving = null;
    this.cursor = body.cursor;
    this.hear(body.at);
    this.clearBatch();
    this.become("live");
    this.tell(this.whole());
  }

  takeChange(body) {
    const id = body.worker.agent_id;
    if (body.type === "worker.removed") {
      this.workers.delete(id);
      this.changed.delete(id);
      this.removed.add(id);
    } else {
      this.workers.set(id, body.worker);
      this.removed.delete(id);
      this.changed.set(id, body.worker);
    }
    this.cursor = body.cursor;
    this.events.push(body);
  }

  takeVitals(body) {
    this.hear(body.at);
    for (const vital of body.workers) {
      const worker = this.workers.get(vital.agent_id);
      if (!worker) continue;
      const renewed = { ...worker, ...vital };
      this.workers.set(vital.agent_id, renewed);
      this.changed.set(vital.agent_id, renewed);
    }
  }

  // The collector's clock, and what ours showed then: what is told later on is no later by the collector's.
  hear(at) {
    this.at = at;
    this.heardAt = Date.now();
  }

  become(state) {
    this.attempts = state === "live" ? 0 : this.attempts;
    if (this.connection.state === state) return;
    this.connection = { state, since: Date.now() };
    this.tell({ type: "connection", connection: this.connection });
  }

  flush() {
    if (!this.changed.size && !this.removed.size && !this.events.length) return;
    const { changed, removed, events } = this;
    this.clearBatch();
    const workers = [...changed.values()];
    const { at, heardAt } = this;
    this.tell({ type: "changes", changed: workers.splice(0, SLICE), removed: [...removed], events, at, heardAt });
    while (workers.length) this.tell({ type: "changes", changed: workers.splice(0, SLICE), removed: [], events: [], at, heardAt });
  }

  clearBatch() {
    this.changed = new Map();
    this.removed = new Set();
    this.events = [];
  }
}
