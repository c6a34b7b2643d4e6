/** The page: the service's models and what a person draws or writes in, questions to the service and their answers' pictures out. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { darkness, divergent, ember, tide } from "./colours.js";
import * as fields from "./fields.js";
import { Latest } from "./latest.js";
import { decode, encode } from "./npy.js";
import { duration, percent, short } from "./numbers.js";
import { Panel } from "./panel.js";
import { Pen } from "./pen.js";
import { program } from "./program.js";
import { Reader } from "./reader.js";
import { Trouble } from "./trouble.js";
import { takesWords } from "./words.js";

const PAUSE = 350; // milliseconds without a change before the classical solver is asked
const AT_ONCE = 1000; // milliseconds: solvers that take longer are not asked unasked
const UNDOS = 20;
const DEVIATION_FIELDS = 12; // the deviation is then known to a fifth

const at = (id) => document.getElementById(id);
const panels = Object.fromEntries([...document.querySelectorAll("figure.panel")].map((figure) => [figure.dataset.role, new Panel(figure)]));

/** All that the page knows; what is shown follows from it. */
const desk = {
  models: [], // those that can be asked here, each with its card
  model: null,
  forward: null, // the model that computes what `model` is asked about, when the truth is drawn
  version: null, // null: the newest
  field: null, // what is drawn
  origin: null, // {kind: "example", seed} | {kind: "own"}
  history: [],
  base: [0, 1], // the range of an example
  revision: 0, // counts changes of the question
  drawn: 0, // counts changes of the field
  solved: null, // the forward model's classical answer to the field, and for which `drawn`
  result: null, // the prediction, and for which `revision`
  classical: null, // the classical answer, likewise
  labelled: null, // the answer to a text
  language: "curl",
  dark: false,
};

const predictor = new Latest(predict, (error) => failed(error, predictor));
const solver = new Latest(solve, (error) => failed(error, solver));
const labeller = new Latest(label, (error) => failed(error, labeller));
const reader = new Reader(at("words"), asked);
const trouble = new Trouble(load, () => desk.model?.name);

// The models

async function load() {
  try {
    const listed = await api.models();
    const known = await Promise.all(listed.map(({ name }) => api.model(name)));
    desk.models = known.filter(({ card }) => !cards.unsupported(card));
    listLeftOut(known.filter(({ card }) => cards.unsupported(card)));
    fillOptions(at("model"), desk.models.map(({ name }) => [name, name]));
    const before = desk.models.find(({ name }) => name === desk.model?.name);
    if (desk.models.length) await choose(before ?? desk.models.find(({ card }) => cards.dimensions(card) === 2) ?? desk.models[0], Boolean(before));
    trouble.clear();
  } catch (error) {
    failed(error);
  }
}

function listLeftOut(models) {
  at("left-out").hidden = models.length === 0;
  at("left-out").textContent = `Not shown here: ${models.map(({ name, card }) => `${name} (${cards.unsupported(card)})`).join(", ")}.`;
}

/** Turn to a model; if it is the one we had, the drawing stays. */
async function choose(model, same = false) {
  desk.model = model;
  if (!same) desk.field = null;
  at("model").value = model.name;
  at("title").textContent = model.card.title;
  at("equation").textContent = [model.card.equation, model.card.boundary].filter(Boolean).join(" · ").replaceAll("-", "−") || model.card.task || "";
  fillOptions(at("version"), [["", `newest (${model.version})`], ...[...model.versions].reverse().map((version) => [version, version])]);
  if (same && model.versions.includes(desk.version)) at("version").value = desk.version;
  else desk.version = null;
  const words = takesWords(model.card);
  for (const id of ["stage", "grid-label"]) at(id).hidden = words;
  at("words").hidden = !words;
  if (words) return void openWords(same);
  setForward(same && !desk.forward ? null : partner());
  if (same && desk.field) setField(desk.field, desk.origin);
  else await chooseGrid(cards.firstGrid(model.card), true);
}

