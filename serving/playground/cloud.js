/** Fields that are not defined everywhere as pictures: on points of a plane by triangles between them, on points in space
 * by discs, and on the part of a grid.
 */

import * as cards from "./card.js";
import { outline as edges } from "./cells.js";
import * as fields from "./fields.js";
import { short } from "./numbers.js";
import { Space } from "./space.js";
import { circumcentre, delaunay } from "./triangles.js";

const PIXELS = 420; // along the longer side
const MARGIN = 0.04; // around the points, as a share of the longer side: room to move them
const MOST_SIDES = 2 ** 18; // of triangles: they would fill the picture, and take seconds to draw
const WIDEST = 2; // the circle around a triangle, in distances of its corners to their third neighbours; wider ones bridge holes

/**
 * Return what a panel shows of a whole field: one component, of a box one plane; NaN where the domain is not.
 *
 * @param {object} card
 * @param {{shape: number[], data: Float32Array}} whole
 * @param {number} component
 * @param {number} slice
 * @param {Record<string, object>} inputs The fields of the sample that it belongs to, by name.
 */
export function shown(card, whole, component, slice, inputs) {
  if (cards.scattered(card)) return { ...pictureOf(inputs[cards.COORDINATES], whole, component), smooth: true };
  const plane = fields.plane(whole, cards.dimensions(card), component, slice);
  const mask = inputs[card.mask];
  if (!mask || whole === mask || whole.data.length % mask.data.length) return plane;
  return fields.within(plane, fields.plane(mask, cards.dimensions(card), 0, slice));
}

/** Return the picture of a field `[point, (component)]`, or of one with frames, whose components are counted with them. */
function pictureOf(coordinates, whole, component) {
  const [points] = coordinates.shape;
  const [frames, count, width = 1] = whole.shape;
  if (count !== points || frames === points) return cloud(coordinates).picture(whole, component);
  return cloud(coordinates).picture(fields.frame(whole, Math.floor(component / width)), component % width);
}

/** Return a picture of the mesh of points of the plane: the edges of its triangles. */
export function mesh(coordinates) {
  const { shape, where, sides } = cloud(coordinates);
  return { shape, data: new Float32Array(shape[0] * shape[1]).fill(NaN), where, lines: sides, smooth: true, points: coordinates.shape[0] };
}

/** Return the axes of a picture of points of the plane, which have the units of the coordinates; none in space. */
export function axes(card, inputs) {
  if (!cards.scattered(card) || cards.spatial(card)) return cards.axes(card);
  const [tensor] = card.inputs;
  const { low, extent } = cloud(inputs[cards.COORDINATES]);
  const named = [0, 1].map((k) => ({ name: (tensor.components?.[k] ?? "xy"[k]) + cards.inUnits(tensor), ends: [low[k], low[k] + extent[k]] }));
  return [{ ...named[1], up: true }, named[0]];
}

/** Return width over height of the picture of a sample's fields. */
export function aspect(card, shape, inputs) {
  return cards.scattered(card) ? cloud(inputs[cards.COORDINATES]).aspect : cards.aspect(card, shape);
}

/** Return a sample without the points that pad it, and without their number. */
export function withoutPadding(arrays, card) {
  if (!cards.scattered(card) || !arrays[cards.COORDINATES]) return arrays;
  const { [cards.COUNTS]: counts, ...others } = arrays;
  const [points] = others[cards.COORDINATES].shape;
  const count = counts?.data[0] || points;
  const cut = ({ shape: [, ...rest], data }) => ({ shape: [count, ...rest], data: data.slice(0, count * fields.product(rest)) });
  const cutEach = (field) => {
    const frames = Array.from({ length: field.shape[0] }, (_, i) => cut(fields.frame(field, i)));
    const data = new Float32Array(frames.reduce((size, each) => size + each.data.length, 0));
    frames.forEach((each, i) => data.set(each.data, i * each.data.length));
    return { shape: [field.shape[0], ...frames[0].shape], data };
  };
  const timed = new Set([...card.inputs, ...card.outputs].filter(cards.timed).map(({ name }) => name));
  const shorter = (name, field) => (timed.has(name) ? cutEach(field) : field.shape[0] === points ? cut(field) : field);
  return Object.fromEntries(Object.entries(others).map(([name, field]) => [name, field && shorter(name, field)]));
}

