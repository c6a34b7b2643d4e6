/** Which model is shown, by the address or a choice, and how the page is laid out for it. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { ember, tide } from "./colours.js";
import { typeset } from "./equation.js";
import * as published from "./published.js";
import { failed, forget } from "./requests.js";
import { drawExample, fetching, openSample, showSampleNumber } from "./samples.js";
import { clear, fillOptions, play, setAuto } from "./show.js";
import { Turner } from "./space.js";
import { at, figures, inputs, outputs, reader, state, status, times } from "./state.js";
import { takesText } from "./vocabulary.js";

const WIDEST_REACH = "80"; // of a move of points, per cent of the picture's width

/** Name the release in the footer, and what it computes on. */
async function showRelease(device) {
  at("device").textContent = device ? `on ${inWords(device)}` : "";
  try {
    at("release").textContent = (await api.server()).version;
  } catch {
    // without a key the service does not say
  }
}

/** Return a device as a reader calls it, such as `NVIDIA L4 (22 GiB)`. */
function inWords({ kind, name, count, memory_bytes: memory }) {
  if (kind === "cpu") return "the processor";
  return `${count > 1 ? `${count} x ` : ""}${name} (${Math.round(memory / 2 ** 30)} GiB)`;
}

export async function load() {
  try {
    const { models: listed, device } = await api.models();
    const known = await Promise.all(listed.map(({ name }) => api.model(name)));
    state.models = known.filter(({ card }) => !cards.unsupported(card));
    listLeftOut(known.filter(({ card }) => cards.unsupported(card)));
    fillOptions(at("model"), state.models.map(({ name }) => [name, name]));
    const before = modelOf(state.model?.name);
    state.leftOut = known.filter(({ card }) => cards.unsupported(card));
    status.clear();
    if (state.models.length) await choose(before ?? addressed() ?? first(), Boolean(before));
    showRelease(device);
  } catch (error) {
    failed(error, { schedule: (pause) => setTimeout(load, pause) });
  }
}

function modelOf(wanted) {
  return state.models.find(({ name }) => name === wanted);
}

/** Return the model that is shown where the address names none. */
function first() {
  return state.models.find(({ card }) => cards.dimensions(card) === 2) ?? state.models[0];
}

/** Return the model that the address names, such as `#plate`; undefined, with a message, where there is none. */
function addressed() {
  const name = unescaped(location.hash.slice(1));
  const found = modelOf(name);
  if (!name || found) return found;
  const other = state.leftOut.find((model) => model.name === name);
  const near = state.models.find((model) => model.name.startsWith(name.slice(0, 3)));
  status.note(other ? `The model “${name}” is not shown here: it ${cards.unsupported(other.card)}` : `There is no model “${name}”${near ? `; did you mean “${near.name}”?` : ""}`);
  return undefined;
}

/** Return a text without escapes; one with a wrong escape, such as a lone `%`, as it is. */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Follow the address: a link, Back and Forward, or a chosen model. */
export function follow() {
  status.clear(true);
  const wanted = location.hash.length > 1 ? addressed() : first();
  if (!wanted || wanted === state.model) return;
  state.samples = null;
  choose(wanted);
}

function listLeftOut(models) {
  at("left-out").hidden = models.length === 0;
  at("left-out").textContent = `Not shown here: ${models.map(({ name, card }) => `${name} (${cards.unsupported(card)})`).join(", ")}.`;
}

/** Open a model; if it is the present one, the input stays. */
async function choose(model, same = false) {
  const sample = same && !takesText(model.card) ? inputs.sample : null;
  state.model = model;
  at("model").value = model.name;
  const { equation, boundary, task, title } = model.card;
  const [whole, name, rest] = /^(.*?): (.*)$/.exec(title) ?? [title, title, ""];
  Object.assign(at("title"), { textContent: name, title: whole });
  at("subtitle").textContent = rest;
  document.title = `${name} – Petrov playground`; // by which tabs and the history tell models apart
  at("equation").replaceChildren(...(equation ? typeset(equation) : []), [equation && " · ", boundary].filter(Boolean).join("") || (equation ? "" : (task ?? "")));
  fillOptions(at("version"), [["", `newest (${model.version})`], ...[...model.versions].reverse().map((version) => [version, version])]);
  if (same && model.versions.includes(state.version)) at("version").value = state.version;
  else state.version = null;
  const sequence = takesText(model.card);
  for (const id of ["stage", "grid-label"]) at(id).hidden = sequence;
  at("sequence").hidden = !sequence;
  if (sequence) return void openText(same);
  setForward(same && !state.forward ? null : partner());
  showSampleNumber(null);
  if (sample) inputs.set(sample);
  else await begin();
}

/** Show a first input: a new one of the training distribution, or a test sample where there is no sampler. */
function begin() {
  return cards.hasSolver(state.model.card) && cards.solvable(state.model) ? drawExample(cards.firstGrid(state.model.card)) : openSample(0);
}

/** Show the text instead of the drawing. */
function openText(same) {
  fetching.abort();
  forget();
  play(false);
  at("points-label").hidden = true;
  showWorth(published.worthOfText(state.model.card));
  reader.open(state.model.card, same);
}