/** A text takes the place of the drawing. */
function openWords(same) {
  drawing.abort();
  forget();
  desk.history = [];
  at("points-label").hidden = true;
  reader.open(desk.model.card, same);
}

/** The served model that computes what ours is asked about, or null. */
function partner() {
  return cards.forwardOf(desk.model.card, desk.models.map(({ card }) => card)) ?? null;
}

/** Whose input is drawn. */
function painted() {
  return desk.forward ?? desk.model.card;
}

/** Draw what `card` takes, solve it, and ask the model about the solution; null: draw the model's own input. */
function setForward(card) {
  desk.forward = card;
  desk.history = [];
  forget();
  const { inputs: [input], outputs: [output] } = desk.model.card;
  const dimensions = cards.dimensions(desk.model.card);
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
  const grounds = layout === "inverse" ? painted().inputs[0] : input;
  const pull = "Drag the curve, or use the arrow keys: up and down pull it.";
  const paint = "Draw on the picture; the right button draws the other value. Arrow keys move the brush, Space paints, x swaps the values.";
  at("hint").textContent = layout === "curve" ? pull : paint;
  panels.input.describe(title(grounds), { curve: "drag it", inverse: "the truth: draw it", forward: "draw it" }[layout]);
  panels.measured.describe(title(input), "solved, and measured with noise");
  const answer = { forward: "predicted by the network", inverse: "recovered by the network", curve: "line: predicted, band: solved" };
  panels.prediction.describe(title(output), answer[layout]);
  panels.classical.describe(title(output), layout === "inverse" ? "recovered classically" : "solved classically");
  panels.difference.describe("Difference", layout === "inverse" ? "recovered − true" : "predicted − solved");
  at("error-name").textContent = layout === "inverse" ? "From the truth" : "Difference";
  at("value-row").hidden = layout === "curve";
  for (const id of ["noise-row", "upload-reading"]) at(id).hidden = layout !== "inverse";
  at("mean-row").hidden = layout !== "curve";
  at("mean").checked = cards.zeroMean(desk.model.card);
  at("size-name").textContent = layout === "curve" ? "Reach" : "Brush";
  at("fill").textContent = layout === "curve" ? "Flatten" : "Fill";
  at("blobs").textContent = layout === "curve" ? "Bumps" : "Blobs";
}

function title({ name, meaning, units }) {
  const words = meaning || name;
  return words.charAt(0).toUpperCase() + words.slice(1) + (units && units !== "1" ? ` (${units})` : "");
}

/** A quantity keeps its colours: what is drawn is cool, what is computed from it warm. */
function ramp(role, layout) {
  if (layout === "curve") return null;
  if (role === "difference") return divergent(desk.dark);
  const cool = layout === "inverse" ? role !== "measured" : role === "input";
  return cool ? tide : ember;
}

// The grid and the field

async function chooseGrid(points, anew = false) {
  showGrids(points);
  if (anew || desk.origin?.kind === "example") await drawExample(points);
  else setField(fields.resized(desk.field, shapeOf(points)), desk.origin);
}

function shapeOf(points) {
  return Array(cards.dimensions(desk.model.card)).fill(points);
}

/** The declared grids, and the present one. */
function showGrids(points, shape = shapeOf(points)) {
  const { declared, minimum, maximum } = desk.model.card.grid;
  const own = new Set(shape).size > 1 ? [["own", cards.gridText(shape)]] : [];
  fillOptions(at("grid"), [...declared.map((size) => [size, cards.gridText(shapeOf(size))]), ...own, ["other", "other …"]]);
  at("grid").value = own.length ? "own" : declared.includes(points) ? points : "other";
  Object.assign(at("points"), { min: minimum, max: maximum, value: points });
  at("points-label").hidden = at("grid").value !== "other";
}

let drawing = new AbortController();

/** An input of the training distribution; without a sampler a plain field. */
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

