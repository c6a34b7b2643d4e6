/** What is shown of responses: pictures, figures, sentences and the program. */

import * as cards from "./card.js";
import * as fields from "./fields.js";
import { showWorth } from "./models.js";
import { duration, percent } from "./numbers.js";
import { program } from "./program.js";
import * as published from "./published.js";
import { badges, ofFrame, show as showBadges } from "./quality.js";
import { compare, markLate, noise } from "./requests.js";
import { measure, sentence } from "./result.js";
import { at, figures, inputs, outputs, reader, state, times } from "./state.js";
import { takesText } from "./vocabulary.js";

const QUICK = 1000; // milliseconds: slower solvers are called only on demand
const FRAME_MILLISECONDS = 120; // between two frames of a trajectory that is played

export function showResults() {
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
  const coverage = inputs.sample && published.coverage(card, inputs.grid, { noise: state.forward ? noise() : null, isUsual: inputs.isUsual }, result?.frame?.index ?? null);
  showBadges(at("quality"), result ? badges(result.quality, coverage) : []);
  if (result?.frame) showMeasured(published.measured(card, inputs.grid, noise()), result.frame);
  showTime("predict", result);
  showTime("classical", solved);
  at("download-output").disabled = result?.revision !== state.revision;
  announce(result, solved, truth);
  markLate();
}

/** Return a result whose outputs and truth are those of the chosen frame, if they are trajectories. */
function framed(result) {
  const { card } = state.model;
  if (!cards.rollsOut(card)) return result;
  const frames = result.outputs[card.outputs[0].name].shape[0];
  const index = Math.min(Number(at("frame").value), frames) - 1;
  const time = Number(cards.timeOf(card, index).toPrecision(6));
  Object.assign(at("frame"), { max: frames });
  inputs.showFrame(index);
  at("frame-shown").textContent = `${index + 1} of ${frames}, time ${time}`;
  const chosen = (found) => Object.fromEntries(Object.entries(found ?? {}).map(([name, field]) => [name, fields.frame(field, index)]).filter(([, field]) => field));
  const quality = result.quality && ofFrame(result.quality, result.reported, index);
  return { ...result, quality, outputs: chosen(result.outputs), truth: chosen(result.truth), frame: { index, frames, time } };
}

