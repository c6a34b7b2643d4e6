/** What the page offers for a model and says about it, from its card. No model is known here by name. */

import { readable, takesText } from "./vocabulary.js";

/** Return why the page does not support a model; null if it does. */
export function unsupported(card) {
  const { inputs, outputs, grid, vocabulary } = card;
  if (takesText(card)) return readable(vocabulary) ? null : "has a vocabulary that a browser cannot tokenise";
  const tensors = [...inputs, ...outputs];
  if (vocabulary) return "takes several sequences";
  if (tensors.some(({ dtype }) => dtype !== "FP32")) return "takes no fields of floating-point numbers";
  if (![1, 2, 3].includes(grid.axes.length)) return `has ${grid.axes.length} axes`;
  const other = tensors.find(({ axes }) => String(axes.filter((name) => name !== COMPONENT && name !== FRAME).slice(1)) !== String(grid.axes));
  return other ? `has no picture for ${other.name} (${other.axes.join(", ")})` : null;
}

export const COORDINATES = "coordinates"; // the first input of a model on points
export const COUNTS = "counts"; // and a parameter of it, for samples that are padded
const COMPONENT = "component"; // the axis of a vector field, before those of the grid; on points behind them
const FRAME = "frame"; // the axis of a trajectory's frames, before it

/** Return whether every sample has points of its own, of a mesh or a cloud. */
export function scattered({ inputs: [first] }) {
  return first.name === COORDINATES && first.axes.at(-1) === COMPONENT;
}

/** Return whether a model's outputs are trajectories. */
export function rollsOut(card) {
  return Boolean(card.frames);
}

/** Return the time of a frame, the first of which follows one step after the input. */
export function timeOf(card, frame) {
  return card.frames.step * (frame + 1);
}

/** Return the number of axes that are shown: 1 for curves, 2 for pictures, 3 for pictures of a plane. */
export function dimensions(card) {
  return scattered(card) ? 2 : card.grid.axes.length;
}

/**
 * Return the scalar fields of tensors, as panels show them: one per component of a vector field.
 *
 * @returns {{tensor: object, component: number, name: string}[]} `name` is that of the tensor, in few words, and of a vector the component.
 */
export function channels(tensors) {
  return tensors.flatMap((tensor) =>
    Array.from({ length: components(tensor) }, (_, component) => {
      const part = tensor.components?.[component] ?? String(component + 1);
      if (components(tensor) === 1) return { tensor, component, name: label(tensor) };
      const whole = label(tensor).length > WIDE ? label({ name: tensor.name }) : label(tensor); // so that the component is seen
      return { tensor, component, name: `${whole}, ${part}` };
    }),
  );
}

const WIDE = 24; // letters of a name that fit a panel, together with a component

/** Return the number of components of a field: 1 of a scalar one. */
export function components({ axes, shape }) {
  const at = axes.indexOf(COMPONENT);
  return at < 0 ? 1 : shape[at];
}

/** Return a tensor's shape without the batch, on a grid or a number of points. */
export function shapeOn(tensor, grid) {
  if (tensor.axes.at(-1) === COMPONENT) return [...grid, components(tensor)];
  return [...(tensor.axes.includes(COMPONENT) ? [components(tensor)] : []), ...grid];
}

