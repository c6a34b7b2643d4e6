/**
 * Pointer and keys on the input's view in, changes of the field out: a brush on a picture, a pull on a curve.
 *
 * Keys: the arrows move the brush, Space paints, Shift with them paints along; on a curve left and right move along it,
 * up and down pull. `[` and `]` change the size, `x` swaps the two values.
 */

import { bump, copy, disc } from "./fields.js";

const STEP = 0.02; // of a side, for one press of an arrow
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Pen {
  #place = [0.5, 0.5];
  #stroke = null; // on a curve: where the pull began, and the curve then

  /**
   * @param {HTMLElement} surface What is drawn on.
   * @param {object} desk Its view and field, the brush (`size` as a share, `value`, `other`), the manner of `bump`, and what to
   *     call: `begin()` before a stroke, `changed(done)` while and after it, `moved(place)`, `swap()`, `grow(sign)`.
   */
  constructor(surface, desk) {
    this.surface = surface;
    this.desk = desk;
    surface.setAttribute("role", "application");
    surface.tabIndex = 0;
    const on = (type, act) => surface.addEventListener(type, act.bind(this));
    on("pointerdown", this.#down);
    on("pointermove", this.#move);
    on("pointerup", this.#up);
    on("pointercancel", this.#up);
    on("keydown", this.#key);
    on("keyup", this.#released);
    on("blur", this.#left);
    on("focus", () => this.desk.moved(this.#place));
    on("contextmenu", (event) => event.preventDefault());
  }

  #down(event) {
    if (event.button > 2 || !this.desk.field) return;
    try {
      this.surface.setPointerCapture(event.pointerId);
    } catch {
      // the pointer is gone already
    }
    this.#place = this.desk.view.place(event);
    this.#begin();
    this.erasing = event.button === 2 || event.shiftKey;
    this.#apply(this.#place);
  }

  #move(event) {
    if (!this.#stroke) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.#apply(this.desk.view.place(part));
    this.desk.moved(this.#place);
  }

  #up() {
    if (!this.#stroke) return;
    this.#stroke = null;
    this.desk.changed(true);
  }

  #left() {
    this.#up();
    this.desk.moved(null);
  }

  #begin() {
    this.desk.begin();
    this.#stroke = { field: copy(this.desk.field), place: this.#place, range: this.desk.view.range };
  }

  #apply(place) {
    if (this.desk.view.dimensions === 2) this.#paint(place);
    else this.#pull(place);
    this.#place = place;
    this.desk.changed(false);
  }

  /** Discs from the last place to this one, so close that they make a line. */
  #paint([row, column]) {
    const { size, value, other, field } = this.desk;
    const [fromRow, fromColumn] = this.#place;
    const steps = Math.max(1, Math.ceil(Math.hypot(row - fromRow, column - fromColumn) / (size / 3)));
    for (let step = 1; step <= steps; step++) {
      const share = step / steps;
      const centre = [fromRow + (row - fromRow) * share, fromColumn + (column - fromColumn) * share];
      disc(field, centre, [size / 2, size / 2], this.erasing ? other : value);
    }
  }

  /** The curve as the pull began, raised by what the pointer has moved since. */
  #pull([down]) {
    const { field, view, size } = this.desk;
    const { field: before, place } = this.#stroke;
    field.data.set(before.data);
    bump(field, place[1], size / 2, view.value(down) - view.value(place[0]), this.desk);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.desk.field) return;
    const acts = { " ": () => this.#tap(), x: () => this.desk.swap(), X: () => this.desk.swap(), "[": () => this.desk.grow(-1), "]": () => this.desk.grow(1) };
    if (ARROWS[event.key]) this.#arrow(ARROWS[event.key], event.shiftKey);
    else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  }

  #arrow([down, across], painting) {
    const within = (share) => Math.min(1, Math.max(0, share));
    const next = [within(this.#place[0] + STEP * down), within(this.#place[1] + STEP * across)];
    if (this.desk.view.dimensions === 1 && down) this.#nudge(-down);
    else if (painting && this.desk.view.dimensions === 2) this.#tap(next);
    else this.#place = next;
    this.desk.moved(this.#place);
  }

  #tap(place = this.#place) {
    if (this.desk.view.dimensions === 1) return;
    this.erasing = false;
    if (!this.#stroke) this.#begin();
    this.#apply(place);
  }

  #nudge(sign) {
    const { field, view, size } = this.desk;
    if (!this.#stroke) this.#begin();
    bump(field, this.#place[1], size / 2, sign * STEP * (view.range[1] - view.range[0]), this.desk);
    this.desk.changed(false);
  }

  #released(event) {
    if (this.#stroke && (event.key === " " || ARROWS[event.key] || event.key === "Shift")) this.#up();
  }
}
