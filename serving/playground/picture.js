/** A field on two axes as a canvas with one pixel per point, which the style sheet scales without smoothing. */

import { colour } from "./colours.js";
import { short } from "./numbers.js";

export class Picture {
  dimensions = 2;

  constructor(parent) {
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.cross = document.createElement("i");
    this.cross.className = "cross";
    this.cross.hidden = true;
    parent.append(this.canvas, this.cross);
    this.surface = this.canvas;
  }

  show({ shape: [rows, columns], data, outline = [] }, [low, high]) {
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
    if (!outline.length) return;
    context.beginPath();
    for (let at = 0; at < outline.length; at += 4) {
      context.moveTo(outline[at + 1], outline[at]);
      context.lineTo(outline[at + 3], outline[at + 2]);
    }
    Object.assign(context, { lineWidth: 2.5, lineCap: "round", strokeStyle: getComputedStyle(this.canvas).getPropertyValue("--warm") });
    context.stroke();
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
  reading({ shape: [rows, columns], data, where }, [down, across]) {
    const [row, column] = [Math.min(rows - 1, Math.floor(down * rows)), Math.min(columns - 1, Math.floor(across * columns))];
    const value = data[row * columns + column];
    return Number.isNaN(value) ? "" : `${where?.([down, across]) ?? `row ${row}, column ${column}`}: ${short(value)}`;
  }

  mark(position) {
    this.cross.hidden = !position;
    if (!position) return;
    Object.assign(this.cross.style, { top: `${100 * position[0]}%`, left: `${100 * position[1]}%` });
    if (this.brush) Object.assign(this.cross.style, { width: `${100 * this.brush}%`, height: this.round ? "auto" : `${100 * this.brush}%`, aspectRatio: this.round ? 1 : "auto" });
  }
}
