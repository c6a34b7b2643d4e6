/** The cells of meshes: the triangles that they are drawn by, and the boundary, which follows from them as in a training. */

import { BOUNDARY, DISTANCE } from "./card.js";

const ON_EDGE = 1e-6; // a node this near to an edge, in lengths of the edge, lies on it
const [SINGLE, DOUBLE] = [2 ** -21, 2 ** -50]; // how far coordinates are rounded, as a share of them
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

/** Call a function with type, nodes and number of every cell. */
export function eachCell({ types, ends, nodes }, act) {
  types.forEach((type, i) => act(type, nodes.subarray(i ? ends[i - 1] : 0, ends[i]), i));
}

/** Return the dimension of a cell by VTK's number of its type. */
export function dimension(type) {
  if (type < 5 || type === 21) return type < 3 ? 0 : 1;
  if ([35, 60, 68].includes(Number(type))) return 1;
  return type < 10 || [22, 23, 28, 30, 34, 36, 61, 62, 63, 69, 70].includes(Number(type)) ? 2 : 3;
}

/** Return three points for every triangle of a plane mesh; undefined where a cell is of an unknown type. */
export function triangles(mesh) {
  const found = [];
  let isKnown = mesh.types.length > 0;
  eachCell(mesh, (type, nodes) => {
    if (TRIANGLES[type]) for (const corners of TRIANGLES[type]) for (const corner of corners) found.push(nodes[corner]);
    else isKnown &&= type < 5 || type === 21; // points and lines
  });
  return isKnown && found.length ? Uint32Array.from(found) : undefined;
}

const outlines = new WeakMap(); // by triangles

/** Return the two points of every edge of one triangle alone. */
export function outline(triangles) {
  if (!outlines.has(triangles)) {
    const edges = new Uint32Array(2 * triangles.length);
    for (let edge = 0; edge < triangles.length; edge++) {
      edges[2 * edge] = triangles[edge];
      edges[2 * edge + 1] = triangles[edge % 3 === 2 ? edge - 2 : edge + 1];
    }
    outlines.set(triangles, alone(edges, 2).found.flatMap((edge) => [edges[2 * edge], edges[2 * edge + 1]]));
  }
  return outlines.get(triangles);
}

/**
 * Return 1 at points on facets that belong to one cell alone, and 0 elsewhere.
 *
 * @param {object} mesh As `vtu.decode` returns it.
 * @param {{shape: number[], data: Float64Array}} points Of two or three dimensions.
 * @throws {Error} It does not follow from the cells; the message says why.
 */
export function onBoundary(mesh, points) {
  const [, dimensions] = points.shape;
  const kinds = FACETS[dimensions];
  const instead = `so ${BOUNDARY} and ${DISTANCE} do not follow from the cells`;
  const strange = new Set(Array.from(mesh.types).filter((type) => dimension(type) >= dimensions && !kinds[type]));
  if (strange.size) throw new Error(`its cells of VTK's types ${[...strange].join(", ")} are unknown, ${instead}`);
  const own = ofDimension(mesh, kinds);
  const times = new Uint8Array(mesh.count);
  eachCell(own, (_, nodes) => nodes.forEach((node) => (times[node] = Math.min(2, times[node] + 1))));
  if (!own.types.length) throw new Error(`it has neither data ${BOUNDARY} nor cells that they follow from`);
  if (times.includes(0)) throw new Error(`its point ${times.indexOf(0)} is in no cell; expected cells of all ${mesh.count} points`);
  const place = times.includes(2) ? null : joined(points); // where cells share no nodes (discontinuous elements)
  if (place) own.nodes = own.nodes.map((node) => place[node]);
  checkOrder(own, points, kinds, instead);
  const facets = withoutHalves(own, dimensions, instead);
  if (!facets.length) throw new Error(`none of its cells has a facet of its own, ${instead}`);
  const rounding = points.data.every((value) => value === Math.fround(value)) ? SINGLE : DOUBLE;
  const flat = facets.find(({ nodes, type }) => isFlat(nodes, type, points, rounding));
  if (flat) throw new Error(`its cell [${flat.nodes.slice(0, dimensions + 1).join(", ")}] on the boundary is flat: leave out such cells, which a Delaunay triangulation has along straight boundaries; ${BOUNDARY} and ${DISTANCE} do not follow from them`);
  const node = hanging(points, facets.map(({ ends }) => ends));
  if (node !== undefined) throw new Error(`its node ${node} hangs on an edge of another cell, ${instead}`);
  const found = new Float32Array(mesh.count);
  for (const { members } of facets) for (const member of members) found[member] = 1;
  return place ? found.map((_, i) => found[place[i]]) : found;
}

