// <virtual-list>: rows of one height, of which only those in sight exist.

import { setVariable } from "./dom.js";

const SPARE = 8;

class VirtualList extends HTMLElement {
  #rows = [];
  // In the order of their rows, as a screen reader and the tab key go through them.
  #made = [];
  #first = 0;
  #height = 0;
  #top = 0;

  // `make()` gives an element that can show any row, `show(element, row)` has it show one, and
  // `key(row)` says which row it is, wherever it stands.
  prepare({ make, show, key }) {
    this.make = make;
    this.show = show;
    this.key = key;
  }

  connectedCallback() {
    this.onScroll = () => {
      this.#measure();
      this.#draw(false);
    };
    this.onResize = () => {
      this.#height = 0;
      this.#draw(true);
    };
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onResize, { passive: true });
  }

  disconnectedCallback() {
    removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onResize);
  }

  set rows(rows) {
    if (rows.length !== this.#rows.length) {
      setVariable(this, "--rows", String(rows.length));
      this.closest("[role=table]")?.setAttribute("aria-rowcount", String(rows.length + 1));
    }
    this.#rows = rows;
    this.#draw(true);
  }

  get rows() {
    return this.#rows;
  }

  // Where the page was scrolled to. Asked between two changes to the page, this lays it all out once more.
  #measure() {
    this.#height ||= parseFloat(getComputedStyle(this).getPropertyValue("--row"));
    this.#top = Math.max(0, -this.getBoundingClientRect().top);
  }

  #draw(isNew) {
    if (!this.#height) this.#measure();
    const size = Math.ceil(innerHeight / this.#height) + 2 * SPARE;
    const last = Math.max(0, this.#rows.length - size);
    const first = Math.min(last, Math.max(0, Math.floor(this.#top / this.#height) - SPARE));
    if (!isNew && first === this.#first) return;
    this.#first = first;
    while (this.#made.length < size) this.#made.push(this.make());
    this.#deal(this.#rows.slice(first, first + size));
  }

  // An element goes on with its row wherever that now stands; those whose rows are gone take the new ones.
  #deal(rows) {
    const keys = rows.map(this.key);
    const wanted = new Set(keys);
    const kept = new Map();
    const free = [];
    for (const element of this.#made) {
      if (wanted.has(element.key) && !kept.has(element.key)) kept.set(element.key, element);
      else free.push(element);
    }
    this.append(...free.filter((element) => !element.hidden));
    const dealt = keys.map((key) => kept.get(key) ?? free.shift());
    dealt.forEach((element, nth) => {
      element.key = keys[nth];
      this.#place(element, this.#first + nth);
      this.show(element, rows[nth]);
    });
    for (const element of free) this.#hide(element, true);
    this.#made = [...dealt, ...free];
    this.#line();
  }

  #place(element, place) {
    this.#hide(element, false);
    if (element.place === place) return;
    element.place = place;
    setVariable(element, "--place", String(place));
    // The head is the first row.
    element.setAttribute("aria-rowindex", String(place + 2));
  }

  #hide(element, isHidden) {
    if (element.hidden !== isHidden) element.hidden = isHidden;
  }

  // Moves only what is out of line: an element that is moved is laid out anew.
  #line() {
    let next = this.firstElementChild;
    for (const element of this.#made) {
      if (element === next) next = next.nextElementSibling;
      else this.insertBefore(element, next);
    }
  }
}

customElements.define("virtual-list", VirtualList);
