// Time as the collector sees it, and how long ago something was.

// How far the collector's clock is ahead of ours, and when that was found. What told it came late, by however
// much: the furthest is the truest, and gives way only as slowly as clocks drift apart.
let ahead = null;
let foundAt = 0;
const DRIFT = 0.001;
// Further back than anything is late: one of the clocks was set.
const SET_SECONDS = 30;

// The collector's clock, as something told it that came when ours showed `milliseconds`.
export function heardTime(serverSeconds, milliseconds = Date.now()) {
  const heard = serverSeconds - milliseconds / 1000;
  const kept = ahead === null ? heard : ahead - (DRIFT * Math.max(0, milliseconds - foundAt)) / 1000;
  ahead = kept - heard > SET_SECONDS ? heard : Math.max(kept, heard);
  foundAt = milliseconds;
}

// What the collector's clock shows when this browser's shows `milliseconds`.
export function collectorTime(milliseconds) {
  return milliseconds / 1000 + (ahead ?? 0);
}

export function now() {
  return collectorTime(Date.now());
}

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

// "12s", "3m 20s", "5h 2m", "4d 1h": the two largest units that say something.
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0s";
  const [unit, size] = UNITS[first];
  const count = Math.floor(whole / size);
  const next = UNITS[first + 1];
  if (!next || count >= 10) return `${count}${unit}`;
  const rest = Math.floor((whole % size) / next[1]);
  return rest ? `${count}${unit} ${rest}${next[0]}` : `${count}${unit}`;
}

export function ago(at) {
  return at === null ? "never" : `${duration(now() - at)} ago`;
}

export function until(at) {
  return at <= now() ? `${duration(now() - at)} ago` : `in ${duration(at - now())}`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const MINUTE = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export const clockTime = (at) => CLOCK.format(at * 1000);
export const minuteTime = (at) => MINUTE.format(at * 1000);
export const day = (at) => DAY.format(at * 1000);
export const dateTime = (at) => DATE.format(at * 1000);

// One timer for the whole page: whoever shows an age hears of every second.
const listeners = new Set();
setInterval(() => {
  if (!document.hidden) for (const listener of listeners) listener();
}, 1000);

export function everySecond(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