const known = new WeakMap(); // by coordinates: all panels of a sample share one

function cloud(coordinates) {
  const { data, shape } = coordinates;
  if (!known.has(data)) known.set(data, shape[1] === 3 ? new Space(coordinates) : new Cloud(coordinates));
  return known.get(data);
}

/** Return coordinates of a plane with the triangles between them, and with the frame of their picture, which then stays. */
export function framed(coordinates) {
  const { triangles, low, extent } = cloud(coordinates);
  return { ...coordinates, triangles, frame: { low, extent } };
}

/** Return the point of the plane at a position in a picture, in shares (row, column) of its sides. */
export function located(coordinates, [down, across]) {
  const { low, extent } = cloud(coordinates);
  return [low[0] + across * extent[0], low[1] + (1 - down) * extent[1]];
}

/** Return the position of a point of the plane in a picture. */
export function position(coordinates, point) {
  const { low, extent } = cloud(coordinates);
  return [1 - (coordinates.data[2 * point + 1] - low[1]) / extent[1], (coordinates.data[2 * point] - low[0]) / extent[0]];
}

/** Return the edge of the domain of points of the plane: the ends of its parts as positions in pixels; nothing in space. */
export function outline(coordinates) {
  return cloud(coordinates).outline ?? [];
}

/** Return the width of a picture of points of the plane. */
export function width(coordinates) {
  return cloud(coordinates).extent[0];
}

/** Points of the plane, and for every pixel of a picture the triangle that it lies in. */
class Cloud {
  /** @param {object} coordinates x and y of every point, in turn; its `triangles` and the `frame` of the picture, if known. */
  constructor({ data, triangles, frame }) {
    const [x, y] = [0, 1].map((axis) => Float64Array.from({ length: data.length / 2 }, (_, i) => data[2 * i + axis]));
    Object.assign(this, frame ?? around(x, y));
    this.aspect = Math.min(3, Math.max(1 / 3, this.extent[0] / this.extent[1]));
    this.shape = (this.aspect > 1 ? [PIXELS / this.aspect, PIXELS] : [PIXELS, PIXELS * this.aspect]).map(Math.round);
    const place = (axis, share) => short(this.low[axis] + share * this.extent[axis], this.extent[axis]);
    this.where = ([down, across]) => `x ${place(0, across)}, y ${place(1, 1 - down)}`;
    this.triangles = triangles ?? within(x, y, delaunay(x, y));
    this.#rasterise(x, y);
  }

  /** Return a component of a field `[point, (component)]` as a picture, linear on every triangle and NaN beyond them. */
  picture({ shape: [points, width = 1], data }, component) {
    const values = new Float32Array(this.corners.length / 3).fill(NaN);
    for (let pixel = 0, at = 0; pixel < values.length; pixel++, at += 3) {
      if (this.corners[at] === points) continue;
      let sum = 0;
      for (let k = 0; k < 3; k++) sum += this.weights[at + k] * data[this.corners[at + k] * width + component];
      values[pixel] = sum;
    }
    return { shape: this.shape, data: values, where: this.where, points };
  }

