/**
 * Draws on the input's view with pointer and keys: a brush on a picture, a pull on a curve.
 *
 * Keys: the arrows move the brush, Space paints, Shift with them paints along; on a curve left and right move along it,
 * up and down pull. `[` and `]` change the size, `x` swaps the two values.
 */

import { bump, copy, disc } from "./fields.js";

const STEP = 0.02; // of a side, for one press of an arrow
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Pen {
  #position = [0.5, 0.5];
  #stroke = null; // on a curve: where the pull began, and the curve at that time

  /**
   * @param {HTMLElement} surface The element that is drawn on.
   * @param {object} host Its view and field, the brush (`size` as a share, `value`, `other`), the options of `bump`, and what to
   *     call: `begin()` before a stroke, `changed(done)` while and after it, `undo()` of one that is taken back, `moved(position)`,
   *     `swap()`, `grow(sign)`.
   */
  constructor(surface, host) {
    this.surface = surface;
    this.host = host;
    surface.setAttribute("role", "application");
    surface.tabIndex = 0;
    const on = (type, act) => surface.addEventListener(type, act.bind(this));
    on("pointerdown", this.#down);
    on("pointermove", this.#move);
    on("pointerup", this.#up);
    on("pointercancel", this.#cancel);
    on("keydown", this.#key);
    on("keyup", this.#released);
    on("blur", this.#left);
    on("focus", () => this.host.moved(this.#position));
    on("contextmenu", (event) => event.preventDefault());
  }

  #down(event) {
    if (event.button > 2 || !this.host.field) return;
    try {
      this.surface.setPointerCapture(event.pointerId);
    } catch {
      // the pointer has already left
    }
    this.#position = this.host.view.position(event);
    this.#begin();
    this.erasing = event.button === 2 || event.shiftKey;
    this.waiting = event.pointerType === "touch"; // it may become a scroll of the page
    if (!this.waiting) this.#apply(this.#position);
  }

  #move(event) {
    if (!this.#stroke) return;
    this.waiting = false;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.#apply(this.host.view.position(part));
    this.host.moved(this.#position);
  }

  #up() {
    if (!this.#stroke) return;
    if (this.waiting) this.#apply(this.#position);
    this.waiting = false;
    this.#stroke = null;
    this.host.changed(true);
  }

  /** Take the stroke back, as if it had not begun: the finger scrolls the page. */
  #cancel() {
    if (!this.#stroke) return;
    this.waiting = false;
    this.#stroke = null;
    this.host.undo();
  }

  #left() {
    this.#up();
    this.host.moved(null);
  }

  #begin() {
    this.host.begin();
    this.#stroke = { field: copy(this.host.field), position: this.#position, range: this.host.view.range };
  }

  #apply(position) {
    if (this.host.view.dimensions === 2) this.#paint(position);
    else this.#pull(position);
    this.#position = position;
    this.host.changed(false);
  }

  /** Paint discs from the last position to this one, close enough to make a line. */
  #paint([row, column]) {
    const { size, value, other, field } = this.host;
    const [fromRow, fromColumn] = this.#position;
    const steps = Math.max(1, Math.ceil(Math.hypot(row - fromRow, column - fromColumn) / (size / 3)));
    for (let step = 1; step <= steps; step++) {
      const share = step / steps;
      const centre = [fromRow + (row - fromRow) * share, fromColumn + (column - fromColumn) * share];
      disc(field, centre, [size / 2, size / 2], this.erasing ? other : value);
    }
  }

  /** Raise the curve of the start of the pull by the distance that the pointer has moved. */
  #pull([down]) {
    const { field, view, size } = this.host;
    const { field: before, position } = this.#stroke;
    field.data.set(before.data);
    bump(field, position[1], size / 2, view.value(down) - view.value(position[0]), this.host);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.host.field) return;
    const acts = { " ": () => this.#tap(), x: () => this.host.swap(), X: () => this.host.swap(), "[": () => this.host.grow(-1), "]": () => this.host.grow(1) };
    if (ARROWS[event.key]) this.#arrow(ARROWS[event.key], event.shiftKey);
    else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  }

  #arrow([down, across], painting) {
    const within = (share) => Math.min(1, Math.max(0, share));
    const next = [within(this.#position[0] + STEP * down), within(this.#position[1] + STEP * across)];
    if (this.host.view.dimensions === 1 && down) this.#nudge(-down);
    else if (painting && this.host.view.dimensions === 2) this.#tap(next);
    else this.#position = next;
    this.host.moved(this.#position);
  }

  #tap(position = this.#position) {
    if (this.host.view.dimensions === 1) return;
    this.erasing = false;
    if (!this.#stroke) this.#begin();
    this.#apply(position);
  }

  #nudge(sign) {
    const { field, view, size } = this.host;
    if (!this.#stroke) this.#begin();
    bump(field, this.#position[1], size / 2, sign * STEP * (view.range[1] - view.range[0]), this.host);
    this.host.changed(false);
  }

  #released(event) {
    if (this.#stroke && (event.key === " " || ARROWS[event.key] || event.key === "Shift")) this.#up();
  }
}
