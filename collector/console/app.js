// The page: who is signed in, which view is shown, and whether the feed is live.

import * as address from "./address.js";
import { api } from "./api.js";
import { h, setClass, setText, visible } from "./dom.js";
import { fleet } from "./fleet.js";
import { note } from "./parts.js";
import { clockTime, collectorTime, duration, everySecond } from "./time.js";
import "./views/events-view.js";
import "./views/fleet-view.js";
import "./views/keys-view.js";
import "./views/sessions-view.js";
import "./views/sign-in.js";
import "./views/worker-view.js";

const VIEWS = { "": "fleet-view", worker: "worker-view", events: "events-view", keys: "keys-view", sessions: "sessions-view" };
const TITLES = { "": "Fleet", worker: "Worker", events: "Events", keys: "Keys", sessions: "Sign-ins" };
// A view that belongs to another one.
const WITHIN = { worker: "" };
// A collector that starts anew is back by then: nobody needs to be told.
const PATIENCE_SECONDS = 4;

const SAID_MS = 6000;
const TABS = new BroadcastChannel("sign-ins");

class App {
  session = null;

  async start() {
    document.addEventListener("click", address.follow);
    document.addEventListener("signed-in", ({ detail }) => {
      this.enter(detail);
      this.view.focus();
      TABS.postMessage("signed-in");
    });
    document.addEventListener("signed-out", () => this.out());
    // Another tab has signed in: its cookie is ours too.
    TABS.addEventListener("message", () => this.comeBack());
    addEventListener("focus", () => this.comeBack());
    addEventListener("popstate", () => this.show());
    // Who followed a link goes on in what it led to.
    addEventListener("navigate", () => {
      this.show();
      this.view?.focus({ preventScroll: true });
    });
    document.addEventListener("said", ({ detail }) => this.say(detail));
    addEventListener("pageshow", ({ persisted }) => persisted && this.session && fleet.join(this.session.id));
    fleet.addEventListener("replaced", () => {
      fleet.forget();
      this.begin();
    });
    fleet.addEventListener("connection", () => this.showConnection());
    everySecond(() => this.showConnection());
    await this.begin();
  }

  // A collector that is away at the very start is waited for.
  async begin() {
    try {
      this.enter(await api.current());
    } catch (refused) {
      if (refused.status === 401) return this.out();
      document.body.replaceChildren(h("main", { class: "centre" }, h("p", { class: "note bad", role: "alert" }, `${refused.message} Trying again…`)));
      setTimeout(() => this.begin(), 2000);
    }
  }

  // Whoever is not signed in after all goes on with the form as it is.
  async comeBack() {
    if (this.session || !document.querySelector("sign-in")) return;
    const session = await api.current().catch(() => null);
    if (session && !this.session) this.enter(session);
  }

  enter(session) {
    this.session = session;
    this.view = h("main", { id: "main", tabindex: "-1" });
    document.body.replaceChildren(h("a", { class: "skip", href: "#main" }, "Skip to content"), this.header(), this.lostContact(), (this.said = h("div", { class: "said", role: "status" })), this.view);
    fleet.join(session.id);
    this.show();
  }

  out(told = null) {
    this.session = null;
    fleet.forget();
    document.title = "Sign in · worker-presence";
    document.body.replaceChildren(h("sign-in"));
    if (told) document.querySelector("sign-in form").prepend(h("p", { class: "note", role: "status" }, told));
  }

  header() {
    const link = (view, kind = null) => h("a", { class: kind, href: address.href({ view }), "data-in": true, "data-view": view }, TITLES[view]);
    const isAdmin = this.session.scopes.includes("admin");
    this.nav = h("nav", { "aria-label": "Views" }, link(""), link("events"), isAdmin && link("keys"), link("sessions", "narrow"));
    this.live = h("span", { class: "live", role: "status" });
    const leave = h("button", { class: "quiet", type: "button", onclick: () => this.signOut() }, "Sign out");
    return h(
      "header",
      { class: "top" },
      h("a", { class: "mark", href: "/", "data-in": true }, h("img", { src: "/console/icon.svg", alt: "", width: "24", height: "24" }), h("span", {}, this.session.tenant)),
      this.nav,
      h("div", { class: "top-end" }, this.live, link("sessions", "quiet"), leave),
    );
  }

  lostContact() {
    // The seconds go by in silence: a screen reader says the rest once.
    this.since = h("span", { "aria-live": "off" });
    this.asOf = h("span");
    this.banner = h("div", { class: "banner", role: "status", hidden: true }, "Lost contact with the collector ", this.since, " ago. Showing the fleet as of ", this.asOf, ". Retrying…");
    return this.banner;
  }

  show() {
    if (!this.session) return;
    const wanted = address.read().view ?? "";
    const view = VIEWS[wanted] ? wanted : "";
    for (const link of document.querySelectorAll(".top [data-view]")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else if (link.dataset.view === WITHIN[view]) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const element = document.createElement(VIEWS[view]);
    element.session = this.session;
    this.view.replaceChildren(element);
    document.title = `${visible((view === "worker" && address.read().id) || TITLES[view])} · ${this.session.tenant}`;
    scrollTo(0, 0);
    this.showConnection();
  }

  say(words) {
    this.said.replaceChildren(note("", words));
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.said.replaceChildren(), SAID_MS);
  }

  showConnection() {
    if (!this.session) return;
    const { state, since } = fleet.connection;
    if (state === "out") return this.out("Your sign-in has ended. Sign in again.");
    const seconds = (Date.now() - since) / 1000;
    const isLost = state === "away" && seconds >= PATIENCE_SECONDS;
    setText(this.live, isLost ? "Disconnected" : { live: "Live", away: "Reconnecting…", connecting: "Connecting…" }[state]);
    setClass(this.live, isLost ? "live away" : state === "live" ? "live on" : "live");
    setClass(document.body, isLost ? "stale" : "");
    setText(this.since, duration(seconds));
    setText(this.asOf, clockTime(collectorTime(since)));
    this.banner.hidden = !isLost;
    // What would only fail.
    for (const button of document.querySelectorAll("button[data-acts]")) button.disabled = isLost;
  }

  async signOut() {
    try {
      await api.endSession("current");
    } finally {
      this.out();
    }
  }
}

new App().start();
