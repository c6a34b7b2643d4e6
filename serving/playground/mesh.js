/** Meshes: what a model on points takes of one, what follows from its cells, and how its boundary is moved. */

import * as cards from "./card.js";
import { dimension, distances, eachCell, onBoundary, outline, triangles } from "./cells.js";
import { product } from "./fields.js";

const { BOUNDARY, DISTANCE } = cards;
const CLOSE = 1e-3; // of the extent: distances that agree

/**
 * Return the arrays of a mesh that a model takes and returns, by name, without a batch axis.
 *
 * Data at the points have the names of inputs and outputs, in any case and with any signs between words; data of cells are
 * means at their points. The coordinates of a plane mesh have its `triangles`.
 *
 * @param {object} mesh As `vtu.decode` returns it.
 * @param {object} card
 * @throws {Error} An input is missing, or has another number of components, or the mesh has too many dimensions.
 */
export function arraysOf(mesh, card) {
  const [lead, ...others] = card.inputs;
  const dimensions = cards.components(lead);
  const varies = [0, 1, 2].map((axis) => mesh.points.some((value, i) => i % 3 === axis && value !== mesh.points[axis]));
  const space = varies.filter(Boolean).length;
  if (space > dimensions) throw new Error(`its points are in ${space} dimensions; expected ${dimensions}`);
  const kept = [0, 1, 2].filter((axis) => (space === dimensions ? varies[axis] : axis < dimensions));
  const coordinates = columns(mesh.points, 3, kept);
  if (dimensions === 2) coordinates.triangles = triangles(mesh);
  const known = Object.fromEntries([...mesh.cellData.map((array) => ({ ...array, values: atPoints(mesh, array) })), ...mesh.pointData].map((array) => [wireName(array.name), array]));
  const found = { [lead.name]: coordinates };
  const outputs = (card.frames?.states ?? []).map((state, i) => [state, known[card.outputs[i].name]]); // by whose name a mesh has the state
  for (const [state, array] of outputs) if (array) known[state] ??= array;
  for (const tensor of card.frames ? others : [...others, ...card.outputs])
    if (known[tensor.name]) found[tensor.name] = asTensor(known[tensor.name], tensor, kept);
  for (const tensor of others) if (!found[tensor.name]) Object.assign(found, ofRegion(mesh, tensor));
  for (const { name } of others)
    if (!found[name] && (name === BOUNDARY || name === DISTANCE)) {
      const edge = found[BOUNDARY]?.data ?? onBoundary(mesh, columns(mesh.points, 3, kept, Float64Array));
      found[name] = { shape: [mesh.count], data: name === BOUNDARY ? edge : distances(coordinates, edge) };
    }
  const missing = cards.required(card).filter(({ name }) => !found[name]).map(({ name }) => name);
  if (missing.length) throw new Error(`it has no data ${missing.join(", ")}; its data are ${Object.keys(known).join(", ") || "none"}`);
  return found;
}

/** Return an input such as `material_2` by its name: the share of the cells at each point whose `material` is 2. */
function ofRegion(mesh, { name }) {
  const [, quantity, number] = /^(.*)_(\d+)$/.exec(name) ?? [];
  const array = mesh.cellData.find((each) => each.isWhole && each.width === 1 && wireName(each.name) === quantity);
  if (!array) return {};
  const inside = array.values.map((value) => Number(value === Number(number)));
  return { [name]: { shape: [mesh.count], data: Float32Array.from(atPoints(mesh, { width: 1, values: inside })) } };
}

function wireName(name) {
  return name.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
}

function columns(values, width, kept, Numbers = Float32Array) {
  const points = values.length / width;
  const data = new Numbers(points * kept.length);
  for (let i = 0, at = 0; i < points; i++) for (const column of kept) data[at++] = values[i * width + column];
  return { shape: [points, kept.length], data };
}

/** Return data at the points as a field; mesh files give every vector of a plane a third component. */
function asTensor({ name, width, values }, tensor, kept) {
  const expected = cards.components(tensor);
  if (width === 3 && expected === kept.length) return columns(values, width, kept);
  if (width !== expected) throw new Error(`its data ${name} have ${width} components; expected ${expected}`);
  const points = values.length / width;
  return { shape: tensor.axes.includes("component") ? [points, width] : [points], data: Float32Array.from(values) };
}

function atPoints(mesh, { width, values }) {
  const [total, cells] = [new Float64Array(mesh.count * width), new Float64Array(mesh.count)];
  const own = Math.max(0, ...new Set(Array.from(mesh.types, dimension)));
  eachCell(mesh, (type, nodes, cell) => {
    if (dimension(type) < own) return; // as the lines on the boundary of a plane mesh
    for (const node of nodes) {
      cells[node] += 1;
      for (let k = 0; k < width; k++) total[node * width + k] += values[cell * width + k];
    }
  });
  return total.map((sum, i) => sum / Math.max(1, cells[Math.floor(i / width)]));
}

/** Return the points that can be moved: those with `boundary` 1, else the ends of edges of one triangle alone. */
export function movable(fields, triangles) {
  const marks = fields[BOUNDARY];
  if (marks?.shape.length === 1 && marks.data.includes(1)) return [...marks.data.keys()].filter((i) => marks.data[i] === 1);
  return [...new Set(outline(triangles))].sort((a, b) => a - b);
}

/**
 * Return the fields of a sample after a point of its plane has been moved: those around it follow, less with the distance.
 *
 * Steps are so short that no two points change sides. `distance` follows where it is the one to the points of `boundary`.
 *
 * @param {Record<string, object>} fields By name.
 * @param {number} point
 * @param {[number, number]} to Where the point goes.
 * @param {number} reach Points farther away stay.
 */
export function moved(fields, point, [x, y], reach) {
  const before = fields[cards.COORDINATES];
  const data = before.data.slice();
  for (let left = Math.max(1, Math.ceil(Math.hypot(x - data[2 * point], y - data[2 * point + 1]) / (reach / 4))); left > 0; left--) {
    const [atX, atY] = data.subarray(2 * point, 2 * point + 2);
    const [stepX, stepY] = [(x - atX) / left, (y - atY) / left];
    for (let i = 0; i < data.length; i += 2) {
      const share = 1 - ((data[i] - atX) ** 2 + (data[i + 1] - atY) ** 2) / reach ** 2;
      if (share <= 0) continue;
      data[i] += stepX * share ** 2;
      data[i + 1] += stepY * share ** 2;
    }
  }
  const coordinates = { ...before, data };
  const { [BOUNDARY]: marks, [DISTANCE]: old } = fields;
  const follows = marks && old && product(old.shape) === before.shape[0] && (old.follows ?? agree(distances(before, marks.data), old.data));
  return { ...fields, [cards.COORDINATES]: coordinates, ...(follows && { [DISTANCE]: { ...old, data: distances(coordinates, marks.data), follows } }) };
}

function agree(one, other) {
  const most = one.reduce((most, value) => Math.max(most, value), 0);
  return one.every((value, i) => Math.abs(value - other[i]) <= CLOSE * most);
}
