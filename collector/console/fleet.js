// The fleet in this page: what the feed told, and whom to tell when it changes.

import { byName, placeOf } from "./arrange.js";
import { Follower } from "./follower.js";
import { note } from "./parts.js";
import { heardTime } from "./time.js";

// The only script that this page starts by its address, where a browser asks for that to be said.
const HUB = globalThis.trustedTypes?.createPolicy("hub", { createScriptURL: () => "/console/hub.js" }).createScriptURL("") ?? "/console/hub.js";

class Fleet extends EventTarget {
  workers = new Map();
  // Their ids by name: whoever comes is put in their place, since sorting all is what costs.
  order = [];
  connection = { state: "connecting", since: Date.now() };
  // Whether the first snapshot is there: until then an empty fleet means nothing.
  isKnown = false;

  join(session) {
    if (this.port || this.follower) return;
    this.session = session;
    if ("SharedWorker" in window) {
      this.port = new SharedWorker(HUB, { type: "module", name: "worker-presence" }).port;
      this.port.addEventListener("message", ({ data }) => this.take(data));
      this.port.start();
      this.port.postMessage({ join: session });
    } else {
      this.follower = new Follower(session, (message) => this.take(message));
      this.follower.start();
    }
  }

  leave() {
    this.port?.postMessage({ leave: true });
    this.port?.close();
    this.follower?.stop();
    this.port = this.follower = null;
  }

  inOrder() {
    return this.order.map((id) => this.workers.get(id));
  }

  forget() {
    this.leave();
    this.workers = new Map();
    this.order = [];
    this.isKnown = false;
    this.connection = { state: "connecting", since: Date.now() };
  }

  take(message) {
    // Another tab has signed in as somebody else: nothing of theirs is shown as ours.
    if (message.session !== this.session) {
      this.dispatchEvent(new Event("replaced"));
      return;
    }
    if (message.at) heardTime(message.at, message.heardAt);
    if (message.type === "connection") this.hear(message.connection);
    if (message.type === "fleet") this.begin(message);
    if (message.type === "changes") this.change(message);
  }

  begin({ workers, connection, at }) {
    this.workers = new Map(workers.map((worker) => [worker.agent_id, worker]));
    this.order = [...this.workers.keys()].sort(byName);
    this.isKnown ||= at !== null;
    this.hear(connection);
    this.dispatchEvent(new Event("change"));
    if (at !== null) this.dispatchEvent(new Event("begun"));
  }

  change({ changed, removed, events }) {
    for (const worker of changed) {
      if (!this.workers.has(worker.agent_id)) this.order.splice(placeOf(worker.agent_id, this.order), 0, worker.agent_id);
      this.workers.set(worker.agent_id, worker);
    }
    for (const id of removed) if (this.workers.delete(id)) this.order.splice(this.order.indexOf(id), 1);
    this.dispatchEvent(new Event("change"));
    if (events.length) this.dispatchEvent(new CustomEvent("told", { detail: events }));
  }

  hear(connection) {
    this.connection = connection;
    this.dispatchEvent(new Event("connection"));
  }
}

export const fleet = new Fleet();

// For a view that reads more than the stream tells: `read` as often as the stream is back after a reading failed.
export class Reading {
  #failed = false;

  constructor(read, told) {
    this.read = read;
    this.told = told;
    this.onConnection = () => this.#failed && fleet.connection.state === "live" && this.again();
    fleet.addEventListener("connection", this.onConnection);
  }

  // What went wrong is told as long as it is so.
  async again() {
    const hadFailed = this.#failed;
    this.#failed = false;
    try {
      await this.read();
      if (hadFailed) this.told.replaceChildren();
    } catch (refused) {
      this.#failed = true;
      this.told.replaceChildren(note("bad", refused.message));
    }
  }

  stop() {
    fleet.removeEventListener("connection", this.onConnection);
  }
}

addEventListener("pagehide", () => fleet.leave());
