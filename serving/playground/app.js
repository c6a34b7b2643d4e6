/** The page: it sends what the user draws or writes to the service, and shows the responses as pictures. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { withoutPadding } from "./cloud.js";
import { darkness } from "./colours.js";
import { typeset } from "./equation.js";
import * as fields from "./fields.js";
import { TimePictures } from "./times.js";
import { Inputs } from "./inputs.js";
import { decode, encode } from "./npy.js";
import { decode as fromNpz, encode as npz } from "./npz.js";
import { duration, percent } from "./numbers.js";
import { Outputs } from "./outputs.js";
import { program } from "./program.js";
import { badges, quality, show as showBadges } from "./quality.js";
import { Reader } from "./reader.js";
import { encode as safetensors } from "./safetensors.js";
import { Scheduler } from "./scheduler.js";
import { Status } from "./status.js";
import { arraysOf } from "./mesh.js";
import { Turner } from "./space.js";
import { takesText } from "./vocabulary.js";
import { decode as fromVtu } from "./vtu.js";

const PAUSE = 350; // milliseconds without a change before the classical solver is called
const QUICK = 1000; // milliseconds: slower solvers are called only on demand
const FRAME_MILLISECONDS = 120; // between two frames of a trajectory that is played
const WIDEST_REACH = "80"; // of a move of points, per cent of the picture's width
const DEVIATION_FIELDS = 12; // which estimate the deviation to within a fifth

const at = (id) => document.getElementById(id);

/** The state of the page; everything that is shown is derived from it. */
const state = {
  models: [], // those that the page supports, each with its card
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
    if (state.models.length) await choose(before ?? modelOf(location.hash.slice(1)) ?? state.models.find(({ card }) => cards.dimensions(card) === 2) ?? state.models[0], Boolean(before));
    status.clear();
    showRelease();
  } catch (error) {
    failed(error);
  }
}

function modelOf(wanted) {
  return state.models.find(({ name }) => name === wanted);
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
  at("title").textContent = model.card.title;
  const { equation, boundary, task } = model.card;
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
  return cards.hasSolver(state.model.card) ? drawExample(cards.firstGrid(state.model.card)) : openSample(0);
}

/** Show the text instead of the drawing. */
function openText(same) {
  fetching.abort();
  forget();
  at("points-label").hidden = true;
  reader.open(state.model.card, same);
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
  inputs.open(drawnCard(), cards.scattered(state.model.card) ? movesAbout() : { curve: "drag it", inverse: "the truth: draw it", forward: "draw it" }[layout]);
  outputs.open(state.model.card, layout, state.dark);
  if (cards.spatial(state.model.card)) for (const { view } of outputs.panels) new Turner(view.surface, () => inputs.turned());
  times.open(state.model.card, state.dark);
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
  at("value-row").hidden = isCurve || isFixed;
  for (const part of [at("blobs"), at("fill"), at("grid-label")]) part.hidden = isFixed;
  for (const part of [at("undo"), at("size").closest("label")]) part.hidden = isSpatial;
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
  for (const id of ["solver-row", "classical-figure"]) at(id).hidden = !cards.solvable(state.model.card);
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
  showFacts();
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
  const { outputs: found, headers, milliseconds } = await api.predict(model.name, state.version, request, signal);
  state.result = { outputs: named(model.card.outputs, found), quality: quality(headers), milliseconds, revision, request, drawn, sample, truth: sample.truth };
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
    const { outputs: solved, milliseconds } = await api.reference(model.name, request, signal);
    state.classical = { outputs: named(model.card.outputs, solved), milliseconds, revision };
  } finally {
    if (!signal.aborted) outputs.busy("classical", false);
  }
  at("solve-hint").textContent = "";
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
    status.show(error);
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
  outputs.slice = inputs.slice;
  if (result) showPrediction(result, truth);
  if (solved && state.forward) outputs.showSolution(solved.outputs, baseRange());
  times.show(state.result, state.classical?.revision === state.result?.revision ? state.classical : null);
  showError(result, truth);
  showBadges(at("quality"), result ? badges(result.quality) : []);
  at("predict-time").textContent = result ? duration(result.milliseconds) : "–";
  at("classical-time").textContent = solved ? duration(solved.milliseconds) : "–";
  at("download-output").disabled = !result;
  announce(result, solved, truth);
}

