/** A field on one axis in, an SVG line out; its colours come from the style sheet, so it follows light and dark. */

import { short } from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 1000];
const MOST = 1024; // vertices: a screen shows no more

export class Curve {
  dimensions = 1;
  ramp = null;

  constructor(parent) {
    this.surface = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.zero = element("line", { class: "zero", x1: 0, x2: WIDTH });
    this.behind = element("path", { class: "rival" });
    this.line = element("path", { class: "line" });
    this.cross = element("line", { class: "hair", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.surface.append(this.zero, this.behind, this.line, this.cross);
    parent.append(this.surface);
  }

  show(field, [low, high], rival) {
    this.range = high > low ? [low, high] : [low - 1, high + 1];
    const zero = this.#height(0);
    this.zero.setAttribute("y1", zero);
    this.zero.setAttribute("y2", zero);
    this.line.setAttribute("d", this.#path(field));
    this.behind.setAttribute("d", rival ? this.#path(rival) : "");
  }

  label(text) {
    this.surface.setAttribute("aria-label", text);
  }

  /** Shares (from above, from the left) at a pointer. */
  place(event) {
    const box = this.surface.getBoundingClientRect();
    const within = (share) => Math.min(1, Math.max(0, share));
    return [within((event.clientY - box.top) / box.height), within((event.clientX - box.left) / box.width)];
  }

  /** The value that a share from above stands for. */
  value(down) {
    return this.range[1] - down * (this.range[1] - this.range[0]);
  }

  reading({ data }, [, across], rival) {
    const point = Math.min(data.length - 1, Math.round(across * data.length));
    const other = rival ? `, classical ${short(rival.data[point])}` : "";
    return `point ${point}: ${short(data[point])}${other}`;
  }

  mark(place) {
    this.cross.setAttribute("visibility", place ? "visible" : "hidden");
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, place ? WIDTH * place[1] : 0);
  }

  #path({ data }) {
    const stride = Math.max(1, Math.ceil(data.length / MOST));
    let path = "";
    for (let i = 0; i < data.length; i += stride)
      if (Number.isFinite(data[i])) path += `${path ? "L" : "M"}${((WIDTH * i) / data.length).toFixed(1)} ${this.#height(data[i]).toFixed(1)}`;
    return path;
  }

  #height(value) {
    const [low, high] = this.range;
    return (HEIGHT * (high - value)) / (high - low);
  }
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
