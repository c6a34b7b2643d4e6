/** What the page offers for a model and says about it, from its card. No model is known here by name. */

import { readable, takesText } from "./vocabulary.js";

/** Return why the page does not support a model; null if it does. */
export function unsupported(card) {
  const { inputs, outputs, grid, vocabulary } = card;
  if (takesText(card)) return readable(vocabulary) ? null : "has a vocabulary that a browser cannot tokenise";
  if (inputs.length !== 1 || outputs.length !== 1) return "has several inputs or outputs";
  if (inputs[0].dtype !== "FP32" || outputs[0].dtype !== "FP32") return "takes no fields of floating-point numbers";
  if (![2, 3].includes(inputs[0].axes.length) || outputs[0].axes.length !== inputs[0].axes.length) return "is neither a curve nor a picture";
  return grid.axes.length === inputs[0].axes.length - 1 ? null : "has no grid";
}

/** Return the number of axes beside the batch: 1 for a curve, 2 for a picture. */
export function dimensions(card) {
  return card.grid.axes.length;
}

/**
 * Return the served model whose output is the input of this one, and whose input is its output.
 *
 * The forward model of such a pair is the one that is cheaper to solve classically.
 */
export function forwardOf(card, cards) {
  const [input, output] = [card.inputs[0].name, card.outputs[0].name];
  const inverts = (other) => other.outputs[0].name === input && other.inputs[0].name === output;
  return cards.find((other) => inverts(other) && dimensions(other) === dimensions(card) && cost(other) < cost(card));
}

/** Return the shortest published time of a classical solution, in milliseconds. */
function cost(card) {
  return Math.min(...card.classical.map((row) => row.milliseconds));
}

const INTERACTIVE = 20_000; // points that are predicted while the user draws
const VISIBLE = 1024; // points of a curve that a screen shows

/** Return the first grid: the largest declared one that is predicted without delay. */
export function firstGrid(card) {
  const fitting = card.grid.declared.filter((points) => points <= VISIBLE && points ** dimensions(card) <= INTERACTIVE);
  return fitting.at(-1) ?? card.grid.declared[0] ?? card.grid.minimum;
}

/** Return whether the training fields have zero mean: predictions for other fields are not reliable. */
export function zeroMean(card) {
  return /\bzero mean\b/i.test(card.training.distribution ?? "");
}

export function periodic(card) {
  return /\bperiodic\b/i.test(card.boundary);
}

/** Return points per axis as text: 141 × 141. */
export function gridText(shape) {
  return shape.join(" × ");
}

/** Return the published errors on a grid, at the nearest published level of noise (0 to 1); undefined if there are none. */
export function measured(card, shape, noise = 0) {
  return nearestNoise(card.errors.filter((row) => String(row.grid) === String(shape)), noise);
}

/** Return the published figures of the classical solver on a grid, or on the published grid that is nearest in size. */
export function classical(card, shape, noise = 0) {
  const size = (grid) => grid.reduce((product, points) => product * points, 1);
  const distance = (row) => Math.abs(Math.log(size(row.grid) / size(shape)));
  const closest = Math.min(...card.classical.map(distance));
  return nearestNoise(card.classical.filter((row) => distance(row) === closest), noise);
}

function nearestNoise(rows, noise) {
  const distance = (row) => Math.abs((row.noise ?? 0) - noise);
  return rows.reduce((best, row) => (best && distance(best) <= distance(row) ? best : row), undefined);
}

/**
 * Return where each block of a coarser output lies, as `fields.blockMeans` takes it.
 *
 * The card says it in a sentence: "block j of 36 covers the cells 12j-4 to 12j+7 of the 421"; blocks are equal where it does
 * not. Grid points span the first to the last cell.
 */
export function blockExtent(card) {
  const found = /block j of \d+ covers the cells (\d+)j([+-]\d+) to \1j([+-]\d+) of the (\d+)/.exec(card.grid.points);
  if (!found) return (block, blocks) => [block / blocks, (block + 1) / blocks];
  const [size, first, last, cells] = found.slice(1).map(Number);
  const share = (edge) => (edge - 0.5) / (cells - 1);
  return (block) => [share(block * size + first), share(block * size + last + 1)];
}

/**
 * Return how far the request is covered by published errors, in sentences.
 *
 * @param {object} card
 * @param {number[]} shape Shape of the input.
 * @param {{kind: string}} origin Origin of the input.
 * @returns {{good: boolean, text: string}[]}
 */
export function trust(card, shape, origin) {
  return [onGrid(card, shape), fromDistribution(card, origin)].filter(Boolean);
}

function onGrid(card, shape) {
  const declared = new Set(shape).size === 1 && card.grid.declared.includes(shape[0]);
  const grid = gridText(shape);
  if (declared) return { good: true, text: `The grid ${grid} is declared: errors are published for it.` };
  if (measured(card, shape)) return { good: true, text: `The grid ${grid} is not declared, but errors are published for it.` };
  return { good: false, text: `The grid ${grid} is accepted and not declared (${card.grid.declared.join(", ")}): no error is published for it.` };
}

function fromDistribution(card, { kind }) {
  const distribution = card.training.distribution;
  if (!distribution) return null;
  if (kind === "example") return { good: true, text: `The field is drawn from the training distribution: ${distribution}.` };
  return { good: false, text: `The field is your own. The published errors are those of: ${distribution}.` };
}
