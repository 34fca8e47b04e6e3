// <hour-band>: how many were online in each minute of the last hour, and when nobody listened.

import { api } from "../api.js";
import { fleet } from "../fleet.js";
import { h, s, setClass, setText, uniqueId } from "../dom.js";
import { everySecond, minuteTime, now } from "../time.js";
import { hatch, plural, swatch } from "../parts.js";

const STEPS = 60;
const STEP_SECONDS = 60;
const REFRESH_SECONDS = 30;
const HEIGHT = 56;
const WIDTH = 600;

class HourBand extends HTMLElement {
  #told = null;
  #current = 0;
  #most = 0;

  connectedCallback() {
    this.pattern = uniqueId("away");
    this.bars = s("g", { class: "bars" });
    // As high as the band: a low bar is as easy to ask as a high one.
    this.hits = s("g", { class: "hits" });
    this.gaps = s("g", { class: "gaps" });
    this.caption = h("figcaption", { id: uniqueId("band") }, "Online in the last hour");
    this.peak = h("span");
    this.away = swatch("away", "collector away");
    this.figure = h(
      "figure",
      { class: "band" },
      h("div", { class: "band-head" }, this.caption, h("span", { class: "legend" }, this.peak, this.away)),
      s(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-labelledby": this.caption.id },
        hatch(this.pattern),
        this.bars,
        this.hits,
        this.gaps,
      ),
      h("div", { class: "band-foot", "aria-hidden": "true" }, (this.from = h("span")), h("span", {}, "now")),
    );
    this.away.hidden = true;
    this.replaceChildren(this.figure);
    this.#told = null;
    this.asked = 0;
    this.stop = everySecond(() => this.refresh());
    this.onConnection = () => {
      if (fleet.connection.state === "live") this.asked = 0;
    };
    fleet.addEventListener("connection", this.onConnection);
    this.refresh();
  }

  disconnectedCallback() {
    this.stop();
    fleet.removeEventListener("connection", this.onConnection);
  }

  // How many are online at this moment: the last bar is theirs.
  set current(count) {
    if (count === this.#current) return;
    this.#current = count;
    if (!this.#told) return;
    if (this.#highest() === this.#most) this.#showCurrent();
    else this.draw();
  }

  async refresh() {
    if (now() - this.asked < REFRESH_SECONDS) return;
    this.asked = now();
    try {
      this.#told = await api.presence({ steps: STEPS, step_seconds: STEP_SECONDS });
      this.draw();
    } catch {
      // The page says that it is disconnected; the band keeps what it knew.
    }
  }

  draw() {
    const { since, online, gaps } = this.#told;
    this.#most = this.#highest();
    this.bars.replaceChildren();
    this.hits.replaceChildren();
    [...online.slice(0, -1), this.#current].forEach((count, nth) => this.#drawBar(count, nth));
    this.#showCurrent();
    this.gaps.replaceChildren(...gaps.map((gap) => this.#gap(gap)));
    this.away.hidden = !gaps.length;
    setText(this.from, minuteTime(since));
    setText(this.peak, `peak ${this.#most.toLocaleString()}`);
  }

  // Of what is drawn: all steps but the last one as they were told.
  #highest() {
    return Math.max(this.#current, ...this.#told.online.slice(0, -1));
  }

  #drawBar(count, nth) {
    const { since, step_seconds: step, online, gaps } = this.#told;
    const [from, to] = [since + nth * step, since + (nth + 1) * step];
    const width = WIDTH / online.length;
    const bar = s("rect", { x: nth * width + 0.75, width: width - 1.5, rx: 1 });
    this.bars.append(bar);
    this.hits.append(s("rect", { x: nth * width, y: 0, width, height: HEIGHT }, s("title")));
    // Nobody knows who was there while the collector was away.
    const isUnknown = gaps.some((gap) => gap.began_at <= from && gap.ended_at >= to);
    setClass(bar, gaps.some((gap) => gap.began_at < to && gap.ended_at > from) ? "partly" : "");
    this.#raise(nth, isUnknown ? 0 : count, `${minuteTime(from)}: ${plural(count, "worker")} online`);
  }

  #showCurrent() {
    this.#raise(this.bars.children.length - 1, this.#current, `now: ${plural(this.#current, "worker")} online`);
  }

  #raise(nth, count, words) {
    const bar = this.bars.children[nth];
    const height = count ? Math.max(2, (count / this.#most) * (HEIGHT - 2)) : 0;
    bar.setAttribute("y", HEIGHT - height);
    bar.setAttribute("height", height);
    setText(this.hits.children[nth].firstElementChild, words);
  }

  #gap({ began_at: from, ended_at: to }) {
    const { since, server_time: end } = this.#told;
    const place = (at) => (Math.max(0, at - since) / (end - since)) * WIDTH;
    const mark = s("rect", { x: place(from), y: 0, width: Math.max(2, place(to) - place(from)), height: HEIGHT, fill: `url(#${this.pattern})` });
    mark.append(s("title", {}, `The collector was away, ${minuteTime(from)} to ${minuteTime(to)}`));
    return mark;
  }
}

customElements.define("hour-band", HourBand);
