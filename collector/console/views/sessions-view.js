// <sessions-view>: where this key is signed in.

import { api } from "../api.js";
import { h } from "../dom.js";
import { Reading } from "../fleet.js";
import { age, note } from "../parts.js";
import { ago, until } from "../time.js";

class SessionsView extends HTMLElement {
  connectedCallback() {
    this.told = h("div", { "aria-live": "polite" });
    this.list = h("div");
    this.replaceChildren(h("h1", {}, "Your sign-ins"), h("p", { class: "lead" }, "Browsers that are signed in with this key. They end with the key, or here."), this.told, this.list);
    this.reading = new Reading(() => this.read(), this.told);
    this.load();
  }

  disconnectedCallback() {
    this.reading.stop();
  }

  load() {
    return this.reading.again();
  }

  async read() {
    const { sessions } = await api.sessions();
    this.list.replaceChildren(h("ul", { class: "cards" }, sessions.map((session) => this.card(session))));
  }

  card(session) {
    const end = h("button", { class: "quiet danger", type: "button", "data-acts": true, onclick: () => this.end(session) }, session.current ? "Sign out" : "End");
    return h(
      "li",
      { class: "card" },
      h("div", {}, h("b", {}, session.browser || "A browser"), session.current && h("span", { class: "chip" }, "this one")),
      h("small", {}, "Signed in ", age(session.created_at, ago), " · ends ", age(session.expires_at, until)),
      end,
    );
  }

  async end(session) {
    try {
      await api.endSession(session.id);
    } catch (refused) {
      this.told.replaceChildren(note("bad", refused.message));
      return;
    }
    if (session.current) this.dispatchEvent(new Event("signed-out", { bubbles: true }));
    else this.load();
  }
}

customElements.define("sessions-view", SessionsView);
