/** A field on two axes as a canvas with one pixel per point, which the style sheet scales without smoothing. */

import { colour } from "./colours.js";
import { share } from "./fields.js";
import { short } from "./numbers.js";

export class Picture {
  dimensions = 2;
  range = [0, Infinity]; // of the scale

  constructor(parent) {
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.cross = document.createElement("i");
    this.cross.className = "cross";
    this.cross.hidden = true;
    parent.append(this.canvas, this.cross);
    this.surface = this.canvas;
  }

  show({ shape: [rows, columns], data, outline = [], lines = [], smooth = false }, [low, high]) {
    this.range = [low, high];
    this.canvas.toggleAttribute("data-smooth", smooth);
    if (this.canvas.height !== rows || this.canvas.width !== columns) Object.assign(this.canvas, { height: rows, width: columns });
    const pixels = new ImageData(columns, rows);
    const scale = high > low ? 1 / (high - low) : 0;
    const bytes = pixels.data;
    for (let i = 0; i < data.length; i++) {
      if (!Number.isFinite(data[i])) continue; // transparent
      const rgb = colour(this.ramp, scale ? (data[i] - low) * scale : 0.5);
      for (let k = 0; k < 3; k++) bytes[4 * i + k] = rgb[k];
      bytes[4 * i + 3] = 255;
    }
    const context = this.canvas.getContext("2d");
    context.putImageData(pixels, 0, 0);
    const style = getComputedStyle(this.canvas);
    stroke(context, lines, { lineWidth: 0.8, strokeStyle: style.getPropertyValue("--soft") });
    stroke(context, outline, { lineWidth: 2.5, lineCap: "round", strokeStyle: style.getPropertyValue("--warm") });
  }

  label(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  /** Return the position of a pointer as shares (row, column) of the sides. */
  position(event) {
    const box = this.canvas.getBoundingClientRect();
    const within = (share) => Math.min(1, Math.max(0, share));
    return [within((event.clientY - box.top) / box.height), within((event.clientX - box.left) / box.width)];
  }

  /** Return place and value at a position; nothing outside the domain. A field with `where` has pixels instead of points. */
  reading({ shape: [rows, columns], data, where, lines }, [down, across]) {
    const [row, column] = [Math.min(rows - 1, Math.floor(down * rows)), Math.min(columns - 1, Math.floor(across * columns))];
    const value = data[row * columns + column];
    const found = where?.([down, across]) ?? [place(this.axes?.at(-2), row, rows, "row"), place(this.axes?.at(-1), column, columns, "column")].join(", ");
    if (lines) return found;
    return Number.isNaN(value) ? "" : `${found}: ${short(value, this.range[1] - this.range[0])}`;
  }

  mark(position) {
    this.cross.hidden = !position;
    if (!position) return;
    Object.assign(this.cross.style, { top: `${100 * position[0]}%`, left: `${100 * position[1]}%` });
    if (this.brush) Object.assign(this.cross.style, { width: `${100 * this.brush}%`, height: this.round ? "auto" : `${100 * this.brush}%`, aspectRatio: this.round ? 1 : "auto" });
  }
}

const COUNTED = ["row", "column", "point"]; // names of axes whose points have numbers

/** Return where a point is on an axis: its coordinate where the axis has one, else its index. */
export function place(axis, index, points, usual) {
  const { name = usual, ends = [], points: lie } = axis ?? {};
  const isIndex = ends.length === 0 || COUNTED.includes(name);
  return `${name} ${isIndex ? index : short(ends[0] + (ends[1] - ends[0]) * share(index, points, lie), Math.abs(ends[1] - ends[0]))}`;
}

/** Draw lines between pairs of positions (row, column). */
function stroke(context, lines, style) {
  if (!lines.length) return;
  context.beginPath();
  for (let at = 0; at < lines.length; at += 4) {
    context.moveTo(lines[at + 1], lines[at]);
    context.lineTo(lines[at + 3], lines[at + 2]);
  }
  Object.assign(context, style);
  context.stroke();
}
