/** The page: it sends what the user draws or writes to the service, and shows the responses as pictures. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { darkness, divergent, ember, tide } from "./colours.js";
import * as fields from "./fields.js";
import { Scheduler } from "./scheduler.js";
import { decode, encode } from "./npy.js";
import { duration, percent, short } from "./numbers.js";
import { Panel } from "./panel.js";
import { Pen } from "./pen.js";
import { program } from "./program.js";
import { Reader } from "./reader.js";
import { Status } from "./status.js";
import { takesText } from "./vocabulary.js";

const PAUSE = 350; // milliseconds without a change before the classical solver is called
const QUICK = 1000; // milliseconds: slower solvers are called only on demand
const MAX_UNDOS = 20;
const DEVIATION_FIELDS = 12; // which estimate the deviation to within a fifth

const at = (id) => document.getElementById(id);
const panels = Object.fromEntries([...document.querySelectorAll("figure.panel")].map((figure) => [figure.dataset.role, new Panel(figure)]));

/** The state of the page; everything that is shown is derived from it. */
const state = {
  models: [], // those that the page supports, each with its card
  model: null,
  forward: null, // the model that computes the input of `model`, when the truth is drawn
  version: null, // null: the newest
  field: null, // the drawn field
  origin: null, // {kind: "example", seed} | {kind: "own"}
  history: [],
  base: [0, 1], // the range of an example
  revision: 0, // counts changes of the request
  drawn: 0, // counts changes of the field
  solved: null, // the classical solution of the forward model for the field, and its `drawn`
  result: null, // the prediction, and its `revision`
  classical: null, // the classical solution, likewise
  labelled: null, // the response to a text
  language: "curl",
  dark: false,
};

const predictor = new Scheduler(predict, (error) => failed(error, predictor));
const solver = new Scheduler(solve, (error) => failed(error, solver));
const labeller = new Scheduler(label, (error) => failed(error, labeller));
const reader = new Reader(at("sequence"), textChanged);
const status = new Status(load, () => state.model?.name);

// The models

async function load() {
  try {
    const listed = await api.models();
    const known = await Promise.all(listed.map(({ name }) => api.model(name)));
    state.models = known.filter(({ card }) => !cards.unsupported(card));
    listLeftOut(known.filter(({ card }) => cards.unsupported(card)));
    fillOptions(at("model"), state.models.map(({ name }) => [name, name]));
    const before = state.models.find(({ name }) => name === state.model?.name);
    if (state.models.length) await choose(before ?? state.models.find(({ card }) => cards.dimensions(card) === 2) ?? state.models[0], Boolean(before));
    status.clear();
  } catch (error) {
    failed(error);
  }
}

function listLeftOut(models) {
  at("left-out").hidden = models.length === 0;
  at("left-out").textContent = `Not shown here: ${models.map(({ name, card }) => `${name} (${cards.unsupported(card)})`).join(", ")}.`;
}

/** Open a model; if it is the present one, the drawing stays. */
async function choose(model, same = false) {
  state.model = model;
  if (!same) state.field = null;
  at("model").value = model.name;
  at("title").textContent = model.card.title;
  at("equation").textContent = [model.card.equation, model.card.boundary].filter(Boolean).join(" · ").replaceAll("-", "−") || model.card.task || "";
  fillOptions(at("version"), [["", `newest (${model.version})`], ...[...model.versions].reverse().map((version) => [version, version])]);
  if (same && model.versions.includes(state.version)) at("version").value = state.version;
  else state.version = null;
  const sequence = takesText(model.card);
  for (const id of ["stage", "grid-label"]) at(id).hidden = sequence;
  at("sequence").hidden = !sequence;
  if (sequence) return void openText(same);
  setForward(same && !state.forward ? null : partner());
  if (same && state.field) setField(state.field, state.origin);
  else await chooseGrid(cards.firstGrid(model.card), true);
}

/** Show the text instead of the drawing. */
function openText(same) {
  drawing.abort();
  forget();
  state.history = [];
  at("points-label").hidden = true;
  reader.open(state.model.card, same);
}

/** Return the served model that computes the input of the present one, or null. */
function partner() {
  return cards.forwardOf(state.model.card, state.models.map(({ card }) => card)) ?? null;
}

