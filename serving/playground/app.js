/** The page: it sends what the user draws or writes to the service, and shows the responses as pictures. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { withoutPadding } from "./cloud.js";
import { darkness, ember, tide } from "./colours.js";
import { typeset } from "./equation.js";
import * as fields from "./fields.js";
import { TimePictures } from "./times.js";
import { read, save } from "./files.js";
import { Inputs } from "./inputs.js";
import { duration, percent } from "./numbers.js";
import { Outputs } from "./outputs.js";
import { program } from "./program.js";
import { badges, quality, show as showBadges } from "./quality.js";
import { Reader } from "./reader.js";
import { errors, measure as measureOf, sentence } from "./result.js";
import { Scheduler } from "./scheduler.js";
import { Status } from "./status.js";
import { Turner } from "./space.js";
import { takesText } from "./vocabulary.js";

const PAUSE = 350; // milliseconds without a change before the classical solver is called
const QUICK = 1000; // milliseconds: slower solvers are called only on demand
const FRAME_MILLISECONDS = 120; // between two frames of a trajectory that is played
const WIDEST_REACH = "80"; // of a move of points, per cent of the picture's width
const DEVIATION_FIELDS = 12; // which estimate the deviation to within a fifth

const at = (id) => document.getElementById(id);

/** The state of the page; everything that is shown is derived from it. */
const state = {
  models: [], // those that the page supports, each with its card
  leftOut: [], // the others
  model: null,
  forward: null, // the card of the model that computes the input of `model`, when the truth is drawn
  version: null, // null: the newest
  samples: null, // the number of test samples, once it is known
  revision: 0, // counts changes of the request
  solved: null, // the classical solution of the forward model, and the input that it belongs to
  result: null, // the prediction, its input, and its `revision`
  classical: null, // the classical solution, likewise
  labelled: null, // the response to a text
  language: "curl",
  dark: false,
};

const inputs = new Inputs({ changed, moved: readAll, sliced: showResults });
const outputs = new Outputs(at("outputs"));
const times = new TimePictures(at("times"));
const predictor = new Scheduler(predict, (error) => failed(error, predictor));
const solver = new Scheduler(solve, (error) => failed(error, solver));
const labeller = new Scheduler(label, (error) => failed(error, labeller));
const reader = new Reader(at("sequence"), textChanged);
const status = new Status(load, () => state.model?.name);

// The models

/** Name the release in the footer. */
async function showRelease() {
  try {
    at("release").textContent = (await api.server()).version;
  } catch {
    // without a key the service does not say
  }
}

