// <first-minute>: an empty fleet, and how to fill it.

import { h } from "../dom.js";
import { copyable } from "../parts.js";

class FirstMinute extends HTMLElement {
  connectedCallback() {
    const url = location.origin;
    const python = [
      "# pip install worker-presence",
      "from contract import register_worker",
      "",
      'worker = register_worker("my-agent")',
      "with worker.session():  # busy while work is in hand",
      "    ...",
    ].join("\n");
    const shell = [
      `curl ${url}/v1/agents/heartbeat \\`,
      '  -H "Authorization: Bearer $VOICEGW_API_KEY" \\',
      `  -d '{"agent_id": "hello-1", "agent_name": "hello", "status": "idle"}'`,
    ].join("\n");
    this.replaceChildren(
      h(
        "div",
        { class: "first" },
        h("h1", {}, "Nobody is here yet"),
        h("p", { class: "lead" }, h("i", { class: "pulse", "aria-hidden": "true" }), "This page listens, and changes by itself with the first heartbeat."),
        h(
          "ol",
          {},
          h("li", {}, copyable(`export VOICEGW_COLLECTOR_URL=${url}\nexport VOICEGW_API_KEY=vk_…`, "Tell your agents where the collector is, with a key that has the scope ingest")),
          h("li", {}, copyable(python, "Register each agent's process")),
          h("li", {}, copyable(shell, "Or try it at once, from a shell")),
        ),
      ),
    );
  }
}

customElements.define("first-minute", FirstMinute);