/** The values that an example has: the brush offers them and a little more. */
function setBase([low, high]) {
  const span = high - low || Math.abs(high) || 1;
  desk.base = cards.dimensions(desk.model.card) === 1 ? [-1.25, 1.25].map((share) => share * Math.max(Math.abs(low), Math.abs(high))) : [low, high];
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
  Object.assign(desk, { field, origin });
  showGrids(field.shape[0], field.shape);
  desk.drawn += 1;
  showInput();
  changed();
}

function showInput(frozen = false) {
  const view = panels.input.view;
  const curve = view.dimensions === 1;
  const [low, high] = fields.range(desk.field);
  const range = curve && frozen ? view.range : [Math.min(desk.base[0], low), Math.max(desk.base[1], high)];
  panels.input.show(desk.field, range);
  const keys = curve ? "Left and right move, up and down pull the curve." : "Arrow keys move the brush, Space paints.";
  view.label(`${panels.input.title}, ${cards.gridText(desk.field.shape)} points. ${keys}`);
}

function remember() {
  desk.history.push({ field: fields.copy(desk.field), origin: desk.origin });
  if (desk.history.length > UNDOS) desk.history.shift();
  at("undo").disabled = false;
}

function undo() {
  const before = desk.history.pop();
  at("undo").disabled = desk.history.length === 0;
  if (before) setField(before.field, before.origin);
}