async function load() {
  try {
    const listed = await api.models();
    const known = await Promise.all(listed.map(({ name }) => api.model(name)));
    state.models = known.filter(({ card }) => !cards.unsupported(card));
    listLeftOut(known.filter(({ card }) => cards.unsupported(card)));
    fillOptions(at("model"), state.models.map(({ name }) => [name, name]));
    const before = modelOf(state.model?.name);
    state.leftOut = known.filter(({ card }) => cards.unsupported(card));
    status.clear();
    if (state.models.length) await choose(before ?? addressed() ?? first(), Boolean(before));
    showRelease();
  } catch (error) {
    failed(error);
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
  const name = decodeURIComponent(location.hash.slice(1));
  const found = modelOf(name);
  if (!name || found) return found;
  const other = state.leftOut.find((model) => model.name === name);
  const near = state.models.find((model) => model.name.startsWith(name.slice(0, 3)));
  status.show(new Error(other ? `The model “${name}” is not shown here: it ${cards.unsupported(other.card)}` : `There is no model “${name}”${near ? `; did you mean “${near.name}”?` : ""}`));
  return undefined;
}

/** Follow the address: a link, Back and Forward, or a chosen model. */
function follow() {
  status.clear();
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
  return cards.hasSolver(state.model.card) && cards.solvable(state.model.card) ? drawExample(cards.firstGrid(state.model.card)) : openSample(0);
}

/** Show the text instead of the drawing. */
function openText(same) {
  fetching.abort();
  forget();
  at("points-label").hidden = true;
  showWorth(cards.worthOfText(state.model.card));
  reader.open(state.model.card, same);
}

function showWorth({ kind, text }) {
  at("worth").textContent = text;
  at("worth").dataset.kind = kind;
}

/** Return the served model that computes the input of the present one, or null. */
function partner() {
  return cards.forwardOf(state.model.card, state.models.map(({ card }) => card)) ?? null;
}

/** Return the card of the model whose input is drawn. */
function drawnCard() {
  return state.forward ?? state.model.card;
}

/** Draw the input of `card`, solve for it, and send the solution to the model; null: draw the model's own input. */
function setForward(card) {
  state.forward = card;
  forget();
  const isCurve = cards.dimensions(state.model.card) === 1;
  const layout = isCurve ? "curve" : card ? "inverse" : "forward";
  at("stage").dataset.layout = layout;
  const inverts = Boolean(partner());
  inputs.dark = state.dark;
  inputs.open(drawnCard(), cards.scattered(state.model.card) ? movesAbout() : { curve: "drag it", inverse: "the truth: draw it", forward: "draw it" }[layout], inverts && !card ? ember : tide);
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
}

function movesAbout() {
  return cards.spatial(state.model.card) ? "drag to turn it" : "drag the boundary";
}

/** Move the tools to where there is room: under the inputs, or beside the summary if the inputs are the taller column. */
function moveTools() {
  const isTaller = inputs.drawings.length > outputs.rows.length;
  at(isTaller ? "below" : "side").append(at("tools"));
}

function describe(isCurve, isInverse) {
  const pull = "Drag the curve, or use the arrow keys: up and down pull it.";
  const paint = "Draw on the picture; the right button draws the other value. Arrow keys move the brush, Space paints, x swaps the values.";
  const isFixed = cards.scattered(state.model.card);
  const isSpatial = cards.spatial(state.model.card);
  const move = "Drag a point of the boundary: points within reach follow, with their values. Space chooses a point, arrow keys move it. Upload a mesh of your own as .vtu, or arrays as .npz.";
  const turn = "Drag a picture, or use the arrow keys, to turn the points. Upload a mesh of your own as .vtu, or arrays as .npz.";
  at("hint").textContent = isSpatial ? turn : isFixed ? move : isCurve ? pull : paint;
  for (const part of [at("value-row"), at("swatches")]) part.hidden = isCurve || isFixed;
  for (const part of [at("blobs"), at("fill"), at("grid-label")]) part.hidden = isFixed;
  for (const part of [at("undo"), at("size-row")]) part.hidden = isSpatial;
  if (isFixed !== (at("size").max === WIDEST_REACH)) Object.assign(at("size"), isFixed ? { max: WIDEST_REACH, value: 40 } : { max: 30, value: 9 });
  inputs.showSize();
  at("file").accept = isFixed ? ".vtu,.npz" : ".npy,.npz";
  for (const id of ["noise-row", "upload-reading"]) at(id).hidden = !isInverse;
  at("mean-row").hidden = !isCurve;
  at("mean").checked = cards.zeroMean(state.model.card);
  at("size-name").textContent = isCurve || isFixed ? "Reach" : "Brush";
  at("fill").textContent = isCurve ? "Flatten" : "Fill";
  at("blobs").textContent = isCurve ? "Bumps" : "Blobs";
  at("random-row").hidden = !cards.hasSolver(state.model.card);
  at("predict-name").textContent = cards.isMethod(state.model.card) ? "Method" : "Network";
  at("solver-row").hidden = !cards.solvable(state.model.card);
}

// Samples and grids

let fetching = new AbortController();

/** Show an input of the training distribution. */
async function drawExample(grid) {
  const seed = Number(at("seed").value);
  const card = drawnCard();
  await fetched(async (signal) => {
    const field = await api.example(card.model, seed, grid[0], signal);
    const [{ name }] = cards.required(card);
    return { fields: { [name]: field }, parameters: {}, origin: { kind: "example", seed }, truth: null };
  });
}

/** Show a test sample with its truth. */
async function openSample(index) {
  if (state.forward) setForward(null);
  const { card } = state.model;
  await fetched(async (signal) => {
    const { arrays: padded, count } = await api.sample(card.model, index, signal);
    const arrays = withoutPadding(padded, card);
    const numbers = Object.entries(named(cards.parameters(card), arrays)).map(([name, { data }]) => [name, data[0]]);
    state.samples = count;
    return { fields: withoutDefaults(named(card.inputs, arrays), card), parameters: Object.fromEntries(numbers), origin: { kind: "sample", index }, truth: named(card.outputs, arrays) };
  });
}

/** Return the arrays of these tensors by name, as far as there are any. */
function named(tensors, arrays) {
  return Object.fromEntries(tensors.filter(({ name }) => arrays[name]).map(({ name }) => [name, arrays[name]]));
}

/** Return the fields without those that have their default everywhere. */
function withoutDefaults(found, card) {
  const isUsual = ({ name, default: usual }) => (usual ?? null) !== null && found[name]?.data.every((value) => value === usual);
  return Object.fromEntries(Object.entries(found).filter(([name]) => !card.inputs.some((tensor) => tensor.name === name && isUsual(tensor))));
}

/** Show the sample that a function fetches, or a constant one where there is none, unless another is fetched meanwhile. */
async function fetched(fetch) {
  fetching.abort();
  fetching = new AbortController();
  const { signal } = fetching;
  busyInputs(true);
  try {
    const sample = await fetch(signal).catch((error) => {
      if (error.kind !== "no-example" || cards.scattered(state.model.card)) throw error;
      return inputs.constant(cards.firstGrid(state.model.card));
    });
    if (!signal.aborted) inputs.set(sample);
  } catch (error) {
    if (!signal.aborted) failed(error);
  } finally {
    if (!signal.aborted) busyInputs(false);
  }
}

function busyInputs(is) {
  for (const { panel } of inputs.drawings) panel.figure.setAttribute("aria-busy", is);
}

async function chooseGrid(grid) {
  if (inputs.sample?.origin.kind === "example") await drawExample(grid);
  else if (inputs.sample) inputs.set(inputs.resized(grid), false);
}

/** Offer the declared grids and the present one. */
function showGrids(shape) {
  const { card } = state.model;
  const declared = cards.grids(card).map(cards.gridText);
  const isOwn = !declared.includes(cards.gridText(shape)) && new Set(shape).size > 1;
  const offered = [...declared, ...(isOwn ? [cards.gridText(shape)] : [])];
  fillOptions(at("grid"), [...offered.map((text) => [text, text]), ["other", "other …"]]);
  at("grid").value = offered.includes(cards.gridText(shape)) ? cards.gridText(shape) : "other";
  Object.assign(at("points"), { min: card.grid.minimum, max: card.grid.maximum, value: shape[0] });
  at("points-label").hidden = at("grid").value !== "other" || cards.scattered(card);
}

function showSampleNumber(index) {
  const of = state.samples ? ` of ${state.samples}` : "";
  at("sample").textContent = index === null ? "Test sample" : `Test sample ${index + 1}${of}`;
}

function stepSample(by) {
  const index = inputs.sample?.origin.index;
  const count = state.samples ?? 1;
  openSample(index === undefined ? 0 : (index + by + count) % count);
}

// Requests and responses

/** Handle a change of the request: predict at once, and solve classically after a pause. */
function changed() {
  const { sample } = inputs;
  if (!sample) return;
  state.revision += 1;
  showGrids(inputs.grid);
  showSampleNumber(sample.origin.index ?? null);
  predictor.schedule();
  solver.cancel();
  outputs.busy("classical", false);
  outputs.age("classical", "difference");
  at("solve").disabled = false;
  at("solve-hint").textContent = solverHint();
  compare(sample.truth);
  showFacts();
}

/** Make room for what a prediction is compared with, where there is a truth or is going to be one, and for its figures. */
function compare(truth) {
  const isComing = cards.solvable(state.model.card) && at("auto").checked;
  const is = Boolean(truth) || state.forward !== null || isComing;
  at("stage").dataset.truth = is ? "known" : "none";
  outputs.comparing = is;
  at("error").parentElement.hidden = !is;
  const isSolved = state.classical?.revision === state.revision;
  at("classical-figure").hidden = !cards.solvable(state.model.card) || !(isSolved || isComing);
}

/** Handle a change of the text, or of the model or version that it is sent to. */
function textChanged() {
  labeller.cancel();
  state.labelled = null;
  at("download-output").disabled = true;
  showProgram();
  if (reader.tokens) labeller.schedule(PAUSE / 2);
}

async function label(signal) {
  const { model, version } = state;
  const found = await api.predict(model.name, version, { [model.card.inputs[0].name]: reader.tokens }, signal);
  state.labelled = { ...found, output: found.outputs[model.card.outputs[0].name] };
  status.clear();
  reader.show(state.labelled);
  at("download-output").disabled = false;
}

async function predict(signal) {
  const { revision, model } = state;
  const { sample } = inputs;
  const drawn = inputs.request();
  const request = state.forward ? { [model.card.inputs[0].name]: await measure(drawn, signal) } : drawn;
  const { outputs: found, headers, ...times } = await api.predict(model.name, state.version, request, signal);
  state.result = { outputs: named(model.card.outputs, found), quality: quality(headers), ...times, revision, request, drawn, sample, truth: sample.truth };
  status.clear();
  showResults();
  if (at("auto").checked && revision === state.revision) solver.restart(PAUSE); // afterwards, so that neither time includes the other
}

/** Return a simulated measurement of the solution for a drawn field: noise in units of the solution's usual deviation. */
async function measure(drawn, signal) {
  const { forward } = state;
  const [{ name }] = forward.outputs;
  if (state.solved?.sample !== inputs.sample) state.solved = { sample: inputs.sample, field: (await api.reference(forward.model, drawn, signal)).outputs[name] };
  const { field } = state.solved;
  const level = noise();
  if (level === 0) return field;
  outputs.busy("measured", !state.unit);
  state.unit ??= await usualDeviation(forward, signal);
  outputs.busy("measured", false);
  return fields.noisy(field, fields.resized(state.unit, field.shape), level, Number(at("seed").value) + 1);
}

/** Return the deviation of a model's classical solutions per point, estimated from examples on its smallest declared grid. */
async function usualDeviation(card, signal) {
  const [[points]] = cards.grids(card);
  const [{ name }] = cards.required(card);
  const examples = [];
  for (let seed = 0; seed < DEVIATION_FIELDS; seed++) examples.push(await api.example(card.model, seed, points, signal));
  const { outputs: solved } = await api.reference(card.model, { [name]: fields.batch(examples) }, signal);
  return fields.deviation(solved[card.outputs[0].name]);
}

async function solve(signal) {
  const { revision, model } = state;
  const drawn = inputs.request();
  const request = state.forward ? { [model.card.inputs[0].name]: await measure(drawn, signal) } : drawn;
  outputs.busy("classical", true);
  at("solve-hint").textContent = "solving …";
  try {
    const { outputs: solved, headers, ...times } = await api.reference(model.name, request, signal);
    state.classical = { outputs: named(model.card.outputs, solved), ...times, revision };
  } finally {
    if (!signal.aborted) outputs.busy("classical", false);
  }
  at("solve-hint").textContent = solverHint();
  showResults();
}

function noise() {
  return state.forward ? Number(at("noise").value) / 100 : 0;
}

function forget() {
  predictor.cancel();
  solver.cancel();
  labeller.cancel();
  Object.assign(state, { solved: null, result: null, classical: null, labelled: null, unit: null });
}

function failed(error, source = null) {
  if (error.busy && source) {
    const seconds = error.wait ?? 2;
    const text = `${error.title.toLowerCase()}; retry in ${seconds} s`;
    if (source === labeller) reader.say(text);
    else at("solve-hint").textContent = text;
    source.schedule(1000 * seconds);
  } else if (source === solver && error.kind === "no-reference") {
    at("auto").checked = false;
    at("solve").disabled = true;
    at("solve-hint").textContent = error.message;
  } else {
    if (error.status === 401 || error.status === 403) openKey(true);
    if (source === solver) at("solve-hint").textContent = "";
    if (source === predictor) discardResult();
    status.show(error, (text) => (state.model ? cards.inWords(drawnCard(), text) : text));
  }
}

/** Mark everything that is shown as outdated. */
function discardResult() {
  state.result = null;
  outputs.age("measured", "prediction", "difference");
  at("sentence").textContent = "";
  showResults();
}

// What is shown

function showResults() {
  const result = state.result && framed(state.result);
  const solved = state.classical?.revision === state.revision ? framed(state.classical) : null;
  const truth = result && truthOf(result, solved);
  compare(truth);
  outputs.slice = inputs.slice;
  if (result) showPrediction(result, truth);
  if (solved && state.forward) outputs.showSolution(solved.outputs, baseRange());
  times.show(state.result, state.classical?.revision === state.result?.revision ? state.classical : null);
  showError(result, truth);
  const { card } = state.model;
  const coverage = cards.coverage(card, inputs.grid, noise(), result?.frame?.index ?? null);
  showBadges(at("quality"), result ? badges(result.quality, coverage) : []);
  if (result?.frame) showMeasured(cards.measured(card, inputs.grid, noise()), result.frame);
  showTime("predict", result);
  showTime("classical", solved);
  at("download-output").disabled = !result;
  announce(result, solved, truth);
}

/** Return a result whose outputs and truth are those of the chosen frame, if they are trajectories. */
function framed(result) {
  const { card } = state.model;
  if (!cards.rollsOut(card)) return result;
  const frames = result.outputs[card.outputs[0].name].shape[0];
  const index = Math.min(Number(at("frame").value), frames) - 1;
  const time = Number(cards.timeOf(card, index).toPrecision(6));
  Object.assign(at("frame"), { max: frames });
  at("frame-shown").textContent = `${index + 1} of ${frames}, time ${time}`;
  const chosen = (found) => Object.fromEntries(Object.entries(found ?? {}).map(([name, field]) => [name, fields.frame(field, index)]).filter(([, field]) => field));
  const quality = result.quality && { ...result.quality, estimate: card.rollout?.[index]?.error_estimate };
  return { ...result, quality, outputs: chosen(result.outputs), truth: chosen(result.truth), frame: { index, frames, time } };
}

/** Show one frame after the other until the last one, or stop. */
function play(is) {
  clearInterval(playing);
  playing = 0;
  at("play").textContent = is ? "Stop" : "Play";
  at("play").setAttribute("aria-pressed", is);
  if (!is) return;
  const control = at("frame");
  if (control.value === control.max) control.value = 1;
  playing = setInterval(() => {
    control.value = Number(control.value) + 1;
    showResults();
    if (control.value === control.max) play(false);
  }, FRAME_MILLISECONDS);
}

let playing = 0;

/** Return what a prediction is compared with: what was drawn, the truth of a test sample, or the classical solution. */
function truthOf({ drawn, truth, outputs: found, revision }, solved) {
  if (state.forward) return { outputs: drawnTruth(drawn, found), kind: "drawn" };
  if (truth && Object.keys(truth).length) return { outputs: truth, kind: "sample" };
  return solved?.revision === revision ? { outputs: solved.outputs, kind: "solved" } : null;
}

/** Return the drawn field on the grid of the output. */
function drawnTruth(drawn, found) {
  const [{ name }] = state.model.card.outputs;
  const truth = drawn[name];
  return { [name]: fields.sameShape(truth, found[name]) ? truth : fields.blockMeans(truth, found[name].shape, cards.blockExtent(state.model.card)) };
}

function showPrediction({ outputs: found, request, revision, sample, frame }, truth) {
  const { card } = state.model;
  if (state.forward) outputs.showMeasurement(request[card.inputs[0].name]);
  if (!truth && revision === state.revision && !at("auto").checked) outputs.clear("not solved yet", "");
  const whole = scalesOf(card.outputs);
  if (!state.forward) inputs.share(scalesOf(card.inputs));
  const when = frame ? `, time ${frame.time}` : "";
  outputs.show(found, truth, state.forward ? {} : sample.fields, { base: state.forward ? baseRange() : null, whole, when });
}

/**
 * Return ranges by name for tensors: those of all frames of a trajectory and of the same quantity among inputs and outputs, so
 * that a colour means one value in all pictures.
 */
function scalesOf(tensors) {
  const { card } = state.model;
  const { outputs: found, sample } = state.result;
  const all = [...card.inputs.map((tensor) => [tensor, sample.fields[tensor.name]]), ...card.outputs.map((tensor) => [tensor, found[tensor.name]])];
  const ranges = tensors.map((tensor) => {
    const alike = all.filter(([other, field]) => field && (other === tensor || cards.sameQuantity(other, tensor)));
    const isShared = alike.length > 1 || (cards.rollsOut(card) && cards.channels([tensor]).length === 1);
    return isShared && alike.length ? [tensor.name, fields.range(...alike.map(([, field]) => field))] : null;
  });
  return Object.fromEntries(ranges.filter(Boolean));
}

/** Return the range of the drawn field's picture. */
function baseRange() {
  const [{ base, field }] = inputs.drawings;
  const [low, high] = fields.range(field);
  return [Math.min(base[0], low), Math.max(base[1], high)];
}

function showError(result, truth) {
  const { name, value, note } = measureOf(state.model.card, result, truth, inputs.grid, noise());
  at("error-name").textContent = name;
  at("error").textContent = value;
  at("error-note").textContent = note;
}

/** Show the processor time of a result and, beside it, how long its way took. */
function showTime(id, result) {
  const time = result?.processor ?? result?.milliseconds;
  const way = result && `${duration(result.milliseconds)} round trip`;
  at(`${id}-time`).textContent = result ? duration(time) : "–";
  at(`${id}-note`).textContent = !result ? "" : result.processor === undefined ? "round trip" : `processor time; ${way}`;
}

/** Show the published figures for this request. */
function showFacts() {
  const { card } = state.model;
  const row = cards.measured(card, inputs.grid, noise());
  const worth = cards.worth(card, inputs.grid, noise());
  showWorth(worth);
  outputs.poor = worth.kind === "poor" ? worth.error : null;
  at("measured-error").dataset.kind = worth.kind;
  showMeasured(row);
  const trust = cards.trust(card, inputs.grid, inputs.sample.origin);
  if (state.version && state.version !== card.version) trust.unshift({ good: false, text: `Version ${state.version} is in use; the figures here are those of version ${card.version}.` });
  at("trust").replaceChildren(...trust.map(({ good, text }) => item(text, good ? "good" : "care")));
  showProgram();
}

/** Show the published error for this grid and noise, of a trajectory for the frame. */
function showMeasured(row, frame = null) {
  const own = frame && state.model.card.rollout?.[frame.index];
  at("measured-error").textContent = row ? percent((own ?? row).relative_l2) : "–";
  const between = row && Math.abs((row.noise ?? 0) - noise()) > 1e-9 ? `, the nearest measured level to ${percent(noise())}` : "";
  const level = row && (row.noise || between) ? ` with ${percent(row.noise ?? 0)} of noise${between}` : "";
  const which = own ? `, frame ${frame.index + 1}` : `${level}${row?.worst ? `, worst ${percent(row.worst)}` : ""}`;
  at("measured-note").textContent = row ? `mean of ${row.fields} test fields${which}` : "not published for this grid";
}

function item(text, kind) {
  const made = document.createElement("li");
  made.textContent = text;
  made.dataset.kind = kind;
  return made;
}

let announcing = 0;

/** Announce the result in a sentence once it has stopped changing: screen readers read it out. */
function announce(result, solved, truth) {
  clearTimeout(announcing);
  if (!result) return;
  const text = sentence(state.model.card, { result, solved, truth, inverse: state.forward !== null, noise: noise() });
  announcing = setTimeout(() => (at("sentence").textContent = text), 500);
}

function setAuto() {
  const { card } = state.model;
  const usual = cards.classical(card, cards.firstGrid(card));
  at("auto").checked = !state.forward && cards.solvable(card) && usual !== undefined && usual.milliseconds < QUICK;
  at("solve").disabled = false;
  outputs.clear("not solved yet", state.forward ? "" : "compared when it is solved");
}

/** Return how the solver solves, and how long a slow one takes. */
function solverHint() {
  const usual = cards.classical(state.model.card, inputs.grid, noise());
  if (!usual) return "";
  const slow = usual.milliseconds < QUICK ? "" : `; took ${duration(usual.milliseconds)} on ${cards.gridText(usual.grid)} points in the published measurement`;
  return `${usual.method ?? ""}${slow}`.replace(/^; /, "");
}

function showProgram() {
  at("program").firstElementChild.textContent = program(state.language, takesText(state.model.card) ? textRequest() : fieldRequest());
}

/** Return the input as that of a program. */
function fieldRequest() {
  const { model, version, forward } = state;
  const { origin, fields: drawn } = inputs.sample;
  return {
    model: model.name,
    version,
    inputs: forward ? [model.card.inputs[0].name] : Object.keys(drawn),
    parameters: inputs.parameters.usual ? {} : inputs.parameters.values,
    outputs: model.card.outputs.map(({ name }) => name),
    points: inputs.grid[0],
    origin: forward ? { kind: "own" } : origin,
    classical: cards.hasSolver(model.card) && cards.solvable(model.card) && !forward,
  };
}

/** Return the text as the input of a program. */
function textRequest() {
  const { model, version } = state;
  return { model: model.name, version, inputs: [model.card.inputs[0].name], text: reader.area.value.trim(), tokens: [...(reader.tokens?.data ?? [])] };
}

function readAll(position) {
  for (const panel of panels()) panel.read(position);
}

function panels() {
  return [...inputs.drawings.map(({ panel }) => panel), ...outputs.panels];
}

function fillOptions(select, options) {
  const made = options.map(([value, text]) => new Option(text, value));
  select.replaceChildren(...made);
  select.disabled = options.length === 0;
}

// Files, keys, tabs

/** Show an input of the user; one that cannot be read, or that the service refuses, leaves the present input. */
async function upload(file, asReading) {
  const { model } = state;
  try {
    const { card } = asReading ? model : inputs;
    const found = await read(file, card);
    if (asReading && state.forward) {
      await checkAccepted(model.name, { [card.inputs[0].name]: found.field });
      setForward(null);
    }
    const sample = found.arrays ? inputs.read(found.arrays) : inputs.replaced(found.field.shape, found.field.data);
    if (!asReading) await checkAccepted((state.forward ?? card).model, inputs.requestOf(sample));
    if (model === state.model) inputs.adopt(sample, asReading);
  } catch (error) {
    status.show(new Error(`The file “${file.name}” cannot be drawn: ${cards.inWords(inputs.card, error.message)}`));
  }
}

/** Have the service check an input before it replaces the present one: what it refuses is an error. */
async function checkAccepted(name, request) {
  try {
    await api.predict(name, null, request);
  } catch (error) {
    if (!error.passing && !error.busy) throw error;
  }
}

function saveInput() {
  const { name, card } = state.model;
  if (takesText(card)) return reader.tokens && save({ [card.inputs[0].name]: reader.tokens }, name, state.language);
  const request = state.forward ? state.result?.request : inputs.request();
  if (!request) return;
  const isUsual = inputs.parameters.usual;
  const sent = Object.entries(request).filter(([key]) => !isUsual || state.forward || !(key in inputs.parameters.values));
  save(Object.fromEntries(sent), name, state.language);
}

function saveOutput() {
  const { model, labelled, result } = state;
  save(labelled ? { [model.card.outputs[0].name]: labelled.output } : result.outputs, `${model.name}_output`, state.language);
}

function openKey(open) {
  at("key-form").hidden = !open;
  at("key-open").setAttribute("aria-expanded", open);
}

function chooseLanguage(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    other.setAttribute("aria-selected", other === tab);
    other.tabIndex = other === tab ? 0 : -1;
  }
  at("program").setAttribute("aria-labelledby", tab.id);
  state.language = tab.id.slice("tab-".length);
  if (state.model && (inputs.sample || takesText(state.model.card))) showProgram();
}

