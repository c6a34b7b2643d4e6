/** What a model takes and returns, and what that is called, from its card. No model is known here by name. */

import { sign } from "./equation.js";
import { readable, takesText } from "./vocabulary.js";

/** Return why the page does not support a model; null if it does. */
export function unsupported(card) {
  const { inputs, outputs, grid, vocabulary } = card;
  if (takesText(card)) return readable(vocabulary) ? null : "has a vocabulary that a browser cannot tokenise";
  const tensors = [...inputs, ...outputs.filter(({ scalar }) => !scalar)];
  if (vocabulary) return "takes several sequences";
  if (tensors.some(({ dtype }) => dtype !== "FP32")) return "takes no fields of floating-point numbers";
  if (![1, 2, 3].includes(grid.axes.length)) return `has ${grid.axes.length} axes`;
  const other = tensors.find(({ axes }) => String(axes.filter((name) => ![COMPONENT, FRAME, HISTORY].includes(name)).slice(1)) !== String(grid.axes));
  return other ? `has no picture for ${other.name} (${other.axes.join(", ")})` : null;
}

export const COORDINATES = "coordinates"; // the first input of a model on points
export const [BOUNDARY, DISTANCE] = ["boundary", "distance"]; // inputs that follow from the cells of a mesh
const [AREA, NORMAL] = ["area", "boundary_normal"]; // and others, which the page takes from the data of a mesh alone
export const COUNTS = "counts"; // and a parameter of it, for samples that are padded
const COMPONENT = "component"; // the axis of a vector field, before those of the grid; on points behind them
const FRAME = "frame"; // the axis of a trajectory's frames, before it
const HISTORY = "history"; // the axis of the frames of a state that a rollout starts from, in their place

/** Return whether every sample has points of its own, of a mesh or a cloud. */
export function scattered({ inputs: [first] }) {
  return first?.name === COORDINATES && first.axes.at(-1) === COMPONENT;
}

/** Return whether points of a boundary can be moved: no input is derived from them that the page cannot derive anew. */
export function bendable(card) {
  return scattered(card) && !spatial(card) && !card.inputs.some(({ name }) => name === AREA || name === NORMAL);
}

/** Return whether a model takes parameters alone, so that a request says the grid of the outputs. */
export function takesGrid({ inputs }) {
  return inputs.length === 0;
}