/** What the pen may touch. */
const pen = {
  size: 0.09,
  value: 1,
  other: 0,
  get field() { return desk.field; },
  get view() { return panels.input.view; },
  get periodic() { return cards.periodic(desk.model.card); },
  get keepsMean() { return at("mean").checked; },
  begin: remember,
  moved: readAll,
  changed(done) {
    desk.origin = { kind: "own" };
    desk.drawn += 1;
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

// Questions and answers

/** Something about the question changed: ask at once, and the classical solver when there is a pause. */
function changed() {
  if (!desk.field) return;
  desk.revision += 1;
  predictor.ask();
  solver.cancel();
  busy(panels.classical, false);
  panels.classical.age();
  panels.difference.age();
  at("solve").disabled = false;
  at("solve-hint").textContent = solverHint();
  showFacts();
}

/** The text, or whom it is put to, changed. */
function asked() {
  labeller.cancel();
  desk.labelled = null;
  at("download-output").disabled = true;
  showProgram();
  if (reader.tokens) labeller.ask(PAUSE / 2);
}

async function label(signal) {
  desk.labelled = await api.predict(desk.model.name, desk.version, reader.tokens, signal);
  trouble.clear();
  reader.show(desk.labelled);
  at("download-output").disabled = false;
}

async function predict(signal) {
  const { revision, model, forward } = desk;
  const truth = fields.copy(desk.field);
  const input = forward ? await measure(truth, signal) : truth;
  const answer = await api.predict(model.name, desk.version, input, signal);
  desk.result = { ...answer, revision, input, truth };
  trouble.clear();
  showAnswers();
  if (at("auto").checked && revision === desk.revision) solver.restart(PAUSE); // after us: both times are those of one alone
}

/** What an instrument would read of the solution to a drawn field: noise in units of the readings' usual deviation. */
async function measure(truth, signal) {
  const { drawn, forward } = desk;
  if (desk.solved?.drawn !== drawn) desk.solved = { ...(await api.reference(forward.model, truth, signal)), drawn };
  const level = noise();
  if (level === 0) return desk.solved.output;
  busy(panels.measured, !desk.unit);
  desk.unit ??= await usualDeviation(forward, signal);
  busy(panels.measured, false);
  return fields.noisy(desk.solved.output, fields.resized(desk.unit, desk.solved.output.shape), level, Number(at("seed").value) + 1);
}

/** The deviation of a model's classical answers at each point, estimated from examples on its smallest declared grid. */
async function usualDeviation(card, signal) {
  const [points] = card.grid.declared;
  const examples = [];
  for (let seed = 0; seed < DEVIATION_FIELDS; seed++) examples.push(await api.example(card.model, seed, points, signal));
  const { output } = await api.reference(card.model, fields.batch(examples), signal);
  return fields.deviation(output);
}

async function solve(signal) {
  const { revision, model } = desk;
  const input = desk.forward ? await measure(fields.copy(desk.field), signal) : fields.copy(desk.field);
  busy(panels.classical, true);
  at("solve-hint").textContent = "solving …";
  try {
    desk.classical = { ...(await api.reference(model.name, input, signal)), revision };
  } finally {
    if (!signal.aborted) busy(panels.classical, false);
  }
  at("solve-hint").textContent = "";
  showAnswers();
}

function noise() {
  return desk.forward ? Number(at("noise").value) / 100 : 0;
}

function forget() {
  predictor.cancel();
  solver.cancel();
  labeller.cancel();
  Object.assign(desk, { solved: null, result: null, classical: null, labelled: null, unit: null });
}

function failed(error, asker = null) {
  if (error.busy && asker) {
    const seconds = error.wait ?? 2;
    const words = `${error.title.toLowerCase()}; again in ${seconds} s`;
    if (asker === labeller) reader.say(words);
    else at("solve-hint").textContent = words;
    asker.ask(1000 * seconds);
  } else if (asker === solver && error.kind === "no-reference") {
    at("auto").checked = false;
    at("solve").disabled = true;
    at("solve-hint").textContent = error.message;
  } else {
    if (error.status === 401 || error.status === 403) openKey(true);
    if (asker === solver) at("solve-hint").textContent = "";
    if (asker === predictor) unanswered();
    trouble.show(error);
  }
}

/** Nothing that is still to be seen belongs to the question. */
function unanswered() {
  desk.result = null;
  for (const role of ["measured", "prediction", "difference"]) panels[role].age();
  at("sentence").textContent = "";
  showAnswers();
}

// What is shown

function showAnswers() {
  const { result, classical } = desk;
  const solved = classical?.revision === desk.revision ? classical : null;
  if (result) showPrediction(result, solved);
  if (solved && cards.dimensions(desk.model.card) === 2) showClassical(solved);
  const truth = result && truthOf(result, solved);
  if (truth && fields.sameShape(truth, result.output)) showDifference(result.output, truth);
  else at("error").textContent = "–";
  at("predict-time").textContent = result ? duration(result.milliseconds) : "–";
  at("classical-time").textContent = solved ? duration(solved.milliseconds) : "–";
  at("download-output").disabled = !result;
  say(result, solved, truth);
}

/** What a prediction is held against: the truth that was drawn, or the classical solution if there is one. */
function truthOf({ truth, output, revision }, solved) {
  if (desk.forward) return fields.sameShape(truth, output) ? truth : fields.blockMeans(truth, output.shape, cards.blockExtent(desk.model.card));
  return solved?.revision === revision ? solved.output : null;
}

function showPrediction({ output, input, truth }, solved) {
  const curve = cards.dimensions(desk.model.card) === 1;
  if (desk.forward) {
    panels.measured.show(input, fields.range(input));
    panels.prediction.show(output, panels.input.field ? widest(desk.base, fields.range(truth)) : fields.range(output));
  } else if (curve) {
    const [low, high] = fields.range(output, ...(solved ? [solved.output] : []));
    const room = 0.15 * (high - low || 1);
    panels.prediction.show(output, [low - room, high + room], solved?.output);
  } else panels.prediction.show(output, fields.range(output, ...(solved ? [solved.output] : [])));
}

function showClassical({ output }) {
  panels.classical.show(output, desk.forward ? widest(desk.base, fields.range(desk.field)) : fields.range(output, desk.result?.output ?? output));
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

/** What the card says about this question. */
function showFacts() {
  const { card } = desk.model;
  const shape = desk.field.shape;
  const row = cards.measured(card, shape, noise());
  at("measured-error").textContent = row ? percent(row.relative_l2) : "–";
  const level = row?.noise ? ` with ${percent(row.noise)} of noise` : "";
  at("measured-note").textContent = row ? `mean of ${row.fields} test fields${level}${row.worst ? `, worst ${percent(row.worst)}` : ""}` : "not published for this grid";
  const trust = cards.trust(card, shape, desk.origin);
  if (desk.version && desk.version !== card.version) trust.unshift({ good: false, text: `You ask version ${desk.version}; what is said here is of version ${card.version}.` });
  at("trust").replaceChildren(...trust.map(({ good, text }) => item(text, good ? "good" : "care")));
  showProgram();
}

function item(text, kind) {
  const made = document.createElement("li");
  made.textContent = text;
  made.dataset.kind = kind;
  return made;
}

let saying = 0;

/** The result in a sentence, once it has come to rest: it is read out. */
function say(result, solved, truth) {
  clearTimeout(saying);
  if (!result) return;
  const output = title(desk.model.card.outputs[0]);
  const error = truth && fields.sameShape(truth, result.output) ? percent(fields.relativeL2(result.output, truth)) : null;
  const readings = noise() ? ` from readings with ${percent(noise())} of noise` : "";
  const parts = desk.forward
    ? [`${output}: recovered in ${duration(result.milliseconds)}${readings}, ${error} from the truth (relative L2)`, solved && `the classical inversion took ${duration(solved.milliseconds)}, ${percent(fields.relativeL2(solved.output, truth))} from the truth`]
    : [`${output}: predicted in ${duration(result.milliseconds)}`, solved && `the classical solution took ${duration(solved.milliseconds)}`, error && `they differ by ${error} (relative L2)`];
  saying = setTimeout(() => (at("sentence").textContent = `${parts.filter(Boolean).join("; ")}.`), 500);
}

function setAuto() {
  const { card } = desk.model;
  const usual = cards.classical(card, shapeOf(cards.firstGrid(card)));
  at("auto").checked = !desk.forward && usual !== undefined && usual.milliseconds < AT_ONCE;
  at("solve").disabled = false;
  panels.classical.clear("not solved yet");
  panels.difference.clear(desk.forward ? "" : "compared when it is solved");
  at("error-note").textContent = desk.forward ? "relative L2 to the drawn field" : "relative L2 to the classical solution";
}

function solverHint() {
  const usual = cards.classical(desk.model.card, desk.field.shape, noise());
  if (!usual || usual.milliseconds < AT_ONCE) return "";
  return `took ${duration(usual.milliseconds)} on ${cards.gridText(usual.grid)} points when that was measured`;
}

function showProgram() {
  const { model, version, field, origin, language } = desk;
  const words = takesWords(model.card);
  const text = program(language, words ? spoken() : {
    model: model.name,
    version,
    input: model.card.inputs[0].name,
    output: model.card.outputs[0].name,
    points: field.shape[0],
    seed: origin.kind === "example" && !desk.forward ? origin.seed : null,
    classical: !desk.forward,
  });
  at("program").firstElementChild.textContent = text;
}

/** The text as a program asks it. */
function spoken() {
  const { model, version } = desk;
  return { model: model.name, version, input: model.card.inputs[0].name, text: reader.area.value.trim(), tokens: [...(reader.tokens?.data ?? [])] };
}

function readAll(place) {
  for (const panel of Object.values(panels)) panel.read(place);
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
    const { maximum } = desk.model.card.grid;
    const most = maximum ** cards.dimensions(desk.model.card);
    if (file.size > 8 * most + 20_000) throw new Error(`it has ${file.size} bytes; the largest grid takes ${8 * most} as float64.`);
    const { shape, data } = decode(await file.arrayBuffer(), most);
    const sizes = shape.length > cards.dimensions(desk.model.card) && shape[0] === 1 ? shape.slice(1) : shape;
    if (sizes.length !== cards.dimensions(desk.model.card)) throw new Error(`it has shape (${shape}); one field with axes ${painted().grid.axes.join(", ")} is drawn here.`);
    if (asReading) setForward(null);
    if (desk.field) remember();
    if (asReading) setBase(fields.range({ data }));
    setField({ shape: sizes, data }, { kind: "own" });
  } catch (error) {
    trouble.show(new Error(`The file “${file.name}” is not drawn: ${error.message}`));
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
  desk.language = tab.id.slice("tab-".length);
  if (desk.field || takesWords(desk.model.card)) showProgram();
}

async function copyProgram() {
  const code = at("program").firstElementChild;
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    at("copy").textContent = "Copied";
  } catch {
    at("copy").textContent = "Selected"; // without HTTPS the clipboard is closed to pages
  }
  setTimeout(() => (at("copy").textContent = "Copy"), 1500);
}

// Wiring

function wire() {
  const on = (id, type, act) => at(id).addEventListener(type, act);
  on("model", "change", () => choose(desk.models.find(({ name }) => name === at("model").value)));
  on("version", "change", () => {
    desk.version = Number(at("version").value) || null;
    takesWords(desk.model.card) ? asked() : changed();
  });
  on("grid", "change", () => (at("grid").value === "other" ? at("points-label").hidden = false : chooseGrid(Number(at("grid").value))));
  on("points", "change", () => at("points").reportValidity() && chooseGrid(Number(at("points").value)));
  on("random", "click", () => {
    at("seed").value = desk.origin?.kind === "example" ? Number(at("seed").value) + 1 : at("seed").value;
    redraw();
  });
  on("seed", "change", () => at("seed").reportValidity() && redraw());
  on("blobs", "click", scatter);
  on("fill", "click", () => desk.field && replace(fields.full(desk.field.shape, panels.input.view.dimensions === 1 ? 0 : pen.value)));
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
  on("auto", "change", () => at("auto").checked && desk.classical?.revision !== desk.revision && solver.ask());
  on("solve", "click", () => solver.restart());
  on("key-open", "click", () => openKey(at("key-form").hidden));
  on("key-form", "submit", (event) => event.preventDefault());
  on("key", "change", () => {
    api.useKey(at("key").value.trim());
    load();
  });
  on("copy", "click", copyProgram);
  on("download-input", "click", () => {
    const input = takesWords(desk.model.card) ? reader.tokens : desk.forward ? desk.result?.input : desk.field;
    if (input) save(input, desk.model.card.inputs[0].name);
  });
  on("download-output", "click", () => save((desk.labelled ?? desk.result).output, desk.model.card.outputs[0].name));
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
    view.addEventListener("pointermove", (event) => readAll(panel.field && panel.view.place(event)));
    view.addEventListener("pointerleave", () => readAll(null));
  }
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.target.matches("input, textarea")) {
      event.preventDefault();
      undo();
    }
  });
  desk.dark = darkness((dark) => {
    desk.dark = dark;
    if (!panels.difference.view?.ramp) return;
    panels.difference.view.ramp = divergent(dark);
    if (desk.result) showAnswers();
  });
}

/** A field of the training distribution; where a reading was uploaded, the truth is drawn again. */
function redraw() {
  if (desk.field) remember();
  if (partner() !== desk.forward) setForward(partner());
  drawExample();
}

let scattered = 0;

function scatter() {
  if (!desk.field) return;
  const [low, high] = desk.base;
  const curve = panels.input.view.dimensions === 1;
  const value = pen.value === low ? high : pen.value;
  replace(fields.blobs(desk.field.shape, curve ? 0 : low, curve ? high : value, (scattered += 1), pen));
}

function replace(field) {
  remember();
  setField(field, { kind: "own" });
}

wire();
setSize();
load();
trouble.watch();