/** Show one frame after the other until the last one, or stop. */
export function play(is) {
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

export let playing = 0;

/** Return what a prediction is compared with: what was drawn, the truth of a test sample, or the classical solution. */
function truthOf({ drawn, truth, outputs: found, revision, sample }, solved) {
  if (state.forward) return { outputs: drawnTruth(drawn, found), kind: "drawn" };
  if (truth && Object.keys(truth).length) return { outputs: truth, kind: "sample", source: sample.origin.kind === "sample" ? "test sample" : "file" };
  return solved?.revision === revision ? { outputs: solved.outputs, kind: "solved" } : null;
}

/** Return the drawn field on the grid of the output. */
function drawnTruth(drawn, found) {
  const [{ name }] = state.model.card.outputs;
  const truth = drawn[name];
  return { [name]: fields.sameShape(truth, found[name]) ? truth : fields.blockMeans(truth, found[name].shape, cards.blockExtent(state.model.card)) };
}

function showPrediction({ outputs: found, reported, request, revision, sample, frame }, truth) {
  const { card } = state.model;
  if (state.forward) outputs.showMeasurement(request[card.inputs[0].name]);
  if (!truth && revision === state.revision && !at("auto").checked) outputs.clear("not solved yet", "");
  const whole = scalesOf(cards.outputFields(card));
  if (!state.forward) inputs.share(scalesOf(card.inputs));
  const when = frame ? `, time ${frame.time}` : "";
  figures.show(found, truth?.kind === "sample" ? truth.outputs : undefined, reported);
  outputs.show(found, truth, state.forward ? {} : sample.fields, { base: state.forward ? baseRange() : null, whole, drawn: drawnRanges(), when });
}

/** Return by output the range of the curve that is drawn of the same quantity: both have one scale, unless the output needs more. */
function drawnRanges() {
  if (!outputs.isCurve) return {};
  const alike = (tensor) => inputs.drawings.find(({ channel }) => cards.sameQuantity(channel.tensor, tensor));
  return Object.fromEntries(cards.outputFields(state.model.card).flatMap((tensor) => (alike(tensor) ? [[tensor.name, alike(tensor).view.range]] : [])));
}

/**
 * Return ranges by name for tensors: those of all frames of a trajectory and of the same quantity among inputs and outputs, so
 * that a colour means one value in all pictures.
 */
function scalesOf(tensors) {
  const { card } = state.model;
  const { outputs: found, sample } = state.result;
  const all = [...card.inputs.map((tensor) => [tensor, sample.fields[tensor.name]]), ...cards.outputFields(card).map((tensor) => [tensor, found[tensor.name]])];
  const ranges = tensors.map((tensor) => {
    const alike = all.filter(([other, field]) => field && (other === tensor || cards.sameQuantity(other, tensor)));
    const isShared = alike.length > 1 || (cards.rollsOut(card) && cards.channels([tensor]).length === 1);
    const inside = ([other, field]) => (other.name === card.mask ? field : fields.within(field, sample.fields[card.mask]));
    return isShared && alike.length ? [tensor.name, fields.range(...alike.map(inside))] : null;
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
  const { name, value, note } = measure(state.model.card, result, truth, inputs.grid, noise());
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
export function showFacts() {
  const { card } = state.model;
  const row = published.measured(card, inputs.grid, noise());
  const worth = published.worth(card, inputs.grid, noise());
  showWorth(worth);
  outputs.poor = worth.kind === "poor" ? worth.error : null;
  at("measured-error").dataset.kind = worth.kind;
  showMeasured(row);
  const trust = published.trust(card, inputs.grid, inputs.sample.origin);
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
  at("measured-note").textContent = row ? `mean of ${published.testFields(row)}${which}` : "not published for this grid";
  at("measured-others").textContent = published.otherMeasures(state.model.card, own ?? row);
}

/** Show nothing but what holds for any input of the model, until there is one: what was shown is of another model or input. */
export function clear() {
  const { card } = state.model;
  clearTimeout(announcing);
  showWorth(published.worth(card, cards.firstGrid(card), noise()));
  showError(null, null);
  for (const id of ["predict", "classical"]) showTime(id, null);
  showBadges(at("quality"), []);
  at("measured-error").textContent = "–";
  for (const element of [at("sentence"), at("measured-note"), at("measured-others"), at("trust"), at("frame-shown"), at("program").firstElementChild]) element.replaceChildren();
  for (const id of ["solve", "download-input", "download-output"]) at(id).disabled = true;
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

export function setAuto() {
  const { card } = state.model;
  const usual = published.classical(card, cards.firstGrid(card));
  at("auto").checked = !state.forward && cards.solvable(state.model) && usual !== undefined && usual.milliseconds < QUICK;
  at("solve").disabled = false;
  outputs.clear("not solved yet", state.forward ? "" : "compared when it is solved");
}

/** Return how long a slow solver takes. */
export function solverHint() {
  const usual = published.classical(state.model.card, inputs.grid, noise());
  if (!usual || usual.milliseconds < QUICK) return "";
  return `took ${duration(usual.milliseconds)} on ${cards.gridText(usual.grid)} points in the published measurement`;
}

export function showProgram() {
  at("program").firstElementChild.textContent = program(state.language, takesText(state.model.card) ? textRequest() : fieldRequest());
}

/** Return the input as that of a program. */
export function fieldRequest() {
  const { model, version, forward } = state;
  const { origin, fields: drawn } = inputs.sample;
  return {
    model: model.name,
    version,
    inputs: forward ? [model.card.inputs[0].name] : Object.keys(drawn),
    parameters: inputs.hasUsualNumbers && !cards.takesGrid(model.card) ? {} : inputs.parameters.values,
    grid: inputs.requestedGrid,
    outputs: model.card.outputs.map(({ name }) => name),
    points: inputs.grid[0],
    origin: forward ? { kind: "own" } : origin,
    classical: cards.hasSolver(model.card) && cards.solvable(model) && !forward,
  };
}

/** Return the text as the input of a program. */
function textRequest() {
  const { model, version } = state;
  return { model: model.name, version, inputs: [model.card.inputs[0].name], text: reader.area.value.trim(), tokens: [...(reader.tokens?.data ?? [])] };
}

export function readAll(position) {
  for (const panel of panels()) panel.read(position);
}

export function panels() {
  return [...inputs.drawings.map(({ panel }) => panel), ...outputs.panels];
}

export function fillOptions(select, options) {
  const made = options.map(([value, text]) => new Option(text, value));
  select.replaceChildren(...made);
  select.disabled = options.length === 0;
}