  /** The edge of the domain: the two ends of every part, as positions (row, column) in pixels. */
  get outline() {
    return (this.around ??= this.#positions(edges(this.triangles)));
  }

  /** The sides of all triangles, likewise; of more than can be told apart those of none. */
  get sides() {
    const triangles = this.triangles.length > MOST_SIDES ? new Uint32Array() : this.triangles;
    return (this.inner ??= this.#positions(Array.from({ length: 2 * triangles.length }, (_, end) => triangles[end % 2 ? next(end >> 1) : end >> 1])));
  }

  #positions(points) {
    return points.flatMap((point) => [this.row[point] + 0.5, this.column[point] + 0.5]);
  }

  /** Find the corners of the triangle around the middle of every pixel, and their weights there. */
  #rasterise(x, y) {
    const [rows, columns] = this.shape;
    const column = (this.column = x.map((value) => ((value - this.low[0]) / this.extent[0]) * columns - 0.5));
    const row = (this.row = y.map((value) => (1 - (value - this.low[1]) / this.extent[1]) * rows - 0.5));
    this.corners = new Uint32Array(3 * rows * columns).fill(x.length); // no point
    this.weights = new Float32Array(3 * rows * columns);
    const { triangles } = this;
    for (let at = 0; at < triangles.length; at += 3) {
      const [a, b, c] = triangles.subarray(at, at + 3);
      const area = (column[b] - column[a]) * (row[c] - row[a]) - (column[c] - column[a]) * (row[b] - row[a]);
      if (!area) continue; // it would blank all pixels around it
      const [top, bottom] = [Math.max(0, Math.ceil(Math.min(row[a], row[b], row[c]))), Math.min(rows - 1, Math.floor(Math.max(row[a], row[b], row[c])))];
      const [left, right] = [Math.max(0, Math.ceil(Math.min(column[a], column[b], column[c]))), Math.min(columns - 1, Math.floor(Math.max(column[a], column[b], column[c])))];
      for (let i = top; i <= bottom; i++)
        for (let j = left; j <= right; j++) {
          const second = ((j - column[a]) * (row[c] - row[a]) - (column[c] - column[a]) * (i - row[a])) / area;
          const third = ((column[b] - column[a]) * (i - row[a]) - (j - column[a]) * (row[b] - row[a])) / area;
          if (second < -1e-9 || third < -1e-9 || second + third > 1 + 1e-9) continue;
          const pixel = 3 * (i * columns + j);
          this.corners[pixel] = a;
          this.corners[pixel + 1] = b;
          this.corners[pixel + 2] = c;
          this.weights[pixel] = 1 - second - third;
          this.weights[pixel + 1] = second;
          this.weights[pixel + 2] = third;
        }
    }
  }
}

/** Return the index of the corner of a triangle that follows one. */
function next(corner) {
  return corner % 3 === 2 ? corner - 2 : corner + 1;
}

/** Return the lowest corner and the sides of the picture around points. */
function around(x, y) {
  const low = [x, y].map((values) => values.reduce((least, value) => Math.min(least, value), Infinity));
  const sides = [x, y].map((values, axis) => values.reduce((most, value) => Math.max(most, value), -Infinity) - low[axis] || 1);
  const margin = MARGIN * Math.max(...sides);
  return { low: low.map((least) => least - margin), extent: sides.map((side) => side + 2 * margin) };
}

/** Return the triangles that are no larger or flatter than the spacing of their corners allows. */
function within(x, y, triangles) {
  const nearest = [0, 1, 2].map(() => new Float64Array(x.length).fill(Infinity)); // neighbours of every point
  const end = (edge) => triangles[next(edge)];
  const lengths = Float64Array.from(triangles, (i, edge) => Math.sqrt((x[i] - x[end(edge)]) ** 2 + (y[i] - y[end(edge)]) ** 2));
  triangles.forEach((i, edge) => {
    let length = lengths[edge];
    for (const distances of nearest) if (length < distances[i]) [length, distances[i]] = [distances[i], length];
  });
  const spacing = nearest[2].map((third, i) => (Number.isFinite(third) ? third : nearest[0][i]));
  const kept = Uint8Array.from({ length: triangles.length / 3 }, (_, at) => {
    const [a, b, c] = triangles.subarray(3 * at, 3 * at + 3);
    const [, , square] = circumcentre(x[a], y[a], x[b], y[b], x[c], y[c]);
    return Math.sqrt(square) <= WIDEST * Math.max(spacing[a], spacing[b], spacing[c]);
  });
  return triangles.filter((_, k) => kept[Math.floor(k / 3)]);
}