/** Return whether anything is on the grid. */
export function gridded(card) {
  return !takesGrid(card) || outputFields(card).length > 0;
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
 * @returns {{tensor: object, component: number, name: string}[]} `name` is that of the quantity, and of a vector the component.
 */
export function channels(tensors) {
  return tensors.flatMap((tensor) =>
    Array.from({ length: components(tensor) }, (_, component) => {
      const part = tensor.components?.[component] ?? String(component + 1);
      return { tensor, component, name: components(tensor) === 1 ? title(tensor) : `${title(tensor)}, ${part}` };
    }),
  );
}

/** Return the number of components of a field: 1 of a scalar one. */
export function components({ axes, shape }) {
  const at = axes.indexOf(COMPONENT);
  return at < 0 ? 1 : shape[at];
}

/** Return a tensor's shape without the batch, on a grid or a number of points, and with some frames if it has their axis. */
export function shapeOn(tensor, grid, frames = 1) {
  const lead = forced(tensor) ? [frames] : tensor.axes.includes(HISTORY) ? [history(tensor)] : [];
  if (tensor.axes.at(-1) === COMPONENT) return [...lead, ...grid, components(tensor)];
  return [...lead, ...(tensor.axes.includes(COMPONENT) ? [components(tensor)] : []), ...grid];
}

/** Return how many frames of a state a rollout starts from; 1 of what is no state. */
export function history({ axes, shape }) {
  const at = axes.indexOf(HISTORY);
  return at < 0 ? 1 : shape[at];
}

/** Return whether a tensor has an axis of frames before that of the points. */
export function timed(tensor) {
  return forced(tensor) || Boolean(tensor.axes?.includes(HISTORY));
}

/** Return whether an input or a parameter has a value for every frame. */
export function forced({ axes }) {
  return Boolean(axes?.includes(FRAME));
}

/** Return the outputs that are fields. */
export function outputFields(card) {
  return card.outputs.filter(({ scalar }) => !scalar);
}

/** Return the outputs that are numbers, or one per component. */
export function numbers(card) {
  return card.outputs.filter(({ scalar }) => scalar);
}

/** Return what a parameter is, in words, with its sign in mathematics: Viscosity ν. */
export function label({ name, meaning }) {
  const isSign = sign(meaning || name) !== undefined;
  if (isSign && (!meaning || sign(name) === sign(meaning))) return sign(name);
  const text = isSign ? `${name.replaceAll("_", " ")} ${meaning}` : meaning || name;
  return capital(text.replace(/^(\p{L}+ )([a-z]+)$/iu, (_, first, last) => first + (sign(last) ?? last)));
}

const CUT = /,|;|\(| (?:at|on|in|of|to|from|over|along|for|after|before|averaged|measured|by|per) /i; // where a description begins
const LONGEST = 28; // letters of a name

/** Return the name of a quantity: what its meaning begins with, before it says where, when and how; else its name on the wire. */
export function title({ name, meaning }) {
  const [start] = (meaning || "").split(CUT, 1);
  const text = start.length <= LONGEST && /^[\p{L}]/u.test(start) ? start.trim() : name.replaceAll("_", " ");
  return text.length === 1 ? text : capital(text);
}

/** Return the rest of a quantity's meaning, where it is short and in words. */
export function rest(tensor) {
  const text = (tensor.meaning || "").slice(title(tensor).length).replace(/^[,; ]+/, "");
  const inWords = text.length <= 60 && !/[_/]|\.\.\.|^\(|^of /.test(text);
  return (tensor.meaning || "").toLowerCase().startsWith(title(tensor).toLowerCase()) && inWords ? text : "";
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return whether two tensors are the same quantity, perhaps at other times: it has one colour map and one scale. */
export function sameQuantity(one, other) {
  return title(one) === title(other) && one.units === other.units;
}

/** Return a text of the service with the names on the screen in place of those on the wire, and indices in words. */
export function inWords(card, text) {
  const named = [...card.inputs, ...parameters(card), ...card.outputs].map((tensor) => [tensor.name, tensor.axes?.length > 1 ? title(tensor) : label(tensor), axesOf(card, tensor)]);
  const known = text.replace(/\b(error|solve)_(bound|estimate)\b/g, "$1 $2");
  return named.reduce((found, [name, shown, axes]) => {
    const wire = new RegExp(`(^|[\\s"“(])${name}\\[([\\d,]+)\\]|^${name}\\b|"${name}"`, "g");
    return found.replace(wire, (_, before = "", index) => `${before}${shown}${index ? ` at ${place(axes, index.split(","))}` : ""}`);
  }, known);
}

function axesOf(card, { axes = [] }) {
  return axes.slice(1);
}

/** Return an index in words: row 4, column 7. */
function place(axes, index) {
  return index.map((number, i) => `${axes[axes.length - index.length + i] ?? "sample"} ${number}`).join(", ");
}

/** Return units in brackets, or nothing for a dimensionless quantity. */
export function inUnits({ units }) {
  return units && units !== "1" ? ` (${units})` : "";
}

/** Return the parameters: numbers that go with the fields of a request. */
export function parameters(card) {
  return (card.parameters ?? []).filter(({ name }) => !scattered(card) || name !== COUNTS); // of one sample without padding
}

/** Return the parameters as they are entered: one with components number by number, named with their index. */
export function entries(card) {
  return parameters(card).flatMap((one) => (one.components ?? []).map((part, i) => ({ ...one, name: `${one.name}.${i}`, meaning: `${label(one)}, ${part}` })).concat(one.components?.length ? [] : one));
}

/** Return the numbers of parameters in arrays, by the names of `entries`. */
export function entered(card, arrays) {
  const known = parameters(card).filter(({ name }) => arrays[name]);
  return Object.fromEntries(known.flatMap(({ name, components }) => (components?.length ? [...arrays[name].data].map((value, i) => [`${name}.${i}`, value]) : [[name, arrays[name].data[0]]])));
}

/** Return the arrays of a request for numbers by the names of `entries`; parameters without any are left out. */
export function sent(card, values) {
  const numbers = ({ name, components }) => (components?.length ? components.map((_, i) => values[`${name}.${i}`]) : [values[name]]);
  const given = parameters(card).filter((one) => numbers(one).some((value) => value !== undefined));
  return Object.fromEntries(given.map((one) => [one.name, { shape: one.components?.length ? [one.components.length] : [], data: Float32Array.from(numbers(one)) }]));
}

/** Return the arrays of parameters that have a value for every frame, by name. */
export function series(card, arrays) {
  return Object.fromEntries(parameters(card).filter((each) => forced(each) && arrays[each.name]?.data.length > 1).map(({ name }) => [name, arrays[name]]));
}

/** Return whether the points of every sample are in space. */
export function spatial(card) {
  return scattered(card) && components(card.inputs[0]) === 3;
}

/** Return the inputs with a panel: of points those that do not follow from the mesh or, where there are none, the mesh itself. */
export function pictured(card) {
  if (!scattered(card)) return card.inputs;
  const others = card.inputs.filter(({ name }) => name !== COORDINATES && (spatial(card) || !follows(name)));
  return others.length ? others : card.inputs.slice(0, 1);
}

function follows(name) {
  return name === BOUNDARY || name === DISTANCE;
}

/** Return whether a tensor is shown as a mesh: the coordinates of a plane. */
export function isMesh(card, { name }) {
  return scattered(card) && !spatial(card) && name === COORDINATES;
}

/** Return the inputs that a request must have: the others have a default. */
export function required(card) {
  return card.inputs.filter((tensor) => (tensor.default ?? null) === null);
}

/** Return whether figures of a classical solver are published, and there is a sampler of inputs with it. */
export function hasSolver(card) {
  return (card.classical ?? []).length > 0;
}

/** Return whether the service has a classical solver of the model's problem, beside which it is compared. */
export function solvable({ card, solver }) {
  return solver && !isMethod(card);
}

/** Return whether nothing was trained: the model is the classical method itself, which is not compared with itself. */
export function isMethod({ training }) {
  return training?.fields === 0;
}

/** Return width over height of a picture: by the lengths of its axes, or by its points where they are not known. */
export function aspect(card, shape) {
  const lengths = card.grid.lengths?.length ? card.grid.lengths : shape;
  const [height, width] = lengths.slice(-2);
  return Math.min(MOST_UNEQUAL, Math.max(1 / MOST_UNEQUAL, width / height));
}

/**
 * Return the axes of a grid that are shown, with their ends, which are not known of some, and where their points lie between
 * these; those of points are `cloud.axes`.
 */
export function axes(card) {
  const { grid } = card;
  const isKnown = (name, i) => grid.lengths?.[i] && !grid.guessed?.includes(`${name}.length`);
  return scattered(card) ? [] : grid.axes.map((name, i) => ({ name, ends: isKnown(name, i) ? sides(card, i) : [], points: lie(card, name) }));
}

/** Return the values at the sides of an axis, which may fall: about the first and the last point of the training data, if known. */
function sides(card, i) {
  const { axes: names, ends, lengths: { [i]: length } } = card.grid;
  const [first = 0, last = 0] = ends?.[i] ?? [];
  const share = Math.abs(last - first) / length;
  if (!(share > 0.5 && share < 1.01)) return [0, length]; // not known, or in other units
  const across = last < first ? -length : length;
  const before = lie(card, names[i]) === "cells" ? (across - (last - first)) / 2 : 0;
  return [first - before, first - before + across];
}

/** Return where the points of an axis lie, by the card's formula: "cells" (in their middles), "left", or "nodes" at both ends. */
function lie({ grid }, name) {
  const [, formula] = new RegExp(`(?:^|; )${name}: (.*?)(?:;|$)`).exec(grid.points) ?? [null, grid.points];
  if (/\(i \+ 1\/2\)/.test(formula)) return "cells";
  return /x_i = i[^(]*\/n\b/.test(formula) ? "left" : "nodes";
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
  return required(card).length === 1 && !numbers(card).length && channels([...required(card), ...card.outputs]).length === 2;
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
