/** Fields on points in space as pictures: every point is a disc, the nearest in front, seen from where drags turn it. */

import { short } from "./numbers.js";

const PIXELS = 280; // fewer than of planes: all panels are drawn again at every turn
const [LEAST, MOST] = [1.5, 6]; // radius of a disc, in pixels
const STEP = Math.PI / 24; // for one press of an arrow
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Where all pictures are seen from: angles about the vertical axis and above the horizon. */
const direction = { azimuth: -0.6, elevation: 0.4 };

/** Points in space, and for every pixel of a picture the point that is seen there. */
export class Space {
  aspect = 1;
  shape = [PIXELS, PIXELS];

  /** @param {object} coordinates x, y and z of every point, in turn. */
  constructor({ shape: [count], data }) {
    Object.assign(this, { count, data });
    const ends = [0, 1, 2].map((axis) => {
      let [low, high] = [Infinity, -Infinity];
      for (let at = axis; at < data.length; at += 3) [low, high] = [Math.min(low, data[at]), Math.max(high, data[at])];
      return [low, high];
    });
    this.centre = ends.map(([low, high]) => (low + high) / 2);
    this.extent = Math.hypot(...ends.map(([low, high]) => high - low));
    this.scale = (0.96 * PIXELS) / (this.extent || 1);
    this.where = ([down, across]) => this.#where(Math.min(PIXELS - 1, Math.floor(down * PIXELS)) * PIXELS + Math.min(PIXELS - 1, Math.floor(across * PIXELS)));
  }

  /** Return a component of a field `[point, (component)]` as a picture, NaN where no point is seen. */
  picture({ shape: [points, width = 1], data }, component) {
    if (this.azimuth !== direction.azimuth || this.elevation !== direction.elevation) this.#project();
    const values = new Float32Array(this.seen.length).fill(NaN);
    for (let pixel = 0; pixel < values.length; pixel++) if (this.seen[pixel] >= 0) values[pixel] = data[this.seen[pixel] * width + component];
    return { shape: this.shape, data: values, where: this.where, points };
  }

  #where(pixel) {
    return ["x", "y", "z"].map((name, axis) => `${name} ${short(this.data[3 * this.seen[pixel] + axis], this.extent)}`).join(", ");
  }

  #project() {
    Object.assign(this, direction);
    const [sine, cosine, up, level] = [Math.sin(this.azimuth), Math.cos(this.azimuth), Math.sin(this.elevation), Math.cos(this.elevation)];
    this.seen = new Int32Array(PIXELS * PIXELS).fill(-1);
    const depths = new Float64Array(PIXELS * PIXELS).fill(-Infinity);
    const radius = Math.min(MOST, Math.max(LEAST, (0.4 * PIXELS) / Math.sqrt(this.count)));
    for (let point = 0; point < this.count; point++) {
      const [x, y, z] = this.centre.map((middle, axis) => this.scale * (this.data[3 * point + axis] - middle));
      const ahead = -x * sine + y * cosine; // away from the eye
      const [right, top, near] = [x * cosine + y * sine, z * level + ahead * up, z * up - ahead * level];
      const [row, column] = [PIXELS / 2 - top, PIXELS / 2 + right];
      for (let i = Math.max(0, Math.ceil(row - radius)); i <= Math.min(PIXELS - 1, row + radius); i++)
        for (let j = Math.max(0, Math.ceil(column - radius)); j <= Math.min(PIXELS - 1, column + radius); j++) {
          const pixel = i * PIXELS + j;
          if (near <= depths[pixel] || (i - row) ** 2 + (j - column) ** 2 > radius ** 2) continue;
          depths[pixel] = near;
          this.seen[pixel] = point;
        }
    }
  }
}

/** Turns the pictures of points in space with pointer and arrow keys, from one of them. */
export class Turner {
  #from = null;
  #waiting = 0; // the frame that will draw the pictures

  /** @param {HTMLElement} surface @param {() => void} turned Called to draw the pictures again. */
  constructor(surface, turned) {
    Object.assign(this, { surface, turned });
    surface.setAttribute("role", "application");
    surface.tabIndex = 0;
    surface.dataset.turns = "";
    surface.addEventListener("pointerdown", (event) => {
      surface.setPointerCapture(event.pointerId);
      this.#from = event;
    });
    surface.addEventListener("pointermove", (event) => {
      if (!this.#from) return;
      const half = surface.getBoundingClientRect().width / Math.PI;
      this.#turn((event.clientX - this.#from.clientX) / half, (event.clientY - this.#from.clientY) / half);
      this.#from = event;
    });
    for (const type of ["pointerup", "pointercancel"]) surface.addEventListener(type, () => (this.#from = null));
    surface.addEventListener("keydown", (event) => {
      if (!ARROWS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.#turn(...ARROWS[event.key].map((step) => step * STEP));
    });
  }

  #turn(right, down) {
    direction.azimuth += right;
    direction.elevation = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, direction.elevation + down));
    this.#waiting ||= requestAnimationFrame(() => {
      this.#waiting = 0;
      this.turned();
    });
  }
}
