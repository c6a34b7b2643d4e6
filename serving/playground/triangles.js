/**
 * The Delaunay triangles of points, by a sweep from the middle outwards (Sinclair 2010, arXiv 1602.04707).
 *
 * Points are added in the order of their distance from a first triangle. Each one is joined to the hull that it sees, and
 * edges that are not Delaunay are flipped. That takes n log n steps.
 */

const JITTER = 1e-6; // of the extent: no four points then lie on one circle or three on one line, as on regular meshes

/**
 * @param {Float64Array} x
 * @param {Float64Array} y
 * @returns {Uint32Array} Three numbers of points per triangle.
 */
export function delaunay(x, y) {
  const count = x.length;
  if (count < 3) return new Uint32Array();
  const [px, py] = [shaken(x, 1), shaken(y, 2)];
  const [first, second, third, centre] = seed(px, py);
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  const far = Float64Array.from(order, (i) => (px[i] - centre[0]) ** 2 + (py[i] - centre[1]) ** 2);
  order.sort((i, j) => far[i] - far[j]);

  const corners = new Uint32Array(6 * count); // of triangles: an edge goes from its own corner to the next one
  const twins = new Int32Array(6 * count).fill(-1); // the same edge of the other triangle; -1 on the hull
  let size = 0;
  const next = new Uint32Array(count); // the hull, in the order of the corners of its triangles
  const before = new Uint32Array(count);
  const edges = new Uint32Array(count); // the triangle's edge from a point of the hull to the next one
  const buckets = new Int32Array(Math.ceil(Math.sqrt(count))).fill(-1); // points of the hull by their angle
  const bucket = (i) => Math.floor(turn(px[i] - centre[0], py[i] - centre[1]) * buckets.length) % buckets.length;

  function link(edge, twin) {
    twins[edge] = twin;
    if (twin !== -1) twins[twin] = edge;
  }

  function add(i, j, k, a, b, c) {
    corners.set([i, j, k], size);
    [a, b, c].forEach((twin, edge) => link(size + edge, twin));
    size += 3;
    return size - 3;
  }

  /** Flip an edge, and those that this concerns, until all are Delaunay; return the edge in its place on the hull's side. */
  function legalised(start) {
    const waiting = [];
    let edge = start;
    let right = 0;
    for (;;) {
      const twin = twins[edge];
      const base = edge - (edge % 3);
      right = base + ((edge + 2) % 3);
      if (twin === -1) {
        if (!waiting.length) break;
        edge = waiting.pop();
        continue;
      }
      const other = twin - (twin % 3);
      const [left, opposite] = [base + ((edge + 1) % 3), other + ((twin + 2) % 3)];
      const [p0, p1, p2, p3] = [corners[right], corners[edge], corners[left], corners[opposite]];
      if (!inCircle(px, py, p0, p1, p2, p3)) {
        if (!waiting.length) break;
        edge = waiting.pop();
        continue;
      }
      corners[edge] = p3;
      corners[twin] = p0;
      const outer = twins[opposite];
      if (outer === -1) {
        let at = hullStart;
        do {
          if (edges[at] === opposite) {
            edges[at] = edge;
            break;
          }
          at = before[at];
        } while (at !== hullStart);
      }
      link(edge, outer);
      link(twin, twins[right]);
      link(right, opposite);
      waiting.push(other + ((twin + 1) % 3));
    }
    return right;
  }

  let hullStart = first;
  [[first, second], [second, third], [third, first]].forEach(([from, to], edge) => {
    next[from] = to;
    before[to] = from;
    edges[from] = edge;
    buckets[bucket(from)] = from;
  });
  add(first, second, third, -1, -1, -1);

  for (const i of order) {
    if (i === first || i === second || i === third) continue;
    let start = 0;
    for (let j = 0, key = bucket(i); j < buckets.length; j++) {
      start = buckets[(key + j) % buckets.length];
      if (start !== -1 && start !== next[start]) break;
    }
    start = before[start];
    let edge = start;
    while (!sees(px, py, i, edge, next[edge])) {
      edge = next[edge];
      if (edge === start) break;
    }
    if (!sees(px, py, i, edge, next[edge])) continue; // two points at one place
    let made = add(edge, i, next[edge], -1, -1, edges[edge]);
    edges[i] = legalised(made + 2);
    edges[edge] = made;
    let ahead = next[edge];
    for (let to = next[ahead]; sees(px, py, i, ahead, to); to = next[ahead]) {
      made = add(ahead, i, to, edges[i], -1, edges[ahead]);
      edges[i] = legalised(made + 2);
      next[ahead] = ahead; // has left the hull
      ahead = to;
    }
    if (edge === start)
      for (let from = before[edge]; sees(px, py, i, from, edge); from = before[edge]) {
        made = add(from, i, edge, -1, edges[edge], edges[from]);
        legalised(made + 2);
        edges[from] = made;
        next[edge] = edge;
        edge = from;
      }
    hullStart = before[i] = edge;
    next[edge] = before[ahead] = i;
    next[i] = ahead;
    buckets[bucket(i)] = i;
    buckets[bucket(edge)] = edge;
  }
  return corners.slice(0, size);
}

