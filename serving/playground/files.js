/** Files of the user: inputs that are read, and arrays that are saved. */

import * as cards from "./card.js";
import { withoutPadding } from "./cloud.js";
import { stacked } from "./fields.js";
import { arraysOf } from "./mesh.js";
import { decode, encode } from "./npy.js";
import { decode as fromNpz, encode as npz } from "./npz.js";
import { short } from "./numbers.js";
import { decode as fromSafetensors, encode as safetensors } from "./safetensors.js";
import { decode as fromVtu } from "./vtu.js";

const TIMES = ["t", "time", "times", "t_coordinate", "timesteps", "time_steps", "tspan", "sim_time"]; // names of times of frames
const [UNEVEN, ROUNDED] = [1e-2, 1e-5]; // parts of a step by which two may differ, and digits of times in float32

/**
 * Return the arrays in a file by name, or the only field that it holds; of several files those of the meshes of some frames.
 *
 * @param {File[]} files
 * @param {object} card Of the model whose input it is.
 * @returns {Promise<{arrays?: Record<string, object>, field?: {shape: number[], data: Float32Array}}>}
 * @throws {Error} The file is no input of the model.
 */
export async function read(files, card) {
  const [file, ...others] = files;
  if (cards.scattered(card)) return { arrays: await readPoints(files, card) };
  if (others.length) throw new Error("several files were chosen; expected one.");
  const most = largest(card, card.grid.maximum ** cards.dimensions(card));
  const arrays = isArchive(file) ? card.inputs.length + card.outputs.length : 1;
  if (file.size > arrays * (8 * most + 20_000)) throw new Error(`it has ${file.size} bytes; the largest grid takes ${arrays * 8 * most} as float64.`);
  if (isArchive(file)) return { arrays: await arraysIn(file, card, most) };
  const { shape, data } = decode(await file.arrayBuffer(), most);
  const isBatch = shape.length > cards.dimensions(card) && shape[0] === 1;
  return { field: { shape: isBatch ? shape.slice(1) : shape, data } };
}

/** Return the most values that an array may have: on so many points, with components and frames. */
function largest(card, points) {
  const frames = (tensor) => (cards.forced(tensor) ? card.frames.maximum : cards.history(tensor));
  return points * Math.max(...[...card.inputs, ...card.outputs].map((tensor) => cards.components(tensor) * frames(tensor)));
}

function isNamed({ name }, suffix) {
  return name.toLowerCase().endsWith(suffix);
}

function isArchive(file) {
  return isNamed(file, ".npz") || isNamed(file, ".safetensors");
}

/** Return points of the user, which may come with the truth. */
async function readPoints(files, card) {
  const { maximum } = card.grid;
  const [file, ...others] = files;
  if (!others.length && isArchive(file)) return withoutPadding(await arraysIn(file, card, largest(card, maximum)), card);
  const history = card.frames?.history ?? 1;
  if (!files.every((each) => isNamed(each, ".vtu"))) throw new Error("expected a file .vtu, .npz or .safetensors; `petrov predict` reads other mesh files.");
  if (files.length !== history) throw new Error(`${files.length} meshes were chosen; expected ${history === 1 ? "one" : `${history} files .vtu, of as many frames`}.`);
  const ordered = files.toSorted((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
  const meshes = await Promise.all(ordered.map(async (one) => fromVtu(await one.arrayBuffer(), maximum)));
  checkTimes(meshes.map(({ time }) => time), card);
  const each = meshes.map((mesh) => arraysOf(mesh, card));
  const last = each.at(-1);
  if (history === 1) return last;
  const place = ({ [cards.COORDINATES]: points }) => String(points.data);
  if (!each.every((arrays) => place(arrays) === place(last))) throw new Error("the meshes have other points; expected one mesh in all frames.");
  return { ...last, ...Object.fromEntries(card.frames.states.map((name) => [name, stacked(each.map((arrays) => arrays[name]))])) };
}

/**
 * Return the arrays of an archive, of one sample; those that the model does not know are null.
 *
 * Its times are those of the model's frames, where several are read from it.
 */
async function arraysIn(file, card, most) {
  const known = [...card.inputs, ...(card.parameters ?? []), ...card.outputs];
  const isKnown = (name) => known.some((one) => one.name === name);
  const isSeveral = (card.frames?.history ?? 1) > 1 || [...card.inputs, ...cards.parameters(card)].some(cards.forced);
  const isTime = (name) => isSeveral && !isKnown(name) && TIMES.includes(name.toLowerCase());
  const fromArchive = isNamed(file, ".npz") ? fromNpz : fromSafetensors;
  const arrays = await fromArchive(await file.arrayBuffer(), most, (name) => isKnown(name) || isTime(name));
  for (const [name, array] of Object.entries(arrays)) if (isTime(name) && array.shape.length === 1) checkTimes([...array.data], card);
  return withoutBatch(arrays, card);
}

/** Return arrays of a batch of one sample without its axis. */
function withoutBatch(arrays, { inputs: [lead] }) {
  const { shape } = arrays[lead.name] ?? { shape: [] };
  if (shape.length !== lead.axes.length || shape[0] !== 1) return arrays;
  const single = (array) => (array?.shape[0] === 1 ? { ...array, shape: array.shape.slice(1) } : array);
  return Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, single(array)]));
}

/** Refuse times of frames that are not one step of the model apart; none are said where one is not. */
function checkTimes(times, card) {
  if (!card.frames || !times.every(Number.isFinite)) return;
  const { step } = card.frames;
  const rounded = ROUNDED * Math.max(...times.map(Math.abs));
  times.slice(1).forEach((time, i) => {
    const apart = time - times[i];
    if (Math.abs(apart - step) > UNEVEN * step + rounded) throw new Error(`its frames at ${short(times[i], step)} and ${short(time, step)} are ${short(apart)} apart; expected ${short(step)}, one step of the model.`);
  });
}

/** Save one array as .npy, unless it is one of several, and those as the program of the page in this language reads them. */
export function save(arrays, model, language, several = false) {
  const [[name, only], ...others] = Object.entries(arrays);
  if (others.length === 0 && !several) return download(encode(only), `${name}.npy`);
  if (language === "curl") return download(safetensors(arrays), `${model}.safetensors`);
  download(npz(arrays), `${model}.npz`);
}

function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a busy browser may begin to read it late
}