export function showWorth({ kind, text }) {
  at("worth").textContent = text;
  at("worth").dataset.kind = kind;
}

/** Return the served model that computes the input of the present one, or null. */
export function partner() {
  return cards.forwardOf(state.model.card, state.models.map(({ card }) => card)) ?? null;
}

/** Return the card of the model whose input is drawn. */
export function drawnCard() {
  return state.forward ?? state.model.card;
}

/** Draw the input of `card`, solve for it, and send the solution to the model; null: draw the model's own input. */
export function setForward(card) {
  state.forward = card;
  forget();
  const isCurve = cards.dimensions(state.model.card) === 1;
  const layout = isCurve ? "curve" : card ? "inverse" : "forward";
  at("stage").dataset.layout = layout;
  const inverts = Boolean(partner());
  inputs.dark = state.dark;
  // The model is given the solution alone, and takes the other inputs of the equation at their defaults.
  const drawn = card ? { ...card, inputs: cards.required(card) } : state.model.card;
  inputs.open(drawn, cards.scattered(state.model.card) ? movesAbout() : { curve: "drag it", inverse: "the truth: draw it", forward: "draw it" }[layout], inverts && !card ? ember : tide);
  figures.open(state.model.card);
  outputs.open(state.model.card, layout, state.dark, inverts);
  at("stage").dataset.outputs = outputs.rows.length;
  if (cards.spatial(state.model.card)) for (const { view } of outputs.panels) new Turner(view.surface, () => inputs.turned());
  times.open(state.model.card, state.dark);
  at("stage").toggleAttribute("data-times", !at("times").hidden);
  moveTools();
  play(false);
  at("frame-row").hidden = !cards.rollsOut(state.model.card);
  at("frame").value = 1;
  describe(isCurve, layout === "inverse");
  setAuto();
  clear();
}

function movesAbout() {
  if (cards.spatial(state.model.card)) return "drag to turn it";
  return cards.bendable(state.model.card) ? "drag the boundary" : "of the sample";
}

/** Move the tools to where there is room: under the inputs, or beside the summary if the inputs are the taller column. */
export function moveTools() {
  const home = at(inputs.drawings.length > outputs.rows.length ? "below" : "side");
  if (at("tools").parentElement !== home) home.append(at("tools"));
}

function describe(isCurve, isInverse) {
  const isTouched = matchMedia("(hover: none)").matches; // by a finger, beside which there are neither keys nor a right button
  const pull = isTouched ? "Drag the curve." : "Drag the curve, or use the arrow keys: up and down pull it.";
  const keys = "the right button draws the other value. Arrow keys move the brush, Space paints, x swaps the values.";
  const paint = `Draw on the picture; ${isTouched ? "the buttons below it choose the value." : keys}`;
  const isFixed = cards.scattered(state.model.card);
  const isSpatial = cards.spatial(state.model.card);
  const move = "Drag a point of the boundary: points within reach follow, with their values. Space chooses a point, arrow keys move it. Upload a mesh of your own as .vtu, or arrays as .npz.";
  const choose = "Choose a test sample, or upload a mesh of your own as .vtu, or arrays as .npz. The points stay where they are: inputs follow from them.";
  const turn = "Drag a picture, or use the arrow keys, to turn the points. Upload a mesh of your own as .vtu, or arrays as .npz.";
  const takesGrid = cards.takesGrid(state.model.card);
  const enter = "Enter numbers, or take those of a test sample.";
  at("hint").textContent = takesGrid ? enter : isSpatial ? turn : isFixed ? (cards.bendable(state.model.card) ? move : choose) : isCurve ? pull : paint;
  for (const part of [at("value-row"), at("swatches")]) part.hidden = isCurve || isFixed || takesGrid;
  for (const part of [at("blobs"), at("fill")]) part.hidden = isFixed || takesGrid;
  at("grid-label").hidden = isFixed || !cards.gridded(state.model.card);
  const isStill = isFixed && !cards.bendable(state.model.card);
  at("undo").hidden = isStill;
  at("size-row").hidden = isStill || takesGrid;
  at("upload").hidden = takesGrid;
  if (isFixed !== (at("size").max === WIDEST_REACH)) Object.assign(at("size"), isFixed ? { max: WIDEST_REACH, value: 40 } : { max: 30, value: 9 });
  inputs.showSize();
  at("file").accept = `${isFixed ? ".vtu" : ".npy"},.npz,.safetensors`;
  for (const id of ["noise-row", "upload-reading"]) at(id).hidden = !isInverse;
  at("mean-row").hidden = !isCurve || takesGrid;
  at("mean").checked = cards.zeroMean(state.model.card);
  at("size-name").textContent = isCurve || isFixed ? "Reach" : "Brush";
  at("fill").textContent = isCurve ? "Flatten" : "Fill";
  at("blobs").textContent = isCurve ? "Bumps" : "Blobs";
  at("random-row").hidden = !cards.hasSolver(state.model.card);
  at("predict-name").textContent = cards.isMethod(state.model.card) ? "Method" : "Network";
  at("solver-row").hidden = !cards.solvable(state.model);
}