/** Return the card of the model whose input is drawn. */
function painted() {
  return state.forward ?? state.model.card;
}

/** Draw the input of `card`, solve for it, and send the solution to the model; null: draw the model's own input. */
function setForward(card) {
  state.forward = card;
  state.history = [];
  forget();
  const { inputs: [input], outputs: [output] } = state.model.card;
  const dimensions = cards.dimensions(state.model.card);
  const layout = dimensions === 1 ? "curve" : card ? "inverse" : "forward";
  at("stage").dataset.layout = layout;
  describe(input, output, layout);
  const old = panels.input.view;
  for (const panel of Object.values(panels)) panel.become(dimensions, ramp(panel.role, layout));
  if (panels.input.view !== old) new Pen(panels.input.view.surface, pen);
  setSize();
  setAuto();
}

function describe(input, output, layout) {
  const drawn = layout === "inverse" ? painted().inputs[0] : input;
  const pull = "Drag the curve, or use the arrow keys: up and down pull it.";
  const paint = "Draw on the picture; the right button draws the other value. Arrow keys move the brush, Space paints, x swaps the values.";
  at("hint").textContent = layout === "curve" ? pull : paint;
  panels.input.describe(title(drawn), { curve: "drag it", inverse: "the truth: draw it", forward: "draw it" }[layout]);
  panels.measured.describe(title(input), "solved, and measured with noise");
  const origin = { forward: "predicted by the network", inverse: "recovered by the network", curve: "line: predicted, band: solved" };
  panels.prediction.describe(title(output), origin[layout]);
  panels.classical.describe(title(output), layout === "inverse" ? "recovered classically" : "solved classically");
  panels.difference.describe("Difference", layout === "inverse" ? "recovered − true" : "predicted − solved");
  at("error-name").textContent = layout === "inverse" ? "From the truth" : "Difference";
  at("value-row").hidden = layout === "curve";
  for (const id of ["noise-row", "upload-reading"]) at(id).hidden = layout !== "inverse";
  at("mean-row").hidden = layout !== "curve";
  at("mean").checked = cards.zeroMean(state.model.card);
  at("size-name").textContent = layout === "curve" ? "Reach" : "Brush";
  at("fill").textContent = layout === "curve" ? "Flatten" : "Fill";
  at("blobs").textContent = layout === "curve" ? "Bumps" : "Blobs";
}

function title({ name, meaning, units }) {
  const label = meaning || name;
  return label.charAt(0).toUpperCase() + label.slice(1) + (units && units !== "1" ? ` (${units})` : "");
}

/** Return the colours of a quantity: cool for what is drawn, warm for what is computed from it. */
function ramp(role, layout) {
  if (layout === "curve") return null;
  if (role === "difference") return divergent(state.dark);
  const cool = layout === "inverse" ? role !== "measured" : role === "input";
  return cool ? tide : ember;
}

// The grid and the field

async function chooseGrid(points, anew = false) {
  showGrids(points);
  if (anew || state.origin?.kind === "example") await drawExample(points);
  else setField(fields.resized(state.field, shapeOf(points)), state.origin);
}

function shapeOf(points) {
  return Array(cards.dimensions(state.model.card)).fill(points);
}

/** Offer the declared grids and the present one. */
function showGrids(points, shape = shapeOf(points)) {
  const { declared, minimum, maximum } = state.model.card.grid;
  const own = new Set(shape).size > 1 ? [["own", cards.gridText(shape)]] : [];
  fillOptions(at("grid"), [...declared.map((size) => [size, cards.gridText(shapeOf(size))]), ...own, ["other", "other …"]]);
  at("grid").value = own.length ? "own" : declared.includes(points) ? points : "other";
  Object.assign(at("points"), { min: minimum, max: maximum, value: points });
  at("points-label").hidden = at("grid").value !== "other";
}

let drawing = new AbortController();