/** Return a result whose outputs and truth are those of the chosen frame, if they are trajectories. */
function framed(result) {
  const { card } = state.model;
  if (!cards.rollsOut(card)) return result;
  const frames = result.outputs[card.outputs[0].name].shape[0];
  const index = Math.min(Number(at("frame").value), frames) - 1;
  Object.assign(at("frame"), { max: frames });
  at("frame-shown").textContent = `${index + 1} of ${frames}, time ${Number(cards.timeOf(card, index).toPrecision(6))}`;
  const chosen = (found) => Object.fromEntries(Object.entries(found ?? {}).map(([name, field]) => [name, fields.frame(field, index)]).filter(([, field]) => field));
  const quality = result.quality && { ...result.quality, estimate: card.rollout?.[index]?.error_estimate };
  return { ...result, quality, outputs: chosen(result.outputs), truth: chosen(result.truth) };
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

function showPrediction({ outputs: found, request, revision, sample }, truth) {
  if (state.forward) outputs.showMeasurement(request[state.model.card.inputs[0].name]);
  if (!truth && revision === state.revision && !cards.hasSolver(state.model.card)) outputs.clear(...Array(2).fill("not known for an input of your own"));
  outputs.show(found, truth, state.forward ? {} : sample.fields, state.forward ? baseRange() : wholeRange());
}

/** Return the range of all frames of a trajectory, so that a colour means one value in all of them; null for others. */
function wholeRange() {
  const { card } = state.model;
  return cards.rollsOut(card) && card.outputs.length === 1 ? fields.range(state.result.outputs[card.outputs[0].name]) : null;
}

/** Return the range of the drawn field's picture. */
function baseRange() {
  const [{ base, field }] = inputs.drawings;
  const [low, high] = fields.range(field);
  return [Math.min(base[0], low), Math.max(base[1], high)];
}

/** Return the relative L2 error per output, where it can be compared. */
function errors(found, truth) {
  const comparable = Object.keys(found).filter((name) => truth?.outputs[name] && fields.sameShape(found[name], truth.outputs[name]));
  const known = comparable.map((name) => ({ name, error: fields.relativeL2(found[name], truth.outputs[name]) }));
  return known.filter(({ error }) => Number.isFinite(error)); // a truth of zero has no relative error
}

function showError(result, truth) {
  const known = result ? errors(result.outputs, truth) : [];
  const worst = Math.max(...known.map(({ error }) => error));
  at("error").textContent = known.length ? percent(worst) : "–";
  at("error-name").textContent = { drawn: "From the truth", sample: "Error" }[truth?.kind] ?? "Difference";
  const measures = { drawn: "relative L2 to the drawn field", sample: "relative L2 to the truth", solved: "relative L2 to the classical solution" };
  const each = known.length > 1 ? `: ${known.map(({ name, error }) => `${name} ${percent(error)}`).join(", ")}` : "";
  const zero = truth && result && !known.length ? "; it is zero, or on another grid" : "";
  at("error-note").textContent = truth ? measures[truth.kind] + each + zero : "no truth is known";
}

/** Show the published figures for this request. */
function showFacts() {
  const { card } = state.model;
  const row = cards.measured(card, inputs.grid, noise());
  at("measured-error").textContent = row ? percent(row.relative_l2) : "–";
  const between = row && Math.abs((row.noise ?? 0) - noise()) > 1e-9 ? `, the nearest measured level to ${percent(noise())}` : "";
  const level = row && (row.noise || between) ? ` with ${percent(row.noise ?? 0)} of noise${between}` : "";
  at("measured-note").textContent = row ? `mean of ${row.fields} test fields${level}${row.worst ? `, worst ${percent(row.worst)}` : ""}` : "not published for this grid";
  const trust = cards.trust(card, inputs.grid, inputs.sample.origin);
  if (state.version && state.version !== card.version) trust.unshift({ good: false, text: `Version ${state.version} is in use; the figures here are those of version ${card.version}.` });
  at("trust").replaceChildren(...trust.map(({ good, text }) => item(text, good ? "good" : "care")));
  showProgram();
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
  const text = `${sentence(result, solved, truth).filter(Boolean).join("; ")}.`;
  announcing = setTimeout(() => (at("sentence").textContent = text), 500);
}

/** Return the parts of the sentence. */
function sentence(result, solved, truth) {
  const output = state.model.card.outputs.map(cards.label).join(" and ");
  const worst = (found) => percent(Math.max(...errors(found, truth).map(({ error }) => error)));
  const error = result && truth && errors(result.outputs, truth).length ? worst(result.outputs) : null;
  const from = solved && truth && truth.kind !== "solved" ? `, ${worst(solved.outputs)} from the truth` : "";
  if (state.forward) {
    const readings = noise() ? ` from readings with ${percent(noise())} of noise` : "";
    return [`${output}: recovered in ${duration(result.milliseconds)}${readings}${error ? `, ${error} from the truth (relative L2)` : ""}`, solved && `the classical inversion took ${duration(solved.milliseconds)}${from}`];
  }
  if (truth?.kind === "sample") return [`${output}: predicted in ${duration(result.milliseconds)}${error ? `, ${error} from the truth (relative L2)` : ""}`, solved && `the classical solution took ${duration(solved.milliseconds)}${from}`];
  return [`${output}: predicted in ${duration(result.milliseconds)}`, solved && `the classical solution took ${duration(solved.milliseconds)}`, error && `they differ by ${error} (relative L2)`];
}

function setAuto() {
  const { card } = state.model;
  const usual = cards.classical(card, cards.firstGrid(card));
  at("auto").checked = !state.forward && usual !== undefined && usual.milliseconds < QUICK;
  at("solve").disabled = false;
  outputs.clear("not solved yet", state.forward ? "" : "compared when it is solved");
}

function solverHint() {
  const usual = cards.classical(state.model.card, inputs.grid, noise());
  if (!usual || usual.milliseconds < QUICK) return "";
  return `took ${duration(usual.milliseconds)} on ${cards.gridText(usual.grid)} points in the published measurement`;
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
    classical: cards.hasSolver(model.card) && !forward,
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

async function upload(file, asReading) {
  try {
    if (asReading) setForward(null);
    const { card } = inputs;
    if (cards.scattered(card)) return void (await uploadPoints(file, card));
    const most = card.grid.maximum ** cards.dimensions(card) * Math.max(...card.inputs.map(cards.components));
    const arrays = file.name.endsWith(".npz") ? card.inputs.length : 1;
    if (file.size > arrays * (8 * most + 20_000)) throw new Error(`it has ${file.size} bytes; the largest grid takes ${arrays * 8 * most} as float64.`);
    if (file.name.endsWith(".npz")) return void inputs.replaceAll(await fromNpz(await file.arrayBuffer(), most));
    const { shape, data } = decode(await file.arrayBuffer(), most);
    const isBatch = shape.length > inputs.active.channel.tensor.axes.length - 1 && shape[0] === 1;
    inputs.replace(isBatch ? shape.slice(1) : shape, data, asReading);
  } catch (error) {
    status.show(new Error(`The file “${file.name}” cannot be drawn: ${error.message}`));
  }
}

/** Show points of the user, which may come with the truth. */
async function uploadPoints(file, card) {
  const { maximum } = card.grid;
  const width = Math.max(...[...card.inputs, ...card.outputs].map(cards.components));
  const content = await file.arrayBuffer();
  if (file.name.endsWith(".npz")) return inputs.replaceAll(withoutPadding(await fromNpz(content, maximum * width), card));
  if (!file.name.endsWith(".vtu")) throw new Error("expected a file .vtu or .npz; `petrov predict` reads other mesh files.");
  inputs.replaceAll(arraysOf(await fromVtu(content, maximum), card));
}

/** Save one array as .npy, and several as the program of the page reads them. */
function save(arrays, model) {
  const [[name, only], ...others] = Object.entries(arrays);
  if (others.length === 0) return download(encode(only), `${name}.npy`);
  if (state.language === "curl") return download(safetensors(arrays), `${model}.safetensors`);
  download(npz(arrays), `${model}.npz`);
}

function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function saveInput() {
  const { name, card } = state.model;
  if (takesText(card)) return reader.tokens && save({ [card.inputs[0].name]: reader.tokens }, name);
  const request = state.forward ? state.result?.request : inputs.request();
  if (!request) return;
  const isUsual = inputs.parameters.usual;
  const sent = Object.entries(request).filter(([key]) => !isUsual || state.forward || !(key in inputs.parameters.values));
  save(Object.fromEntries(sent), name);
}

function saveOutput() {
  const { model, labelled, result } = state;
  save(labelled ? { [model.card.outputs[0].name]: labelled.output } : result.outputs, `${model.name}_output`);
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
  on("model", "change", () => {
    history.replaceState(null, "", `#${at("model").value}`);
    state.samples = null;
    choose(modelOf(at("model").value));
  });
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
    state.dark = dark;
    outputs.restyle(dark);
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