/** Return positions with a small shift each, of which the same comes out at every call. */
function shaken(values, salt) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const most = JITTER * (high - low || 1);
  return Float64Array.from(values, (value, i) => value + most * (((Math.imul(i + 1, 0x9e3779b1 * salt) >>> 0) / 2 ** 32) - 0.5));
}

/** Return three points for a first small triangle, with its corners in one sense of rotation, and the centre of its circle. */
function seed(x, y) {
  const middle = [x, y].map((values) => (values.reduce((low, v) => Math.min(low, v), Infinity) + values.reduce((high, v) => Math.max(high, v), -Infinity)) / 2);
  const least = (measure, ...taken) => {
    let [best, at] = [Infinity, -1];
    for (let i = 0; i < x.length; i++) {
      const value = taken.includes(i) ? Infinity : measure(i);
      if (value < best) [best, at] = [value, i];
    }
    return at;
  };
  const first = least((i) => (x[i] - middle[0]) ** 2 + (y[i] - middle[1]) ** 2);
  let second = least((i) => (x[i] - x[first]) ** 2 + (y[i] - y[first]) ** 2, first);
  const circle = (i) => circumcentre(x[first], y[first], x[second], y[second], x[i], y[i]);
  let third = least((i) => circle(i)[2], first, second);
  if (sees(x, y, first, second, third)) [second, third] = [third, second];
  return [first, second, third, circumcentre(x[first], y[first], x[second], y[second], x[third], y[third])];
}

/** Return the centre of the circle through three points, and its radius squared. */
export function circumcentre(ax, ay, bx, by, cx, cy) {
  const [dx, dy, ex, ey] = [bx - ax, by - ay, cx - ax, cy - ay];
  const [b, c, d] = [dx * dx + dy * dy, ex * ex + ey * ey, 0.5 / (dx * ey - dy * ex)];
  const [x, y] = [(ey * b - dy * c) * d, (dx * c - ex * b) * d];
  return [ax + x, ay + y, x * x + y * y];
}

/** Return whether a point lies on the outer side of an edge of the hull. */
function sees(x, y, point, from, to) {
  return (y[from] - y[point]) * (x[to] - x[point]) - (x[from] - x[point]) * (y[to] - y[point]) < 0;
}

/** Return whether the fourth point lies in the circle through the others. */
function inCircle(x, y, a, b, c, p) {
  const [dx, dy, ex, ey, fx, fy] = [x[a] - x[p], y[a] - y[p], x[b] - x[p], y[b] - y[p], x[c] - x[p], y[c] - y[p]];
  const [ap, bp, cp] = [dx * dx + dy * dy, ex * ex + ey * ey, fx * fx + fy * fy];
  return dx * (ey * cp - bp * fy) - dy * (ex * cp - bp * fx) + ap * (ex * fy - ey * fx) < 0;
}

/** Return a number from 0 to 1 that rises with the angle of a direction. */
function turn(dx, dy) {
  const share = dx / (Math.abs(dx) + Math.abs(dy));
  return (dy > 0 ? 3 - share : 1 + share) / 4;
}
