// <sign-in>: a key for a session.

import { api } from "../api.js";
import { h } from "../dom.js";
import { field, note } from "../parts.js";

const KEY = /^vk_[A-Z2-7]{32}$/;

class SignIn extends HTMLElement {
  connectedCallback() {
    const key = h("input", {
      type: "password",
      name: "key",
      autocomplete: "current-password",
      spellcheck: "false",
      autocapitalize: "off",
      placeholder: "vk_…",
      required: true,
    });
    const button = h("button", { class: "primary" }, "Sign in");
    const told = h("div", { "aria-live": "polite" });
    const form = h(
      "form",
      { class: "card sign-in" },
      h("img", { src: "/console/icon.svg", alt: "", width: "40", height: "40" }),
      h("h1", {}, "Who is alive, right now?"),
      h("p", { class: "lead" }, "Sign in with a key of your tenant that has the scope ", h("code", {}, "read"), "."),
      field("Key", key),
      told,
      button,
      h("p", { class: "hint" }, "No key? On the collector's machine: ", h("code", {}, "collector keys create --tenant default --scopes ingest,read,admin")),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      told.replaceChildren();
      try {
        // What is no key can't even be sent, where a letter of it is none of a header's.
        if (!KEY.test(key.value.trim())) throw new Error("This is no key, or it is mistyped: a key is vk_ and 32 letters and digits.");
        const session = await api.signIn(key.value.trim());
        this.dispatchEvent(new CustomEvent("signed-in", { bubbles: true, detail: session }));
      } catch (refused) {
        told.replaceChildren(note("bad", refused.message));
        button.disabled = false;
        key.focus();
      }
    });
    this.replaceChildren(h("main", { class: "centre" }, form));
    key.focus();
  }
}

customElements.define("sign-in", SignIn);
