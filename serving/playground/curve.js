/** A field on one axis as an SVG line, with the colours of the style sheet, so that it follows light and dark. */

import { share } from "./fields.js";
import { short } from "./numbers.js";
import { place } from "./picture.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [1000, 1000];
const MOST = 1024; // stretches of the axis: a screen shows no more

export class Curve {
  dimensions = 1;
  ramp = null;

  constructor(parent) {
    this.surface = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.zero = element("line", { class: "zero", x1: 0, x2: WIDTH });
    this.behind = element("path", { class: "baseline" });
    this.line = element("path", { class: "line" });
    this.cross = element("line", { class: "hair", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.surface.append(this.zero, this.behind, this.line, this.cross);
    parent.append(this.surface);
  }

  show(field, [low, high], baseline) {
    this.range = high > low ? [low, high] : [low - 1, high + 1];
    const zero = this.#height(0);
    this.zero.setAttribute("y1", zero);
    this.zero.setAttribute("y2", zero);
    this.line.setAttribute("d", this.#path(field));
    this.behind.setAttribute("d", baseline ? this.#path(baseline) : "");
  }

  label(text) {
    this.surface.setAttribute("aria-label", text);
  }

  /** Return the position of a pointer as shares (from above, from the left). */
  position(event) {
    const box = this.surface.getBoundingClientRect();
    const within = (share) => Math.min(1, Math.max(0, share));
    return [within((event.clientY - box.top) / box.height), within((event.clientX - box.left) / box.width)];
  }

  /** Return the value at a share from above. */
  value(down) {
    return this.range[1] - down * (this.range[1] - this.range[0]);
  }

  reading({ data }, [, across], baseline) {
    const [first, last] = [0, data.length - 1].map((i) => this.#across(i, data.length));
    const point = Math.max(0, Math.min(data.length - 1, Math.round(((across - first) / (last - first || 1)) * (data.length - 1))));
    if (Number.isNaN(data[point])) return "";
    const span = this.range[1] - this.range[0];
    const other = baseline ? `, ${baseline.name} ${short(baseline.data[point], span)}` : "";
    return `${place(this.axes?.[0], point, data.length, "point")}: ${short(data[point], span)}${other}`;
  }

  mark(position) {
    this.cross.setAttribute("visibility", position ? "visible" : "hidden");
    for (const end of ["x1", "x2"]) this.cross.setAttribute(end, position ? WIDTH * position[1] : 0);
  }

  /** Return the line through the points: of a long curve through the least and the largest value of every stretch. */
  #path({ data }) {
    const stride = Math.max(1, Math.ceil(data.length / MOST));
    let path = "";
    let joined = false; // to the point before: there is no line where the domain is not
    for (let start = 0; start < data.length; start += stride)
      for (const i of extremes(data, start, Math.min(data.length, start + stride))) {
        const isThere = Number.isFinite(data[i]);
        if (isThere) path += `${joined ? "L" : "M"}${(WIDTH * this.#across(i, data.length)).toFixed(1)} ${this.#height(data[i]).toFixed(1)}`;
        joined = isThere;
      }
    return path;
  }

  #across(i, points) {
    return share(i, points, this.axes?.[0]?.points);
  }

  #height(value) {
    const [low, high] = this.range;
    return (HEIGHT * (high - value)) / (high - low);
  }
}

/** Return the indices of the least and the largest value of a stretch, in order; one where they are the same, or none is finite. */
function extremes(data, start, end) {
  let [low, high] = [start, start];
  for (let i = start + 1; i < end; i++) {
    if (!(data[low] <= data[i])) low = Number.isFinite(data[i]) ? i : low;
    if (!(data[high] >= data[i])) high = Number.isFinite(data[i]) ? i : high;
  }
  return low === high ? [low] : [Math.min(low, high), Math.max(low, high)];
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