/** Return the cells of a mesh that have these types: those on its boundary are others. */
function ofDimension(mesh, kinds) {
  const [types, ends, nodes] = [[], [], []];
  eachCell(mesh, (type, own) => {
    if (!kinds[type]) return;
    types.push(type);
    for (const node of own) nodes.push(node);
    ends.push(nodes.length);
  });
  return { types, ends, nodes: Uint32Array.from(nodes) };
}

/** Return for every point the first one at its place. */
function joined({ shape: [count, width], data }) {
  const first = new Map();
  return Uint32Array.from({ length: count }, (_, i) => {
    const key = data.subarray(i * width, (i + 1) * width).join();
    if (!first.has(key)) first.set(key, i);
    return first.get(key);
  });
}

/** Refuse cells that have a node twice, and those whose nodes do not run around them: most cross themselves then. */
function checkOrder(cells, points, kinds, instead) {
  let count = 0;
  eachCell(cells, (type, nodes, cell) => {
    if (new Set(nodes).size < nodes.length) throw new Error(`its cell ${cell} has a node twice, ${instead}`);
    if (isCrossed(nodes, kinds[type][0], points)) count += 1;
  });
  if (2 * count > cells.types.length)
    throw new Error(`${count} of ${cells.types.length} cells cross themselves, ${instead}: expected the nodes of each in their order around it, as VTK has them`);
}

/** Return whether sides of a quadrilateral cross; in space those of one that is a facet of the cell, in its plane. */
function isCrossed(nodes, facets, { shape: [, width], data }) {
  if (width === 2) {
    const apart = (a, b, c, d) => area(data, nodes[a], nodes[b], nodes[c]) * area(data, nodes[a], nodes[b], nodes[d]) < 0;
    return facets.length === 4 && ((apart(0, 1, 2, 3) && apart(2, 3, 0, 1)) || (apart(1, 2, 3, 0) && apart(3, 0, 1, 2)));
  }
  const folded = (a, b, c, d) => inner(normal(data, nodes[a], nodes[b], nodes[c]), normal(data, nodes[a], nodes[c], nodes[d])) < 0; // along a diagonal
  return facets.some(([a, b, c, d]) => d !== undefined && folded(a, b, c, d) && folded(b, c, d, a));
}

/** Return whether a triangle on a plane, or a tetrahedron, is no higher than its coordinates are exact; others are not. */
function isFlat(nodes, type, { shape: [, width], data }, rounding) {
  const [facets] = FACETS[width][type];
  if (facets.length !== width + 1) return false;
  const corners = nodes.subarray(0, width + 1);
  const side = (from, to) => Array.from({ length: width }, (_, k) => data[corners[to] * width + k] - data[corners[from] * width + k]);
  const sizes = facets.map((facet) => Math.hypot(...(width === 2 ? side(...facet) : normal(data, ...facet.map((corner) => corners[corner])))));
  const base = Math.max(...sizes);
  const length = width === 2 ? base : Math.sqrt(base);
  const content = width === 2 ? area(data, ...corners) : inner(side(0, 3), normal(data, ...corners.subarray(0, 3)));
  const far = Array.from(corners, (corner) => data.subarray(corner * width, (corner + 1) * width)).reduce((most, at) => Math.max(most, ...at.map(Math.abs)), 0);
  return Math.abs(content) <= Math.max(ON_EDGE * length, rounding * far) * base;
}