/** Draw an input of the training distribution, or a constant field where there is no sampler. */
async function drawExample(points = Number(at("points").value)) {
  const seed = Number(at("seed").value);
  drawing.abort();
  drawing = new AbortController();
  const { signal } = drawing;
  busy(panels.input, true);
  try {
    const field = await api.example(painted().model, seed, points, signal);
    setBase(fields.range(field));
    setField(field, { kind: "example", seed });
  } catch (error) {
    if (signal.aborted) return;
    if (error.kind !== "no-example") return void failed(error);
    setBase([0.5, 1]);
    setField(fields.full(shapeOf(points), 0.5), { kind: "own" });
  } finally {
    if (!signal.aborted) busy(panels.input, false);
  }
}

/** Set the range of an example's values: the brush offers it and a little more. */
function setBase([low, high]) {
  const span = high - low || Math.abs(high) || 1;
  state.base = cards.dimensions(state.model.card) === 1 ? [-1.25, 1.25].map((share) => share * Math.max(Math.abs(low), Math.abs(high))) : [low, high];
  const least = painted().inputs[0].positive ? low / 3 : low - span / 2;
  Object.assign(at("value"), { min: least, max: high + span / 2 });
  pen.other = low;
  setValue(high);
  for (const [id, value] of [["low", low], ["high", high]]) {
    at(id).value = value;
    at(id).lastElementChild.textContent = short(value);
    at(id).setAttribute("aria-label", `Brush value ${short(value)}`);
  }
  paintSwatches();
}

function paintSwatches() {
  const map = panels.input.view.ramp;
  if (!map) return;
  at("low").firstElementChild.style.background = `rgb(${map.subarray(0, 3)})`;
  at("high").firstElementChild.style.background = `rgb(${map.subarray(-3)})`;
}

function setField(field, origin) {
  Object.assign(state, { field, origin });
  showGrids(field.shape[0], field.shape);
  state.drawn += 1;
  showInput();
  changed();
}

function showInput(frozen = false) {
  const view = panels.input.view;
  const curve = view.dimensions === 1;
  const [low, high] = fields.range(state.field);
  const range = curve && frozen ? view.range : [Math.min(state.base[0], low), Math.max(state.base[1], high)];
  panels.input.show(state.field, range);
  const keys = curve ? "Left and right move, up and down pull the curve." : "Arrow keys move the brush, Space paints.";
  view.label(`${panels.input.title}, ${cards.gridText(state.field.shape)} points. ${keys}`);
}

function remember() {
  state.history.push({ field: fields.copy(state.field), origin: state.origin });
  if (state.history.length > MAX_UNDOS) state.history.shift();
  at("undo").disabled = false;
}

function undo() {
  const before = state.history.pop();
  at("undo").disabled = state.history.length === 0;
  if (before) setField(before.field, before.origin);
}

/** What the pen reads and calls. */
const pen = {
  size: 0.09,
  value: 1,
  other: 0,
  get field() { return state.field; },
  get view() { return panels.input.view; },
  get periodic() { return cards.periodic(state.model.card); },
  get keepsMean() { return at("mean").checked; },
  begin: remember,
  moved: readAll,
  changed(done) {
    state.origin = { kind: "own" };
    state.drawn += 1;
    showInput(!done);
    changed();
  },
  swap() {
    const { value, other } = pen;
    pen.other = value;
    setValue(other);
  },
  grow(sign) {
    at("size").value = Number(at("size").value) + sign;
    setSize();
  },
};

function setValue(value) {
  pen.value = value;
  at("value").value = value;
  at("value-shown").textContent = short(value);
}

function setSize() {
  pen.size = Number(at("size").value) / 100;
  at("size-shown").textContent = `${at("size").value} %`;
  if (panels.input.view) panels.input.view.brush = pen.size;
}

// Requests and responses

/** Handle a change of the request: predict at once, and solve classically after a pause. */
function changed() {
  if (!state.field) return;
  state.revision += 1;
  predictor.schedule();
  solver.cancel();
  busy(panels.classical, false);
  panels.classical.age();
  panels.difference.age();
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
  state.labelled = await api.predict(state.model.name, state.version, reader.tokens, signal);
  status.clear();
  reader.show(state.labelled);
  at("download-output").disabled = false;
}

