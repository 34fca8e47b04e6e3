// <hour-band>: how many were online in each minute of the last hour, and when nobody listened.

import { api } from "../api.js";
import { fleet } from "../fleet.js";
import { h, s, setText, uniqueId } from "../dom.js";
import { everySecond, minuteTime, now } from "../time.js";
import { plural } from "../parts.js";

const STEPS = 60;
const STEP_SECONDS = 60;
const REFRESH_SECONDS = 30;
const HEIGHT = 56;
const WIDTH = 600;

class HourBand extends HTMLElement {
  connectedCallback() {
    const pattern = uniqueId("away");
    this.bars = s("g", { class: "bars" });
    this.gaps = s("g", { class: "gaps" });
    this.pattern = pattern;
    this.caption = h("figcaption", { id: uniqueId("band") }, "Online in the last hour");
    this.said = h("span", { class: "said" });
    this.figure = h(
      "figure",
      { class: "band" },
      h("div", { class: "band-head" }, this.caption, this.said),
      s(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-labelledby": this.caption.id },
        s(
          "defs",
          {},
          s(
            "pattern",
            { id: pattern, width: "6", height: "6", patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
            s("line", { x1: "0", y1: "0", x2: "0", y2: "6", class: "hatch" }),
          ),
        ),
        this.bars,
        this.gaps,
      ),
      h("div", { class: "band-foot", "aria-hidden": "true" }, (this.from = h("span")), h("span", {}, "now")),
    );
    this.replaceChildren(this.figure);
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

  async refresh() {
    if (now() - this.asked < REFRESH_SECONDS) return;
    this.asked = now();
    try {
      this.draw(await api.presence({ steps: STEPS, step_seconds: STEP_SECONDS }));
    } catch {
      // The page says that it is disconnected; the band keeps what it knew.
    }
  }

  draw({ since, step_seconds: step, online, gaps, server_time: end }) {
    const most = Math.max(1, ...online);
    const width = WIDTH / online.length;
    const bars = online.map((count, nth) => {
      const height = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0;
      const bar = s("rect", { x: nth * width + 0.75, y: HEIGHT - height, width: width - 1.5, height, rx: 1 });
      bar.append(s("title", {}, `${minuteTime(since + nth * step)}: ${plural(count, "worker")} online`));
      return bar;
    });
    const span = end - since;
    const away = gaps.map(({ began_at: from, ended_at: to }) => {
      const x = (Math.max(0, from - since) / span) * WIDTH;
      const mark = s("rect", { x, y: 0, width: Math.max(2, ((to - since) / span) * WIDTH - x), height: HEIGHT, fill: `url(#${this.pattern})` });
      mark.append(s("title", {}, `The collector was away, ${minuteTime(from)} to ${minuteTime(to)}`));
      return mark;
    });
    this.bars.replaceChildren(...bars);
    this.gaps.replaceChildren(...away);
    setText(this.from, minuteTime(since));
    const [least, greatest] = [Math.min(...online), Math.max(...online)];
    const range = (least === greatest ? [greatest] : [least, greatest]).map((count) => count.toLocaleString()).join("–");
    setText(this.said, `${range} online${away.length ? " · hatched: collector was away" : ""}`);
  }
}

customElements.define("hour-band", HourBand);