/** Return twice the area of a triangle on a plane, with its sign. */
function area(data, a, b, c) {
  const [i, j, k] = [2 * a, 2 * b, 2 * c];
  return (data[j] - data[i]) * (data[k + 1] - data[i + 1]) - (data[j + 1] - data[i + 1]) * (data[k] - data[i]);
}

/** Return twice the area of a triangle in space, as a vector along its normal. */
function normal(data, a, b, c) {
  const side = (to) => [data[3 * to] - data[3 * a], data[3 * to + 1] - data[3 * a + 1], data[3 * to + 2] - data[3 * a + 2]];
  const [[x, y, z], [u, v, w]] = [side(b), side(c)];
  return [y * w - z * v, z * u - x * w, x * v - y * u];
}

function inner([x, y, z], [u, v, w]) {
  return x * u + y * v + z * w;
}

/** Return the facets of one cell alone: their corners `ends` and all nodes, and type and nodes of the cell. */
function withoutHalves(cells, dimensions, instead) {
  const facets = (dimensions === 2 ? [2] : [3, 4]).flatMap((size) => facetsAlone(cells, dimensions, size, instead));
  const keyOf = (...nodes) => nodes.sort((a, b) => a - b).join();
  const triangles = new Set(facets.filter(({ ends }) => ends.length === 3).map(({ ends }) => keyOf(...ends)));
  const covered = new Set();
  for (const { ends } of facets) {
    if (ends.length !== 4) continue;
    const [a, b, c, d] = ends; // two triangles of the cells behind it may cover a quadrilateral
    const halves = [[keyOf(a, b, c), keyOf(a, c, d)], [keyOf(a, b, d), keyOf(b, c, d)]].filter((pair) => pair.every((half) => triangles.has(half)));
    for (const half of halves.flat()) covered.add(half);
    if (halves.length) covered.add(keyOf(a, b, c, d));
  }
  return covered.size ? facets.filter(({ ends }) => !covered.has(keyOf(...ends))) : facets;
}

/** Return the facets of so many corners that belong to one cell alone, in the order of the cells. */
function facetsAlone(cells, dimensions, size, instead) {
  const kinds = FACETS[dimensions];
  const chosen = Object.fromEntries(Object.entries(kinds).map(([type, [corners]]) => [type, [...corners.keys()].filter((facet) => corners[facet].length === size)]));
  const total = cells.types.reduce((sum, type) => sum + chosen[type].length, 0);
  const [ends, sources, facets] = [new Uint32Array(size * total), new Uint32Array(total), new Uint8Array(total)];
  let number = 0;
  eachCell(cells, (type, nodes, cell) => {
    for (const facet of chosen[type]) {
      for (let k = 0; k < size; k++) ends[size * number + k] = nodes[kinds[type][0][facet][k]];
      [sources[number], facets[number]] = [cell, facet];
      number += 1;
    }
  });
  const { found, isCrowded } = alone(ends, size);
  if (isCrowded) throw new Error(`three cells share a facet, ${instead}`);
  return found.map((each) => {
    const cell = sources[each];
    const nodes = cells.nodes.subarray(cell ? cells.ends[cell - 1] : 0, cells.ends[cell]);
    const members = kinds[cells.types[cell]][1][facets[each]].map((node) => nodes[node]);
    return { ends: Array.from(ends.subarray(size * each, size * (each + 1))), members, type: cells.types[cell], nodes };
  });
}

