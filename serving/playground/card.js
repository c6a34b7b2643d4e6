/** A model's card in, what the page may offer and should say about it out. No model is known here by name. */

import { readable, takesWords } from "./words.js";

/** Why the page cannot ask a model; null if it can. */
export function unsupported(card) {
  const { inputs, outputs, grid, vocabulary } = card;
  if (takesWords(card)) return readable(vocabulary) ? null : "has words that a browser cannot tell apart";
  if (inputs.length !== 1 || outputs.length !== 1) return "takes or gives several arrays";
  if (inputs[0].dtype !== "FP32" || outputs[0].dtype !== "FP32") return "takes no fields of numbers";
  if (![2, 3].includes(inputs[0].axes.length) || outputs[0].axes.length !== inputs[0].axes.length) return "has other axes than a curve or a picture";
  return grid.axes.length === inputs[0].axes.length - 1 ? null : "has no grid";
}

/** Curve or picture: the number of axes beside the batch. */
export function dimensions(card) {
  return card.grid.axes.length;
}

/**
 * The model that computes what this one is asked about from what this one answers, if it is served.
 *
 * Of such a pair the forward one is the one that is cheaper to solve classically.
 */
export function forwardOf(card, cards) {
  const [input, output] = [card.inputs[0].name, card.outputs[0].name];
  const turned = (other) => other.outputs[0].name === input && other.inputs[0].name === output;
  return cards.find((other) => turned(other) && dimensions(other) === dimensions(card) && cost(other) < cost(card));
}

/** The least published time of a classical solution, in milliseconds. */
function cost(card) {
  return Math.min(...card.classical.map((row) => row.milliseconds));
}

const AT_ONCE = 20_000; // points that are answered while one draws
const FEW = 1024; // points of a curve: more are not seen

/** The grid to begin with: the largest declared one that is answered at once. */
export function firstGrid(card) {
  const fitting = card.grid.declared.filter((points) => points <= FEW && points ** dimensions(card) <= AT_ONCE);
  return fitting.at(-1) ?? card.grid.declared[0];
}

/** Whether the fields that the model knows have no mean: its answers to others are not to be trusted. */
export function zeroMean(card) {
  return /\bzero mean\b/i.test(card.training.distribution ?? "");
}

export function periodic(card) {
  return /\bperiodic\b/i.test(card.boundary);
}

/** Points per axis as people write them: 141 × 141. */
export function gridText(shape) {
  return shape.join(" × ");
}

/** The published errors on a grid, at the nearest published level of noise (0 to 1); undefined if there are none. */
export function measured(card, shape, noise = 0) {
  return nearestNoise(card.errors.filter((row) => String(row.grid) === String(shape)), noise);
}

/** The published figures of the classical solver on a grid, or on the published grid that is nearest in size. */
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
 * Where each block of a coarser answer lies, as `fields.blockMeans` wants it.
 *
 * The card says it in words: "block j of 36 covers the cells 12j-4 to 12j+7 of the 421"; blocks are equal where it does
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
 * What to trust, in sentences.
 *
 * @param {object} card
 * @param {number[]} shape Of the input.
 * @param {{kind: string}} origin Where the input is from.
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
  const words = card.training.distribution;
  if (!words) return null;
  if (kind === "example") return { good: true, text: `The field is drawn from the training distribution: ${words}.` };
  return { good: false, text: `The field is your own. The published errors are those of: ${words}.` };
}
