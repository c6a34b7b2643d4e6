/** The arithmetic on fields that the page does itself. A field is `{shape, data}`, with the axes of the grid last. */

/** Return a field of one value. */
export function full(shape, value) {
  return { shape, data: new Float32Array(product(shape)).fill(value) };
}

export function copy(field) {
  return { ...field, data: field.data.slice() };
}

/** Return the least and the largest finite value; [0, 0] if there is none. */
export function range(...fields) {
  let [low, high] = [Infinity, -Infinity];
  for (const { data } of fields)
    for (const value of data)
      if (Number.isFinite(value)) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
  return low <= high ? [low, high] : [0, 0];
}

/** Return fields of one shape as one with a further first axis. */
export function stacked(fields) {
  const [{ shape, data }] = fields;
  const joined = new Float32Array(fields.length * data.length);
  fields.forEach((each, i) => joined.set(each.data, i * data.length));
  return { shape: [fields.length, ...shape], data: joined };
}

/** Return a field, or one with frames before, with another value where a mask of its grid is not 1; as it is without a mask. */
export function within(field, mask, outside = NaN) {
  if (!mask) return field;
  return { ...field, data: field.data.map((value, i) => (mask.data[i % mask.data.length] === 1 ? value : outside)) };
}

export function sameShape(one, other) {
  return String(one.shape) === String(other.shape);
}

export function difference(one, other) {
  return { ...one, data: one.data.map((value, i) => value - other.data[i]) };
}

/** Return |found - truth| / |truth| in the Euclidean norm. */
export function relativeL2(found, truth) {
  let [above, below] = [0, 0];
  truth.data.forEach((value, i) => {
    above += (found.data[i] - value) ** 2;
    below += value ** 2;
  });
  return Math.sqrt(above / below);
}

/** Return |found - truth| / |truth - its mean| of a field of so many components, whose axis is the first one or the `last`. */
export function ofDeviation(found, truth, components = 1, last = false) {
  const size = truth.data.length / components;
  const part = (i) => (last ? i % components : Math.floor(i / size));
  const means = new Float64Array(components);
  truth.data.forEach((value, i) => (means[part(i)] += value / size));
  let [above, below] = [0, 0];
  truth.data.forEach((value, i) => {
    above += (found.data[i] - value) ** 2;
    below += (value - means[part(i)]) ** 2;
  });
  return Math.sqrt(above / below);
}

/** Return a part of a field that shares its memory: one component, and of a box one plane. */
export function plane({ shape, data }, dimensions, component, slice = 0) {
  const shown = shape.slice(-Math.min(dimensions, 2));
  const [grid, size] = [product(shape.slice(-dimensions)), product(shown)];
  const start = component * grid + (dimensions === 3 ? slice * size : 0);
  return { shape: shown, data: data.subarray(start, start + size) };
}

/** Return one frame of a trajectory, which shares its memory. */
export function frame({ shape: [frames, ...shape], data }, index) {
  const size = product(shape);
  return index < frames ? { shape, data: data.subarray(index * size, (index + 1) * size) } : null;
}

export function product(shape) {
  return shape.reduce((size, points) => size * points, 1);
}

/**
 * Return the field on another grid: the nearest point's value, so that a drawing keeps its edges, or on a curve `linear`.
 *
 * `lie` says of every axis where its points are: "left" in the cells of a period, in the middles of "cells", else at both ends.
 */
export function resized(field, grid, lie = [], linear = grid.length === 1) {
  const old = field.shape.slice(-grid.length);
  if (String(old) === String(grid)) return field;
  const result = full([...field.shape.slice(0, -grid.length), ...grid], 0);
  const [size, oldSize] = [product(grid), product(old)];
  for (let start = 0, from = 0; start < result.data.length; start += size, from += oldSize) {
    const part = field.data.subarray(from, from + oldSize);
    for (let i = 0; i < size; i++) result.data[start + i] = linear ? between(part, scaled(i, grid[0], old[0], lie[0])) : part[nearest(i, grid, old, lie)];
  }
  return result;
}

/** Return the index, on an old grid, of the point that is nearest to point `i` of a new one. */
function nearest(i, grid, old, lie) {
  let [index, stride] = [0, 1];
  for (let axis = grid.length - 1, rest = i; axis >= 0; axis--) {
    index += stride * (Math.round(scaled(rest % grid[axis], grid[axis], old[axis], lie[axis])) % old[axis]);
    rest = Math.floor(rest / grid[axis]);
    stride *= old[axis];
  }
  return index;
}

/** Return the position of point `i` of `points` among `others` on the same axis: of a period up to the first one again. */
function scaled(i, points, others, lie) {
  if (lie === "left") return (i * others) / points;
  if (lie === "cells") return Math.min(others - 1, Math.max(0, ((i + 0.5) * others) / points - 0.5));
  return points === 1 ? 0 : (i * (others - 1)) / (points - 1);
}

/** Return where point `i` of `points` is on its axis, as a share of the axis; `lie` as for `resized`. */
export function share(i, points, lie) {
  return { cells: (i + 0.5) / points, left: i / points }[lie] ?? i / Math.max(1, points - 1);
}

