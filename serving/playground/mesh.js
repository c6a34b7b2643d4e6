/** Meshes: what a model on points takes of one, what follows from its cells, and how its boundary is moved. */

import * as cards from "./card.js";
import { product } from "./fields.js";

const { BOUNDARY, DISTANCE } = cards;
const ON_EDGE = 1e-6; // a node this near to an edge, in lengths of the edge, lies on it
const CLOSE = 1e-3; // of the extent: distances that agree
const SIDES = [[0, 1], [1, 2], [2, 0]];
const FOUR = [[0, 1], [1, 2], [2, 3], [3, 0]];
const FACES = [[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]];
const BRICK = [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]];
const WEDGE = [[0, 1, 2], [3, 4, 5], [0, 1, 4, 3], [1, 2, 5, 4], [2, 0, 3, 5]];
const PYRAMID = [[0, 1, 2, 3], [0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]];
/** The ends of the edges in whose middles quadratic cells have nodes, in order. */
const EDGES = [...SIDES, [0, 3], [1, 3], [2, 3]];
const BRICK_EDGES = [...FOUR, [4, 5], [5, 6], [6, 7], [7, 4], [0, 4], [1, 5], [2, 6], [3, 7]];
const WEDGE_EDGES = [...SIDES, [3, 4], [4, 5], [5, 3], [0, 3], [1, 4], [2, 5]];
const PYRAMID_EDGES = [...FOUR, [0, 4], [1, 4], [2, 4], [3, 4]];
/** Corners and all nodes of the facets of a cell, by dimensions and VTK's number, as a training on mesh files has them. */
export const FACETS = {
  2: { 5: linear(SIDES), 22: quadratic(SIDES, SIDES), 9: linear(FOUR), 23: quadratic(FOUR, FOUR), 28: quadratic(FOUR, FOUR) },
  3: {
    ...{ 10: linear(FACES), 24: quadratic(FACES, EDGES), 14: linear(PYRAMID), 27: quadratic(PYRAMID, PYRAMID_EDGES) },
    ...{ 13: linear(WEDGE), 26: quadratic(WEDGE, WEDGE_EDGES), 32: quadratic(WEDGE, WEDGE_EDGES, [2, 3, 4]) },
    ...{ 12: linear(BRICK), 25: quadratic(BRICK, BRICK_EDGES), 29: quadratic(BRICK, BRICK_EDGES, [5, 3, 2, 4, 0, 1]) },
  },
};

function linear(facets) {
  return [facets, facets];
}

/** Return the facets of a cell with nodes in the middles of its edges, and then of the facets `middles`. */
function quadratic(facets, edges, middles = []) {
  const first = 1 + Math.max(...facets.flat());
  const onEdges = (facet) => edges.flatMap((edge, i) => (edge.every((node) => facet.includes(node)) ? [first + i] : []));
  const inside = (i) => (middles.includes(i) ? [first + edges.length + middles.indexOf(i)] : []);
  return [facets, facets.map((facet, i) => [...facet, ...onEdges(facet), ...inside(i)])];
}

/** The triangles that a plane cell is drawn by. */
const TRIANGLES = {
  ...{ 5: [[0, 1, 2]], 9: [[0, 1, 2], [0, 2, 3]], 22: [[0, 3, 5], [3, 1, 4], [5, 4, 2], [3, 4, 5]] },
  ...{ 23: [[0, 4, 7], [4, 1, 5], [5, 2, 6], [6, 3, 7], [4, 5, 7], [5, 6, 7]] },
  28: [[0, 4], [4, 1], [1, 5], [5, 2], [2, 6], [6, 3], [3, 7], [7, 0]].map(([a, b]) => [a, b, 8]),
};

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
  card.frames?.states.forEach((state, i) => (known[state] ??= known[card.outputs[i].name])); // by whose name a mesh has the state
  for (const tensor of card.frames ? others : [...others, ...card.outputs])
    if (known[tensor.name]) found[tensor.name] = asTensor(known[tensor.name], tensor, kept);
  for (const { name } of others)
    if (!found[name] && (name === BOUNDARY || name === DISTANCE)) {
      const edge = found[BOUNDARY]?.data ?? onBoundary(mesh, dimensions);
      found[name] = { shape: [mesh.count], data: name === BOUNDARY ? edge : distances(coordinates, edge) };
    }
  const missing = cards.required(card).filter(({ name }) => !found[name]).map(({ name }) => name);
  if (missing.length) throw new Error(`it has no data ${missing.join(", ")}; its data are ${Object.keys(known).join(", ") || "none"}`);
  return found;
}