/** Return what a tensor or a parameter is, in words. */
export function label({ name, meaning }) {
  const text = meaning || name;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return units in brackets, or nothing for a dimensionless quantity. */
export function inUnits({ units }) {
  return units && units !== "1" ? ` (${units})` : "";
}

/** Return the parameters: numbers that go with the fields of a request. */
export function parameters(card) {
  return (card.parameters ?? []).filter(({ name }) => !scattered(card) || name !== COUNTS); // of one sample without padding
}

/** Return whether the points of every sample are in space. */
export function spatial(card) {
  return scattered(card) && components(card.inputs[0]) === 3;
}

/** Return the inputs with a panel: of points the coordinates only where there are no others. */
export function pictured(card) {
  return card.inputs.filter(({ name }) => !scattered(card) || name !== COORDINATES || card.inputs.length === 1);
}

/** Return the inputs that a request must have: the others have a default. */
export function required(card) {
  return card.inputs.filter((tensor) => (tensor.default ?? null) === null);
}

/** Return whether the problem has a classical solver, and with it a sampler of inputs. */
export function hasSolver(card) {
  return (card.classical ?? []).length > 0;
}

/** Return whether a classical solver may solve the problem: that of a trajectory has no published figures. */
export function solvable(card) {
  return hasSolver(card) || rollsOut(card);
}

/** Return width over height of a picture: by the lengths of its axes, or by its points where they are not known. */
export function aspect(card, shape) {
  const lengths = card.grid.lengths?.length ? card.grid.lengths : shape;
  const [height, width] = lengths.slice(-2);
  return Math.min(MOST_UNEQUAL, Math.max(1 / MOST_UNEQUAL, width / height));
}

/** Return the axes that are shown with their lengths, which are 0 where they are not known; none of points. */
export function axes(card) {
  const { grid } = card;
  return scattered(card) ? [] : grid.axes.map((name, i) => ({ name, length: grid.lengths?.[i] ?? 0 }));
}

const MOST_UNEQUAL = 3; // beyond it a picture is too narrow to draw on

/**
 * Return the served model whose output is the input of this one, and whose input is its output.
 *
 * The forward model of such a pair is the one that is cheaper to solve classically.
 */
export function forwardOf(card, cards) {
  const inverts = (other) => isPair(other) && other.outputs[0].name === card.inputs[0].name && required(other)[0].name === card.outputs[0].name;
  if (!isPair(card)) return undefined;
  return cards.find((other) => inverts(other) && dimensions(other) === dimensions(card) && cost(other) < cost(card));
}

/** Return whether a model maps one scalar field to one scalar field. */
function isPair(card) {
  return required(card).length === 1 && channels([...required(card), ...card.outputs]).length === 2;
}

/** Return the shortest published time of a classical solution, in milliseconds. */
function cost(card) {
  return Math.min(...(card.classical ?? []).map((row) => row.milliseconds));
}

const INTERACTIVE = 20_000; // points that are predicted while the user draws
const VISIBLE = 1024; // points of a curve that a screen shows

/** Return the shapes of the grids that errors are published for. */
export function grids({ grid }) {
  return [...grid.declared.map((points) => grid.axes.map(() => points)), ...(grid.unequal ?? [])];
}

/** Return the first grid: the largest declared one that is predicted without delay. */
export function firstGrid(card) {
  const size = (shape) => shape.reduce((product, points) => product * points, 1);
  const fitting = grids(card).filter((shape) => Math.max(...shape) <= VISIBLE && size(shape) <= INTERACTIVE);
  return fitting.at(-1) ?? grids(card)[0] ?? card.grid.axes.map(() => card.grid.minimum);
}

/** Return the grid with so many points on the first axis, and the proportions of the first declared grid. */
export function gridOf(card, points) {
  const [base] = [...grids(card), card.grid.axes.map(() => 1)];
  const within = (size) => Math.min(card.grid.maximum, Math.max(card.grid.minimum, size));
  return base.map((size) => within(Math.round((points * size) / base[0])));
}

/** Return whether the training fields have zero mean: predictions for other fields are not reliable. */
export function zeroMean(card) {
  return /\bzero mean\b/i.test(card.training.distribution ?? "");
}

export function periodic({ grid, boundary }) {
  return grid.boundaries?.length ? grid.boundaries[0] === "periodic" : /\bperiodic\b/i.test(boundary ?? "");
}

/** Return points per axis as text: 141 × 141. */
export function gridText(shape) {
  return shape.join(" × ");
}

/** Return the published errors on a grid, at the nearest published level of noise (0 to 1); undefined if there are none. */
export function measured(card, shape, noise = 0) {
  return nearestNoise((card.errors ?? []).filter((row) => scattered(card) || String(row.grid) === String(shape)), noise);
}

/** Return the published figures of the classical solver on a grid, or on the published grid that is nearest in size. */
export function classical(card, shape, noise = 0) {
  if (!hasSolver(card)) return undefined;
  const size = (grid) => grid.reduce((product, points) => product * points, 1);
  const distance = (row) => Math.abs(Math.log(size(row.grid) / size(shape)));
  const closest = Math.min(...(card.classical ?? []).map(distance));
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
 * Return what the card warns of and how far the request is covered by published errors, in sentences.
 *
 * @param {object} card
 * @param {number[]} shape Shape of the input.
 * @param {{kind: "sample" | "example" | "own", index?: number}} origin Origin of the input.
 * @returns {{good: boolean, text: string}[]}
 */
export function trust(card, shape, origin) {
  const warnings = (card.warnings ?? []).map((text) => ({ good: false, text }));
  return [...warnings, onGrid(card, shape), fromDistribution(card, origin)].filter(Boolean);
}

function onGrid(card, shape) {
  if (scattered(card)) return null; // any number of points
  const grid = gridText(shape);
  const declared = grids(card).map(gridText);
  if (declared.includes(grid)) return { good: true, text: `The grid ${grid} is declared: errors are published for it.` };
  if (measured(card, shape)) return { good: true, text: `The grid ${grid} is not declared, but errors are published for it.` };
  return { good: false, text: `The grid ${grid} is accepted and not declared (${declared.join(", ")}): no error is published for it.` };
}

function fromDistribution(card, { kind, index }) {
  const distribution = card.training.distribution;
  if (kind === "sample") return { good: true, text: `The input is test sample ${index + 1}: the model was neither trained nor selected on it.` };
  if (!distribution) return null;
  if (kind === "example") return { good: true, text: `The field is drawn from the training distribution: ${distribution}.` };
  return { good: false, text: `The field is your own. The published errors are those of: ${distribution}.` };
}