async function predict(signal) {
  const { revision, model, forward } = state;
  const truth = fields.copy(state.field);
  const input = forward ? await measure(truth, signal) : truth;
  const response = await api.predict(model.name, state.version, input, signal);
  state.result = { ...response, revision, input, truth };
  status.clear();
  showResults();
  if (at("auto").checked && revision === state.revision) solver.restart(PAUSE); // afterwards, so that neither time includes the other
}

/** Return a simulated measurement of the solution for a drawn field: noise in units of the solution's usual deviation. */
async function measure(truth, signal) {
  const { drawn, forward } = state;
  if (state.solved?.drawn !== drawn) state.solved = { ...(await api.reference(forward.model, truth, signal)), drawn };
  const level = noise();
  if (level === 0) return state.solved.output;
  busy(panels.measured, !state.unit);
  state.unit ??= await usualDeviation(forward, signal);
  busy(panels.measured, false);
  return fields.noisy(state.solved.output, fields.resized(state.unit, state.solved.output.shape), level, Number(at("seed").value) + 1);
}

/** Return the deviation of a model's classical solutions per point, estimated from examples on its smallest declared grid. */
async function usualDeviation(card, signal) {
  const [points] = card.grid.declared;
  const examples = [];
  for (let seed = 0; seed < DEVIATION_FIELDS; seed++) examples.push(await api.example(card.model, seed, points, signal));
  const { output } = await api.reference(card.model, fields.batch(examples), signal);
  return fields.deviation(output);
}

