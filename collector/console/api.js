// What the page asks the collector for. The browser's cookie says who it is.

import { heardTime } from "./time.js";

export class Refusal extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || `The collector answered ${status}.`);
    this.status = status;
    this.code = problem.code;
    this.fields = problem.errors || [];
    this.retryAfter = retryAfter;
  }
}

export class Unreachable extends Error {
  constructor() {
    super("The collector can't be reached.");
  }
}

async function ask(method, path, { query, body, key } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query || {})) url.searchParams.set(name, value);
  const headers = new Headers();
  if (body !== undefined) headers.set("Content-Type", "application/json");
  if (key !== undefined) headers.set("Authorization", `Bearer ${key}`);
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Unreachable();
  }
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, said, answer.headers.get("Retry-After"));
  if (said.server_time) heardTime(said.server_time);
  return said;
}

const agent = (id) => `/v1/agents/${encodeURIComponent(id)}`;

export const api = {
  current: () => ask("GET", "/v1/sessions/current"),
  signIn: (key) => ask("POST", "/v1/sessions", { key }),
  sessions: () => ask("GET", "/v1/sessions"),
  endSession: (id) => ask("DELETE", `/v1/sessions/${encodeURIComponent(id)}`),
  presence: (query) => ask("GET", "/v1/presence", { query }),
  timeline: (id) => ask("GET", `${agent(id)}/timeline`),
  remove: (id) => ask("DELETE", agent(id)),
  lastEvents: (last) => ask("GET", "/v1/events", { query: { last } }),
  keys: () => ask("GET", "/v1/keys"),
  createKey: (body) => ask("POST", "/v1/keys", { body }),
  rotateKey: (id, body) => ask("POST", `/v1/keys/${encodeURIComponent(id)}/rotate`, { body }),
  revokeKey: (id) => ask("DELETE", `/v1/keys/${encodeURIComponent(id)}`),
  audit: (query) => ask("GET", "/v1/audit", { query }),
};
