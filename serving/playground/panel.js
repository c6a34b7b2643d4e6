/** A `<figure>` that shows a field as a picture or a curve, with title, scale and the value under the pointer. */

import { ends } from "./numbers.js";
import { Curve } from "./curve.js";
import { Picture } from "./picture.js";

/** Return an empty figure for a quantity. */
export function figure(role, name) {
  const made = document.createElement("figure");
  made.className = "panel";
  Object.assign(made.dataset, { role, name });
  return made;
}

const SPOKEN = ["input", "prediction"]; // panels whose value under the brush screen readers read out, as it moves

export class Panel {
  /** @param {HTMLElement} figure An empty figure; its `data-role` is its purpose. */
  constructor(figure) {
    figure.append(document.getElementById("panel").content.cloneNode(true));
    this.figure = figure;
    this.role = figure.dataset.role;
    this.view = null;
    this.position = null; // of the pointer, in shares of the axes
    if (SPOKEN.includes(this.role)) this.#part(".reading").setAttribute("aria-live", "polite");
  }

  /** Become a curve for one axis, or a picture for two or three. */
  become(dimensions, ramp) {
    this.view = dimensions === 1 ? new Curve(this.#part(".view")) : new Picture(this.#part(".view"));
    this.figure.dataset.dimensions = this.view.dimensions;
    this.view.ramp = ramp;
    this.clear("");
  }

  /** Set width over height of the picture. */
  set aspect(ratio) {
    this.#part(".view").style.aspectRatio = ratio;
  }

  /**
   * Name the axes that are shown, the last one across and the one before downwards.
   *
   * @param {{name: string, ends: number[], points?: string, up?: boolean}[]} named `ends` are the values at the picture's sides,
   *     empty where they are not known, and `points` says where the points lie between them; an axis may run upwards.
   */
  set axes(named) {
    this.view.axes = named;
    const sides = { ".across": named.at(-1), ".down": named.at(-2) };
    for (const [selector, axis] of Object.entries(sides)) {
      const [first, last] = axis?.ends.length ? ends(axis.ends) : ["0", ""];
      const texts = axis ? [first, axis.name, last] : [];
      this.#part(selector).replaceChildren(...texts.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
      this.#part(selector).toggleAttribute("data-up", Boolean(axis?.up));
    }
  }

  /** Use a colour map from the next field on. */
  set ramp(map) {
    this.view.ramp = map;
  }

  describe(title, about) {
    Object.assign(this.#part("h2"), { textContent: title, title });
    Object.assign(this.#part(".about"), { textContent: about, title: about });
    this.title = title;
  }

  /**
   * @param {{shape: number[], data: Float32Array}} field
   * @param {[number, number]} range The values at the ends of the scale.
   * @param {object} [baseline] A second curve, drawn behind the first, with the `name` of its values.
   */
  show(field, range, baseline = null) {
    this.field = field;
    this.baseline = baseline;
    this.figure.dataset.state = "fresh";
    const [low, high] = ends(range);
    this.#part(".scale .low").textContent = low;
    this.#part(".scale .high").textContent = high;
    this.figure.dataset.picture = field.lines ? "mesh" : "field";
    this.view.show(field, range, baseline);
    this.view.label(`${this.title}, ${field.points ?? field.shape.join(" by ")} points, scale from ${low} to ${high}`);
    this.#paintRamp();
    this.read(this.position); // the value there may be another now
  }

  /** Mark what is shown as outdated. */
  age() {
    if (this.field) this.figure.dataset.state = "stale";
  }

  /** Show nothing but the reason. */
  clear(reason) {
    this.field = null;
    this.figure.dataset.state = "empty";
    this.#part(".view").dataset.reason = reason;
    this.#part(".reading").textContent = "";
  }

  /** Show the value at a position, in shares of the axes; null hides it. */
  read(position) {
    this.position = position;
    const text = position && this.field ? this.view.reading(this.field, position, this.baseline) : "";
    this.#part(".reading").textContent = text;
    this.#part(".reading").dataset.side = position && position[0] > 0.5 ? "top" : "bottom"; // never under the pointer
    this.view?.mark(text ? position : null);
  }

  #paintRamp() {
    const { ramp } = this.view;
    if (!ramp) return;
    const pixels = new ImageData(256, 1);
    for (let i = 0; i < 256; i++) pixels.data.set([ramp[3 * i], ramp[3 * i + 1], ramp[3 * i + 2], 255], 4 * i);
    this.#part(".ramp").getContext("2d").putImageData(pixels, 0, 0);
  }

  #part(selector) {
    return this.figure.querySelector(selector);
  }
}
