/** Files of the user: inputs that are read, and arrays that are saved. */

import * as cards from "./card.js";
import { withoutPadding } from "./cloud.js";
import { stacked } from "./fields.js";
import { arraysOf } from "./mesh.js";
import { decode, encode } from "./npy.js";
import { decode as fromNpz, encode as npz } from "./npz.js";
import { encode as safetensors } from "./safetensors.js";
import { decode as fromVtu } from "./vtu.js";

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
  const most = card.grid.maximum ** cards.dimensions(card) * Math.max(...card.inputs.map(cards.components));
  const arrays = file.name.endsWith(".npz") ? card.inputs.length : 1;
  if (file.size > arrays * (8 * most + 20_000)) throw new Error(`it has ${file.size} bytes; the largest grid takes ${arrays * 8 * most} as float64.`);
  if (file.name.endsWith(".npz")) return { arrays: await fromNpz(await file.arrayBuffer(), most) };
  const { shape, data } = decode(await file.arrayBuffer(), most);
  const isBatch = shape.length > cards.dimensions(card) && shape[0] === 1;
  return { field: { shape: isBatch ? shape.slice(1) : shape, data } };
}

/** Return points of the user, which may come with the truth. */
async function readPoints(files, card) {
  const { maximum } = card.grid;
  const width = Math.max(...[...card.inputs, ...card.outputs].map(cards.components));
  const [file, ...others] = files;
  if (!others.length && file.name.endsWith(".npz")) return withoutPadding(await fromNpz(await file.arrayBuffer(), maximum * width), card);
  const history = card.frames?.history ?? 1;
  if (!files.every(({ name }) => name.endsWith(".vtu"))) throw new Error("expected a file .vtu or .npz; `petrov predict` reads other mesh files.");
  if (files.length !== history) throw new Error(`${files.length} meshes were chosen; expected ${history === 1 ? "one" : `${history} files .vtu, of as many frames`}.`);
  const ordered = files.toSorted((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
  const each = await Promise.all(ordered.map(async (one) => arraysOf(await fromVtu(await one.arrayBuffer(), maximum), card)));
  const last = each.at(-1);
  if (history === 1) return last;
  const place = ({ [cards.COORDINATES]: points }) => String(points.data);
  if (!each.every((arrays) => place(arrays) === place(last))) throw new Error("the meshes have other points; expected one mesh in all frames.");
  return { ...last, ...Object.fromEntries(card.frames.states.map((name) => [name, stacked(each.map((arrays) => arrays[name]))])) };
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
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
