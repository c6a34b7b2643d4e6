/**
 * Moves points of a mesh's boundary with pointer and keys; the points around follow.
 *
 * Keys: Space chooses the next point of the boundary, with Shift the one before, the arrows move it, `[` and `]` change the reach.
 */

const STEP = 0.02; // of the picture's width, for one press of an arrow
const ARROWS = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class Mover {
  #held = null; // the point that the pointer moves
  #chosen = null; // that the keys move

  /**
   * @param {HTMLElement} surface The element with the picture.
   * @param {object} host What to call: `nearest(place)`, the movable point at a place, or null; `following(point, by)`, the
   *     movable point so many behind one; `place(event)` of a pointer and `placeOf(point)`; `width` of the picture;
   *     `begin()` before a move, `move(point, place, done)`, `swept(point)` to mark it, `undo()` and `grow(sign)`.
   */
  constructor(surface, host) {
    Object.assign(this, { surface, host });
    surface.setAttribute("role", "application");
    surface.tabIndex = 0;
    surface.dataset.moves = "";
    const on = (type, act) => surface.addEventListener(type, act.bind(this));
    on("pointerdown", this.#down);
    on("pointermove", this.#move);
    on("pointerup", this.#up);
    on("pointercancel", this.#cancel);
    on("keydown", this.#key);
    on("keyup", ({ key }) => ARROWS[key] && this.#up());
    on("blur", this.#up);
  }

  #down(event) {
    if (event.button || !this.host.field) return;
    const point = this.host.nearest(this.host.place(event));
    if (point === null) return;
    this.surface.setPointerCapture(event.pointerId);
    this.host.begin();
    this.#held = this.#chosen = point;
  }

  #move(event) {
    if (this.#held !== null) this.host.move(this.#held, this.host.place(event), false);
  }

  #up() {
    if (this.#held === null) return;
    this.host.move(this.#held, this.host.placeOf(this.#held), true);
    this.#held = null;
  }

  /** Undo the move: the finger scrolls the page. */
  #cancel() {
    if (this.#held === null) return;
    this.#held = null;
    this.host.undo();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.host.field) return;
    const acts = { " ": () => this.#choose(event.shiftKey ? -1 : 1), "[": () => this.host.grow(-1), "]": () => this.host.grow(1) };
    if (ARROWS[event.key]) this.#nudge(ARROWS[event.key]);
    else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  }

  #choose(by) {
    this.#up();
    this.#chosen = this.host.following(this.#chosen, by);
    this.host.swept(this.#chosen);
  }

  #nudge([right, up]) {
    this.#chosen ??= this.host.following(null, 1);
    if (this.#held === null) this.host.begin();
    this.#held = this.#chosen;
    const [x, y] = this.host.placeOf(this.#held);
    const step = STEP * this.host.width;
    this.host.move(this.#held, [x + right * step, y + up * step], false);
    this.host.swept(this.#held);
  }
}
