// <first-minute>: an empty fleet, and how to fill it.

import { api } from "../api.js";
import { h, setText } from "../dom.js";
import { copyable, note } from "../parts.js";

const PYTHON = [
  "# pip install /path/to/a/checkout/of/worker-presence",
  "from contract import register_worker",
  "",
  "# On the roster under its host's name. Where several share a host, give each its own,",
  '# as in register_worker("my-agent", agent_id="my-agent-2"), or they are a conflict.',
  'worker = register_worker("my-agent")',
  'input("Idle. Enter begins a session. ")',
  "with worker.session():  # busy as long as this lasts",
  '    input("Busy. Enter ends it, and the program. ")',
].join("\n");

const settings = (key) => `export VOICEGW_COLLECTOR_URL=${location.origin}\nexport VOICEGW_API_KEY=${key}`;

const beat = (key) =>
  [
    `curl ${location.origin}/v1/agents/heartbeat \\`,
    `  -H "Authorization: Bearer ${key}" \\`,
    `  -d '{"agent_id": "hello-1", "agent_name": "hello", "status": "idle"}'`,
  ].join("\n");

class FirstMinute extends HTMLElement {
  connectedCallback() {
    if (this.firstElementChild) return;
    this.settings = copyable(settings("vk_…"), nth("1"), "Tell your agents where the collector is, with a key that has the scope ", h("code", {}, "ingest"));
    this.beat = copyable(beat("$VOICEGW_API_KEY"), "Or try it at once, from a shell");
    this.told = h("span", { class: "hint", role: "status" });
    this.create = h("button", { class: "primary", type: "button", onclick: () => this.make() }, "Create an ingest key");
    const mayCreate = ["admin", "ingest"].every((scope) => this.session?.scopes.includes(scope));
    this.replaceChildren(
      h(
        "div",
        { class: "first" },
        h("h1", {}, "Nobody is here yet"),
        h("p", { class: "lead" }, h("i", { class: "pulse", "aria-hidden": "true" }), "Listening. This page fills in when the first heartbeat arrives."),
        mayCreate && h("div", { class: "made" }, this.create, this.told),
        h("ol", {}, h("li", {}, this.settings), h("li", {}, copyable(PYTHON, nth("2"), "Register each agent's process")), h("li", {}, this.beat)),
      ),
    );
    setText(this.told, "It goes into the snippets below.");
  }

  // The key is in the snippets from then on, and nowhere else: what is copied works.
  async make() {
    this.create.disabled = true;
    try {
      const { key } = await api.createKey({ scopes: ["ingest"], name: "First agents" });
      this.settings.show(settings(key));
      this.beat.show(beat(key));
      this.create.hidden = true;
      setText(this.told, "The key is in the snippets below. It is shown only now: copy it before you leave.");
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
      this.create.disabled = false;
    }
  }
}

const nth = (number) => h("b", { class: "nth" }, number);

customElements.define("first-minute", FirstMinute);