function wireName(name) {
  return name.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
}

function columns(values, width, kept) {
  return { shape: [values.length / width, kept.length], data: Float32Array.from({ length: (values.length / width) * kept.length }, (_, i) => values[Math.floor(i / kept.length) * width + kept[i % kept.length]]) };
}

/** Return data at the points as a field; mesh files give every vector of a plane a third component. */
function asTensor({ name, width, values }, tensor, kept) {
  const expected = cards.components(tensor);
  if (width === 3 && expected === kept.length) return columns(values, width, kept);
  if (width !== expected) throw new Error(`its data ${name} have ${width} components; expected ${expected}`);
  const points = values.length / width;
  return { shape: tensor.axes.includes("component") ? [points, width] : [points], data: Float32Array.from(values) };
}

/** Call a function with type and nodes of every cell. */
function eachCell({ types, ends, nodes }, act) {
  types.forEach((type, i) => act(type, nodes.subarray(i ? ends[i - 1] : 0, ends[i]), i));
}

/** Return the dimension of a cell by VTK's number of its type. */
function dimension(type) {
  if (type < 5 || type === 21) return type < 3 ? 0 : 1;
  if ([35, 60, 68].includes(Number(type))) return 1;
  return type < 10 || [22, 23, 28, 30, 34, 36, 61, 62, 63, 69, 70].includes(Number(type)) ? 2 : 3;
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

/** Return three points for every triangle of a plane mesh; undefined where a cell is of an unknown type. */
function triangles(mesh) {
  const found = [];
  let isKnown = mesh.types.length > 0;
  eachCell(mesh, (type, nodes) => {
    if (TRIANGLES[type]) for (const corners of TRIANGLES[type]) found.push(...corners.map((corner) => nodes[corner]));
    else isKnown &&= type < 5 || type === 21; // points and lines
  });
  return isKnown && found.length ? Uint32Array.from(found) : undefined;
}

/**
 * Return 1 at points on facets that belong to one cell alone, and 0 elsewhere.
 *
 * @throws {Error} There are no cells, some of the mesh's own dimension are of an unknown type, or two sizes of them meet.
 */
function onBoundary(mesh, dimensions) {
  const facets = new Map();
  const keyOf = (...nodes) => nodes.sort((a, b) => a - b).join();
  const strange = new Set(Array.from(mesh.types).filter((type) => dimension(type) >= dimensions && !FACETS[dimensions][type]));
  if (strange.size) throw new Error(`its cells of VTK's types ${[...strange].join(", ")} are unknown, so ${BOUNDARY} and ${DISTANCE} do not follow`);
  eachCell(mesh, (type, nodes) => {
    const [corners, all] = FACETS[dimensions][type] ?? [[], []]; // none of lines on the boundary
    corners.forEach((facet, i) => {
      const ends = facet.map((node) => nodes[node]);
      const key = keyOf(...ends);
      facets.set(key, facets.has(key) ? null : { ends, members: all[i].map((node) => nodes[node]) });
    });
  });
  for (const [key, facet] of facets) {
    if (facet?.ends.length !== 4) continue;
    const [a, b, c, d] = facet.ends; // two triangles of the cells behind it may cover a quadrilateral
    const halves = [[keyOf(a, b, c), keyOf(a, c, d)], [keyOf(a, b, d), keyOf(b, c, d)]].find((pair) => pair.every((half) => facets.get(half)));
    for (const covered of halves ? [key, ...halves] : []) facets.set(covered, null);
  }
  const node = hanging(mesh.points, [...facets.values()].filter(Boolean).map(({ ends }) => ends));
  if (node !== undefined) throw new Error(`its node ${node} hangs on an edge of another cell, so ${BOUNDARY} and ${DISTANCE} do not follow`);
  const used = new Uint8Array(mesh.count);
  eachCell(mesh, (type, nodes) => FACETS[dimensions][type] && nodes.forEach((node) => (used[node] = 1)));
  if (!used.includes(1)) throw new Error(`it has neither data ${BOUNDARY} nor cells that they follow from`);
  if (used.includes(0)) throw new Error(`its point ${used.indexOf(0)} is in no cell; expected cells of all ${mesh.count} points`);
  const found = new Float32Array(mesh.count);
  for (const facet of facets.values()) for (const node of facet?.members ?? []) found[node] = 1;
  return found;
}

/** Return a corner of facets that lies on an edge of another one, if there is any, as a training on mesh files refuses it. */
function hanging(points, facets) {
  const nodes = [...new Set(facets.flat())].sort((a, b) => points[3 * a] - points[3 * b]);
  const vector = (from, to) => [0, 1, 2].map((k) => points[3 * to + k] - points[3 * from + k]);
  const edges = new Map(facets.flatMap((ends) => ends.map((end, i) => [end, ends[(i + 1) % ends.length]].sort((a, b) => points[3 * a] - points[3 * b] || a - b))).map((pair) => [pair.join(), pair]));
  for (const [first, last] of edges.values()) {
    const along = vector(first, last);
    const square = Math.hypot(...along) ** 2;
    const reach = ON_EDGE * Math.sqrt(square);
    let [start, end] = [0, nodes.length]; // the first node that is not left of the edge
    while (start < end) {
      const middle = (start + end) >> 1;
      if (points[3 * nodes[middle]] < points[3 * first] - reach) start = middle + 1;
      else end = middle;
    }
    for (; start < nodes.length && points[3 * nodes[start]] <= points[3 * last] + reach; start++) {
      const apart = vector(first, nodes[start]);
      const share = apart.reduce((sum, value, k) => sum + value * along[k], 0) / square;
      if (share > ON_EDGE && share < 1 - ON_EDGE && Math.hypot(...apart.map((value, k) => value - share * along[k])) < reach) return nodes[start];
    }
  }
  return undefined;
}

/** Return the distance of every point to the nearest one that is marked by 1. */
function distances({ shape: [count, width], data }, marks) {
  const targets = [...marks.keys()].filter((i) => marks[i] === 1).flatMap((i) => [...data.subarray(i * width, (i + 1) * width)]);
  return Float32Array.from({ length: count }, (_, i) => {
    let least = Infinity;
    for (let at = 0; at < targets.length; at += width) {
      let sum = 0;
      for (let k = 0; k < width; k++) sum += (data[i * width + k] - targets[at + k]) ** 2;
      if (sum < least) least = sum;
    }
    return Math.sqrt(least);
  });
}

/** Return the points that can be moved: those with `boundary` 1, else the ends of edges of one triangle alone. */
export function movable(fields, triangles) {
  const marks = fields[BOUNDARY];
  if (marks?.shape.length === 1 && marks.data.includes(1)) return [...marks.data.keys()].filter((i) => marks.data[i] === 1);
  return [...new Set(outline(triangles))].sort((a, b) => a - b);
}

const known = new WeakMap(); // by triangles

/** Return the two points of every edge of one triangle alone. */
export function outline(triangles) {
  if (!known.has(triangles)) {
    const edges = new Map();
    const count = triangles.reduce((most, i) => Math.max(most, i), 0) + 1;
    triangles.forEach((i, edge) => {
      const j = triangles[edge % 3 === 2 ? edge - 2 : edge + 1];
      const key = Math.min(i, j) * count + Math.max(i, j);
      edges.set(key, edges.has(key) ? null : [i, j]);
    });
    known.set(triangles, [...edges.values()].filter(Boolean).flat());
  }
  return known.get(triangles);
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