function between(data, at) {
  const left = Math.floor(at);
  return at === left ? data[left] : data[left] + (at - left) * (data[(left + 1) % data.length] - data[left]);
}

/**
 * Return means over blocks, for a model whose output has a coarser grid than its input.
 *
 * @param {{shape: number[], data: Float32Array}} field On any grid.
 * @param {number[]} shape Blocks per axis.
 * @param {(block: number, blocks: number) => [number, number]} extent Where a block begins and ends on its axis, as
 *     shares of the range from the first to the last grid point.
 */
export function blockMeans(field, shape, extent) {
  const [down, across] = shape.map((blocks, axis) => members(field.shape[axis], blocks, extent));
  const [columns, result] = [field.shape[1], full(shape, 0)];
  down.forEach((rows, r) =>
    across.forEach((cells, c) => {
      let sum = 0;
      for (const row of rows) for (const cell of cells) sum += field.data[row * columns + cell];
      result.data[r * shape[1] + c] = sum / (rows.length * cells.length);
    }),
  );
  return result;
}

const SAMPLES = 12; // per block and axis

/** Return the points nearest to evenly spread samples of each block, those outside the grid left out. */
function members(points, blocks, extent) {
  return Array.from({ length: blocks }, (_, block) => {
    const [begin, end] = extent(block, blocks);
    const spread = Array.from({ length: SAMPLES }, (_, k) => begin + ((end - begin) * (k + 0.5)) / SAMPLES);
    const inside = spread.filter((share) => share > -0.5 / (points - 1) && share < 1 + 0.5 / (points - 1));
    return inside.map((share) => Math.min(points - 1, Math.max(0, Math.round(share * (points - 1)))));
  });
}

/** Return arrays of one shape as one with a batch axis in front. */
export function batch(many) {
  const [{ shape, data }] = many;
  const joined = { shape: [many.length, ...shape], data: new Float32Array(many.length * data.length) };
  many.forEach((field, i) => joined.data.set(field.data, i * data.length));
  return joined;
}

/** Return the standard deviation at each point over a batch. */
export function deviation({ shape: [count, ...shape], data }) {
  const result = full(shape, 0);
  const size = result.data.length;
  const mean = (of) => Array.from({ length: count }, (_, k) => of(k)).reduce((sum, value) => sum + value, 0) / count;
  result.data.forEach((_, i) => {
    const middle = mean((k) => data[k * size + i]);
    result.data[i] = Math.sqrt(mean((k) => (data[k * size + i] - middle) ** 2));
  });
  return result;
}

/** Return `field + level * unit * xi` with independent standard normal xi. */
export function noisy(field, unit, level, seed) {
  const uniform = generator(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { shape: field.shape, data: field.data.map((value, i) => value + level * unit.data[i] * normal()) };
}

/** Return discs of one value on a ground of another; on a curve, bumps up to the value in the manner of `bump`. */
export function blobs(shape, ground, value, seed, manner) {
  const uniform = generator(seed);
  const field = full(shape, ground);
  for (let count = 5 + Math.floor(4 * uniform()); count > 0; count--) {
    const centre = [uniform(), uniform()];
    const radius = 0.05 + 0.13 * uniform();
    if (shape.length === 1) bump(field, centre[0], radius / 2, (value - ground) * (2 * uniform() - 1), manner);
    else disc(field, centre, [radius * (0.6 + 0.8 * uniform()), radius], value);
  }
  return field;
}

/** Give an ellipse one value; centre and radii (row, column) are shares of the sides. */
export function disc(field, [row, column], [tall, wide], value) {
  const [rows, columns] = field.shape;
  const [i, j] = [row * (rows - 1), column * (columns - 1)];
  const [di, dj] = [Math.max(0.5, tall * (rows - 1)), Math.max(0.5, wide * (columns - 1))];
  for (let r = Math.max(0, Math.ceil(i - di)); r <= Math.min(rows - 1, i + di); r++)
    for (let c = Math.max(0, Math.ceil(j - dj)); c <= Math.min(columns - 1, j + dj); c++)
      if (((r - i) / di) ** 2 + ((c - j) / dj) ** 2 <= 1) field.data[r * columns + c] = value;
}

/**
 * Raise a curve by a Gaussian; centre and reach are shares of its length.
 *
 * @param {{periodic: boolean, keepsMean: boolean, lie: string}} manner Whether the curve ends where it begins, whether the
 *     rest of it gives way, so that the mean stays, and where its points are, as for `resized`.
 */
export function bump(field, centre, reach, height, { periodic, keepsMean, lie }) {
  const [points] = field.shape;
  const rise = field.data.map((_, i) => {
    const apart = Math.abs(share(i, points, lie) - centre);
    const distance = periodic ? Math.min(apart, 1 - apart) : apart;
    return Math.exp(-0.5 * (distance / reach) ** 2);
  });
  const mean = keepsMean ? rise.reduce((sum, value) => sum + value, 0) / points : 0;
  rise.forEach((value, i) => (field.data[i] += (height * (value - mean)) / (1 - mean)));
}

/** Return a source of uniform numbers in [0, 1) from a seed: mulberry32. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