/** Return the numbers of the facets, of so many corners in turn, that are like no other one, and whether three are alike. */
function alone(ends, size) {
  const sorted = ends.slice();
  const total = ends.length / size;
  for (let at = 0; at < sorted.length; at += size)
    for (let i = at + 1; i < at + size; i++)
      for (let j = i; j > at && sorted[j - 1] > sorted[j]; j--) [sorted[j - 1], sorted[j]] = [sorted[j], sorted[j - 1]];
  const most = ends.reduce((greatest, node) => Math.max(greatest, node), 0);
  const starts = new Uint32Array(most + 2); // of the facets by their least corner
  for (let at = 0; at < sorted.length; at += size) starts[sorted[at] + 1] += 1;
  for (let node = 0; node <= most; node++) starts[node + 1] += starts[node];
  const order = new Uint32Array(total);
  const next = starts.slice();
  for (let facet = 0; facet < total; facet++) order[next[sorted[size * facet]]++] = facet;
  const found = [];
  let isCrowded = false;
  for (let facet = 0; facet < total; facet++) {
    const [from, to] = [starts[sorted[size * facet]], starts[sorted[size * facet] + 1]];
    let alike = 0;
    for (let at = from; at < to; at++) {
      let k = 1;
      while (k < size && sorted[size * order[at] + k] === sorted[size * facet + k]) k += 1;
      if (k === size) alike += 1;
    }
    if (alike === 1) found.push(facet);
    isCrowded ||= alike > 2;
  }
  return { found, isCrowded };
}

/** Return a corner of facets that lies on an edge of another one, if there is any, as a training on mesh files refuses it. */
function hanging({ shape: [, width], data }, facets) {
  const x = (node) => data[node * width];
  const nodes = Uint32Array.from(new Set(facets.flat())).sort((a, b) => x(a) - x(b));
  const edges = new Map(facets.flatMap((ends) => ends.map((end, i) => [end, ends[(i + 1) % ends.length]].sort((a, b) => x(a) - x(b) || a - b))).map((pair) => [pair.join(), pair]));
  const along = new Float64Array(width);
  for (const [first, last] of edges.values()) {
    let square = 0;
    for (let k = 0; k < width; k++) square += (along[k] = data[last * width + k] - data[first * width + k]) ** 2;
    const reach = ON_EDGE * Math.sqrt(square);
    let [start, end] = [0, nodes.length]; // the first node that is not left of the edge
    while (start < end) {
      const middle = (start + end) >> 1;
      if (x(nodes[middle]) < x(first) - reach) start = middle + 1;
      else end = middle;
    }
    for (; start < nodes.length && x(nodes[start]) <= x(last) + reach; start++) {
      const node = nodes[start];
      let share = 0;
      for (let k = 0; k < width; k++) share += ((data[node * width + k] - data[first * width + k]) * along[k]) / square;
      if (!(share > ON_EDGE && share < 1 - ON_EDGE)) continue;
      let off = 0;
      for (let k = 0; k < width; k++) off += (data[node * width + k] - data[first * width + k] - share * along[k]) ** 2;
      if (off < reach ** 2) return node;
    }
  }
  return undefined;
}

/** Return the distance of every point to the nearest one that is marked by 1. */
export function distances({ shape: [count, width], data }, marks) {
  const targets = Uint32Array.from([...marks.keys()].filter((i) => marks[i] === 1));
  arrange(0, targets.length, 0);
  let [least, point] = [Infinity, 0];
  return Float32Array.from({ length: count }, (_, i) => {
    [least, point] = [Infinity, i * width];
    search(0, targets.length, 0);
    return Math.sqrt(least);
  });

  /** Arrange targets as a tree (Bentley 1975): the middle one divides the others by one coordinate, each half by the next. */
  function arrange(start, end, axis) {
    if (end - start < 2) return;
    const middle = (start + end) >> 1;
    targets.subarray(start, end).sort((a, b) => data[a * width + axis] - data[b * width + axis]);
    arrange(start, middle, (axis + 1) % width);
    arrange(middle + 1, end, (axis + 1) % width);
  }

  function search(start, end, axis) {
    if (start >= end) return;
    const middle = (start + end) >> 1;
    const target = targets[middle] * width;
    let square = 0;
    for (let k = 0; k < width; k++) square += (data[point + k] - data[target + k]) ** 2;
    if (square < least) least = square;
    const apart = data[point + axis] - data[target + axis];
    const next = axis + 1 === width ? 0 : axis + 1;
    if (apart < 0) search(start, middle, next);
    else search(middle + 1, end, next);
    if (apart ** 2 >= least) return;
    if (apart < 0) search(middle + 1, end, next);
    else search(start, middle, next);
  }
}
