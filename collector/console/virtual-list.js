// <virtual-list>: rows of one height, of which only those in sight exist.

import { setVariable } from "./dom.js";

const SPARE = 8;

class VirtualList extends HTMLElement {
  #rows = [];
  #made = [];
  #first = -1;

  // `make()` gives an element that can show any row, `show(element, row, place)` has it show one.
  prepare({ make, show }) {
    this.make = make;
    this.show = show;
  }

  connectedCallback() {
    this.onMove = () => this.draw(false);
    addEventListener("scroll", this.onMove, { passive: true });
    addEventListener("resize", this.onMove, { passive: true });
  }

  disconnectedCallback() {
    removeEventListener("scroll", this.onMove);
    removeEventListener("resize", this.onMove);
  }

  set rows(rows) {
    this.#rows = rows;
    this.closest("[role=table]")?.setAttribute("aria-rowcount", String(rows.length + 1));
    this.draw(true);
  }

  get rows() {
    return this.#rows;
  }

  draw(isNew) {
    const height = parseFloat(getComputedStyle(this).getPropertyValue("--row")) || 44;
    const top = Math.max(0, -this.getBoundingClientRect().top);
    const first = Math.max(0, Math.floor(top / height) - SPARE);
    const count = Math.min(this.#rows.length - first, Math.ceil(innerHeight / height) + 2 * SPARE);
    if (!isNew && first === this.#first && count === this.shown) return;
    this.#first = first;
    this.shown = count;
    setVariable(this, "--rows", String(this.#rows.length));
    while (this.#made.length < count) {
      const element = this.make();
      this.#made.push(element);
      this.append(element);
    }
    this.#made.forEach((element, nth) => {
      element.hidden = nth >= count;
      if (element.hidden) return;
      const place = first + nth;
      setVariable(element, "--place", String(place));
      // The head is the first row.
      element.setAttribute("aria-rowindex", String(place + 2));
      this.show(element, this.#rows[place], place);
    });
  }
}

customElements.define("virtual-list", VirtualList);