async function solve(signal) {
  const { revision, model } = state;
  const input = state.forward ? await measure(fields.copy(state.field), signal) : fields.copy(state.field);
  busy(panels.classical, true);
  at("solve-hint").textContent = "solving …";
  try {
    state.classical = { ...(await api.reference(model.name, input, signal)), revision };
  } finally {
    if (!signal.aborted) busy(panels.classical, false);
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
  for (const role of ["measured", "prediction", "difference"]) panels[role].age();
  at("sentence").textContent = "";
  showResults();
}

// What is shown

function showResults() {
  const { result, classical } = state;
  const solved = classical?.revision === state.revision ? classical : null;
  if (result) showPrediction(result, solved);
  if (solved && cards.dimensions(state.model.card) === 2) showClassical(solved);
  const truth = result && truthOf(result, solved);
  if (truth && fields.sameShape(truth, result.output)) showDifference(result.output, truth);
  else at("error").textContent = "–";
  at("predict-time").textContent = result ? duration(result.milliseconds) : "–";
  at("classical-time").textContent = solved ? duration(solved.milliseconds) : "–";
  at("download-output").disabled = !result;
  announce(result, solved, truth);
}

/** Return what a prediction is compared with: the drawn truth, or the classical solution if there is one. */
function truthOf({ truth, output, revision }, solved) {
  if (state.forward) return fields.sameShape(truth, output) ? truth : fields.blockMeans(truth, output.shape, cards.blockExtent(state.model.card));
  return solved?.revision === revision ? solved.output : null;
}

function showPrediction({ output, input, truth }, solved) {
  const curve = cards.dimensions(state.model.card) === 1;
  if (state.forward) {
    panels.measured.show(input, fields.range(input));
    panels.prediction.show(output, panels.input.field ? widest(state.base, fields.range(truth)) : fields.range(output));
  } else if (curve) {
    const [low, high] = fields.range(output, ...(solved ? [solved.output] : []));
    const room = 0.15 * (high - low || 1);
    panels.prediction.show(output, [low - room, high + room], solved?.output);
  } else panels.prediction.show(output, fields.range(output, ...(solved ? [solved.output] : [])));
}

function showClassical({ output }) {
  panels.classical.show(output, state.forward ? widest(state.base, fields.range(state.field)) : fields.range(output, state.result?.output ?? output));
}

function showDifference(found, truth) {
  const difference = fields.difference(found, truth);
  const most = Math.max(...fields.range(difference).map(Math.abs)) || 1;
  const room = difference.shape.length === 1 ? 1.2 * most : most;
  panels.difference.show(difference, [-room, room]);
  at("error").textContent = percent(fields.relativeL2(found, truth));
}

function widest(one, other) {
  return [Math.min(one[0], other[0]), Math.max(one[1], other[1])];
}

/** Show the published figures for this request. */
function showFacts() {
  const { card } = state.model;
  const shape = state.field.shape;
  const row = cards.measured(card, shape, noise());
  at("measured-error").textContent = row ? percent(row.relative_l2) : "–";
  const level = row?.noise ? ` with ${percent(row.noise)} of noise` : "";
  at("measured-note").textContent = row ? `mean of ${row.fields} test fields${level}${row.worst ? `, worst ${percent(row.worst)}` : ""}` : "not published for this grid";
  const trust = cards.trust(card, shape, state.origin);
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
  const output = title(state.model.card.outputs[0]);
  const error = truth && fields.sameShape(truth, result.output) ? percent(fields.relativeL2(result.output, truth)) : null;
  const readings = noise() ? ` from readings with ${percent(noise())} of noise` : "";
  const parts = state.forward
    ? [`${output}: recovered in ${duration(result.milliseconds)}${readings}, ${error} from the truth (relative L2)`, solved && `the classical inversion took ${duration(solved.milliseconds)}, ${percent(fields.relativeL2(solved.output, truth))} from the truth`]
    : [`${output}: predicted in ${duration(result.milliseconds)}`, solved && `the classical solution took ${duration(solved.milliseconds)}`, error && `they differ by ${error} (relative L2)`];
  announcing = setTimeout(() => (at("sentence").textContent = `${parts.filter(Boolean).join("; ")}.`), 500);
}

function setAuto() {
  const { card } = state.model;
  const usual = cards.classical(card, shapeOf(cards.firstGrid(card)));
  at("auto").checked = !state.forward && usual !== undefined && usual.milliseconds < QUICK;
  at("solve").disabled = false;
  panels.classical.clear("not solved yet");
  panels.difference.clear(state.forward ? "" : "compared when it is solved");
  at("error-note").textContent = state.forward ? "relative L2 to the drawn field" : "relative L2 to the classical solution";
}

function solverHint() {
  const usual = cards.classical(state.model.card, state.field.shape, noise());
  if (!usual || usual.milliseconds < QUICK) return "";
  return `took ${duration(usual.milliseconds)} on ${cards.gridText(usual.grid)} points in the published measurement`;
}

function showProgram() {
  const { model, version, field, origin, language } = state;
  const sequence = takesText(model.card);
  const text = program(language, sequence ? textRequest() : {
    model: model.name,
    version,
    input: model.card.inputs[0].name,
    output: model.card.outputs[0].name,
    points: field.shape[0],
    seed: origin.kind === "example" && !state.forward ? origin.seed : null,
    classical: !state.forward,
  });
  at("program").firstElementChild.textContent = text;
}

/** Return the text as the input of a program. */
function textRequest() {
  const { model, version } = state;
  return { model: model.name, version, input: model.card.inputs[0].name, text: reader.area.value.trim(), tokens: [...(reader.tokens?.data ?? [])] };
}

function readAll(position) {
  for (const panel of Object.values(panels)) panel.read(position);
}

function busy(panel, is) {
  panel.figure.setAttribute("aria-busy", is);
}

function fillOptions(select, options) {
  const made = options.map(([value, text]) => new Option(text, value));
  select.replaceChildren(...made);
  select.disabled = options.length === 0;
}

// Files, keys, tabs

async function upload(file, asReading) {
  try {
    const { maximum } = state.model.card.grid;
    const most = maximum ** cards.dimensions(state.model.card);
    if (file.size > 8 * most + 20_000) throw new Error(`it has ${file.size} bytes; the largest grid takes ${8 * most} as float64.`);
    const { shape, data } = decode(await file.arrayBuffer(), most);
    const sizes = shape.length > cards.dimensions(state.model.card) && shape[0] === 1 ? shape.slice(1) : shape;
    if (sizes.length !== cards.dimensions(state.model.card)) throw new Error(`it has shape (${shape}); expected one field with axes ${painted().grid.axes.join(", ")}.`);
    if (asReading) setForward(null);
    if (state.field) remember();
    if (asReading) setBase(fields.range({ data }));
    setField({ shape: sizes, data }, { kind: "own" });
  } catch (error) {
    status.show(new Error(`The file “${file.name}” cannot be drawn: ${error.message}`));
  }
}

function save(field, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([encode(field)]));
  link.download = `${name}.npy`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
  if (state.field || takesText(state.model.card)) showProgram();
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
  on("model", "change", () => choose(state.models.find(({ name }) => name === at("model").value)));
  on("version", "change", () => {
    state.version = Number(at("version").value) || null;
    takesText(state.model.card) ? textChanged() : changed();
  });
  on("grid", "change", () => (at("grid").value === "other" ? at("points-label").hidden = false : chooseGrid(Number(at("grid").value))));
  on("points", "change", () => at("points").reportValidity() && chooseGrid(Number(at("points").value)));
  on("random", "click", () => {
    at("seed").value = state.origin?.kind === "example" ? Number(at("seed").value) + 1 : at("seed").value;
    redraw();
  });
  on("seed", "change", () => at("seed").reportValidity() && redraw());
  on("blobs", "click", scatter);
  on("fill", "click", () => state.field && replace(fields.full(state.field.shape, panels.input.view.dimensions === 1 ? 0 : pen.value)));
  on("undo", "click", undo);
  on("upload", "click", () => at("file").click());
  on("upload-reading", "click", () => at("file-reading").click());
  for (const id of ["file", "file-reading"])
    on(id, "change", () => {
      const [file] = at(id).files;
      if (file) upload(file, id === "file-reading");
      at(id).value = "";
    });
  on("size", "input", setSize);
  on("value", "input", () => setValue(Number(at("value").value)));
  for (const id of ["low", "high"])
    on(id, "click", () => {
      pen.other = Number(at(id === "low" ? "high" : "low").value);
      setValue(Number(at(id).value));
    });
  on("noise", "input", () => {
    at("noise-shown").textContent = `${at("noise").value} %`;
    changed();
  });
  on("auto", "change", () => at("auto").checked && state.classical?.revision !== state.revision && solver.schedule());
  on("solve", "click", () => solver.restart());
  on("key-open", "click", () => openKey(at("key-form").hidden));
  on("key-form", "submit", (event) => event.preventDefault());
  on("key", "change", () => {
    api.useKey(at("key").value.trim());
    load();
  });
  on("copy", "click", copyProgram);
  on("download-input", "click", () => {
    const input = takesText(state.model.card) ? reader.tokens : state.forward ? state.result?.input : state.field;
    if (input) save(input, state.model.card.inputs[0].name);
  });
  on("download-output", "click", () => save((state.labelled ?? state.result).output, state.model.card.outputs[0].name));
  wireTabs();
  wirePictures();
}

function wireTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => chooseLanguage(tab));
    tab.addEventListener("keydown", ({ key }) => {
      if (!["ArrowLeft", "ArrowRight"].includes(key)) return;
      const next = tabs[(i + 1) % tabs.length];
      chooseLanguage(next);
      next.focus();
    });
  });
}

function wirePictures() {
  for (const panel of Object.values(panels)) {
    const view = panel.figure.querySelector(".view");
    view.addEventListener("pointermove", (event) => readAll(panel.field && panel.view.position(event)));
    view.addEventListener("pointerleave", () => readAll(null));
  }
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.target.matches("input, textarea")) {
      event.preventDefault();
      undo();
    }
  });
  state.dark = darkness((dark) => {
    state.dark = dark;
    if (!panels.difference.view?.ramp) return;
    panels.difference.view.ramp = divergent(dark);
    if (state.result) showResults();
  });
}

/** Draw a field of the training distribution; after an uploaded measurement, the truth is drawn again. */
function redraw() {
  if (state.field) remember();
  if (partner() !== state.forward) setForward(partner());
  drawExample();
}

let scattered = 0;

function scatter() {
  if (!state.field) return;
  const [low, high] = state.base;
  const curve = panels.input.view.dimensions === 1;
  const value = pen.value === low ? high : pen.value;
  replace(fields.blobs(state.field.shape, curve ? 0 : low, curve ? high : value, (scattered += 1), pen));
}

function replace(field) {
  remember();
  setField(field, { kind: "own" });
}

wire();
setSize();
load();
status.watch();