async function copyProgram() {
  const code = at("program").firstElementChild;
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    at("copy").textContent = "Copied";
  } catch {
    at("copy").textContent = "Selected"; // without HTTPS pages cannot use the clipboard
  }
  setTimeout(() => (at("copy").textContent = "Copy"), 1500);
}

// Wiring

function wire() {
  const on = (id, type, act) => at(id).addEventListener(type, act);
  on("model", "change", () => (location.hash = at("model").value));
  addEventListener("hashchange", follow);
  on("version", "change", () => {
    state.version = Number(at("version").value) || null;
    takesText(state.model.card) ? textChanged() : changed();
  });
  on("grid", "change", () => {
    const chosen = cards.grids(state.model.card).find((shape) => cards.gridText(shape) === at("grid").value);
    chosen ? chooseGrid(chosen) : (at("points-label").hidden = false);
  });
  on("points", "change", () => at("points").reportValidity() && chooseGrid(cards.gridOf(state.model.card, Number(at("points").value))));
  on("sample", "click", () => stepSample(0));
  on("sample-before", "click", () => stepSample(-1));
  on("sample-after", "click", () => stepSample(1));
  on("random", "click", () => {
    at("seed").value = inputs.sample?.origin.kind === "example" ? Number(at("seed").value) + 1 : at("seed").value;
    redraw();
  });
  on("seed", "change", () => at("seed").reportValidity() && redraw());
  on("upload", "click", () => at("file").click());
  on("upload-reading", "click", () => at("file-reading").click());
  for (const id of ["file", "file-reading"])
    on(id, "change", () => {
      const [file] = at(id).files;
      if (file) upload(file, id === "file-reading");
      at(id).value = "";
    });
  on("noise", "input", () => {
    at("noise-shown").textContent = `${at("noise").value} %`;
    changed();
  });
  on("auto", "change", () => at("auto").checked && state.classical?.revision !== state.revision && solver.schedule());
  on("solve", "click", () => solver.restart());
  on("frame", "input", () => {
    play(false);
    showResults();
  });
  on("play", "click", () => play(!playing));
  on("key-open", "click", () => openKey(at("key-form").hidden));
  on("key-form", "submit", (event) => event.preventDefault());
  on("key", "change", () => {
    api.useKey(at("key").value.trim());
    load();
  });
  on("copy", "click", copyProgram);
  on("download-input", "click", saveInput);
  on("download-output", "click", saveOutput);
  wireTabs();
  wirePictures();
}

function wireTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => chooseLanguage(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      chooseLanguage(next);
      next.focus();
    });
  });
}

function wirePictures() {
  at("stage").addEventListener("pointermove", ({ target, clientX, clientY }) => {
    const panel = panels().find(({ figure }) => figure.querySelector(".view").contains(target));
    readAll(panel?.field ? panel.view.position({ clientX, clientY }) : null);
  });
  at("stage").addEventListener("pointerleave", () => readAll(null));
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.target.matches("input, textarea")) {
      event.preventDefault();
      inputs.undo();
    }
  });
  state.dark = darkness((dark) => {
    inputs.dark = state.dark = dark;
    outputs.restyle(dark);
    times.dark = dark;
    for (const drawing of inputs.sample ? inputs.drawings : []) drawing.show();
    if (state.result) showResults();
  });
}

/** Draw a field of the training distribution; after a measurement, its truth is drawn again. */
function redraw() {
  const { grid } = inputs;
  const again = partner() !== state.forward;
  if (again) setForward(partner());
  else if (inputs.sample) inputs.remember();
  drawExample(again || !grid ? cards.firstGrid(state.model.card) : grid);
}

wire();
load();
status.watch();
