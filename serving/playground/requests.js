/** The requests for what the page shows, after every change, and their errors. */

import * as api from "./api.js";
import * as cards from "./card.js";
import * as fields from "./fields.js";
import { drawnCard, moveTools } from "./models.js";
import { quality } from "./quality.js";
import { named, showGrids, showSampleNumber } from "./samples.js";
import { showFacts, showProgram, showResults, solverHint } from "./show.js";
import { at, figures, inputs, labeller, outputs, predictor, reader, solver, state, status, times } from "./state.js";

const PAUSE = 350; // milliseconds without a change before the classical solver is called
const LATE = 500; // milliseconds after a change by which a prediction that has not followed it is marked as outdated
const DEVIATION_FIELDS = 12; // which estimate the deviation to within a fifth

/** Handle a change of the request: predict at once, and solve classically after a pause. */
export function changed() {
  const { sample } = inputs;
  if (!sample) return;
  state.revision += 1;
  showGrids(inputs.grid);
  showSampleNumber(sample.origin.index ?? null);
  predictor.schedule();
  expectPrediction();
  solver.cancel();
  outputs.busy("classical", false);
  outputs.age("classical", "difference");
  for (const id of ["solve", "download-input"]) at(id).disabled = false;
  at("solve-hint").textContent = solverHint();
  compare(sample.truth);
  moveTools();
  showFacts();
}

let late = 0; // the timer, until the prediction is there
let isLate = false;

/** Mark the prediction as outdated when it is late: until then it stays as it is, so that it does not flicker while the user draws. */
function expectPrediction() {
  late ||= setTimeout(() => {
    isLate = true;
    markLate();
  }, LATE);
}

/** Mark what is shown of a prediction that has not followed the input, also after it was drawn again. */
export function markLate() {
  if (!isLate) return;
  outputs.age("prediction", "difference");
  times.age();
  at("download-output").disabled = true;
  waitsForPrediction(true);
}

function expectNone() {
  clearTimeout(late);
  late = 0;
  isLate = false;
  waitsForPrediction(false);
}

function waitsForPrediction(is) {
  outputs.busy("prediction", is);
  at("below").setAttribute("aria-busy", is);
}

/** Make room for what a prediction is compared with, where there is a truth or is going to be one, and for its figures. */
export function compare(truth) {
  const isComing = cards.solvable(state.model) && at("auto").checked;
  const is = Boolean(truth) || state.forward !== null || isComing;
  at("stage").dataset.truth = is ? "known" : "none";
  outputs.comparing = is;
  at("error").parentElement.hidden = !is;
  const isSolved = state.classical?.revision === state.revision;
  at("classical-figure").hidden = !cards.solvable(state.model) || !(isSolved || isComing);
}

/** Handle a change of the text, or of the model or version that it is sent to. */
export function textChanged() {
  labeller.cancel();
  state.labelled = null;
  at("download-input").disabled = !reader.tokens;
  at("download-output").disabled = true;
  showProgram();
  if (reader.tokens) labeller.schedule(PAUSE / 2);
}

export async function label(signal) {
  const { model, version } = state;
  const found = await api.predict(model.name, version, { [model.card.inputs[0].name]: reader.tokens }, signal);
  state.labelled = { ...found, output: found.outputs[model.card.outputs[0].name] };
  status.clear();
  reader.show(state.labelled);
  at("download-output").disabled = false;
}

export async function predict(signal) {
  const { revision, model } = state;
  const { sample } = inputs;
  const drawn = inputs.request();
  const request = state.forward ? { [model.card.inputs[0].name]: await measure(drawn, signal) } : drawn;
  const { outputs: found, headers, ...took } = await api.predict(model.name, state.version, request, signal, inputs.requestedGrid);
  const said = quality(headers);
  if (!cards.outputFields(model.card).length) delete said.estimate; // it is the half-width of a number, in its units
  expectNone();
  if (revision !== state.revision) expectPrediction();
  state.result = { outputs: named(model.card.outputs, found), quality: said, reported: found, ...took, revision, request, drawn, sample, truth: sample.truth };
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

export async function solve(signal) {
  const { revision, model } = state;
  const drawn = inputs.request();
  const request = state.forward ? { [model.card.inputs[0].name]: await measure(drawn, signal) } : drawn;
  outputs.busy("classical", true);
  at("solve-hint").textContent = "solving …";
  try {
    const { outputs: solved, headers, ...took } = await api.reference(model.name, request, signal);
    state.classical = { outputs: named(model.card.outputs, solved), ...took, revision };
  } finally {
    if (!signal.aborted) outputs.busy("classical", false);
  }
  at("solve-hint").textContent = solverHint();
  showResults();
}

export function noise() {
  return state.forward ? Number(at("noise").value) / 100 : 0;
}

export function forget() {
  predictor.cancel();
  solver.cancel();
  labeller.cancel();
  expectNone();
  Object.assign(state, { solved: null, result: null, classical: null, labelled: null, unit: null });
}

/** Say what is wrong; what the service is too busy for is tried again by its `source`. */
export function failed(error, source = null) {
  const inWords = (text) => (state.model ? cards.inWords(drawnCard(), text) : text);
  if (error.busy && source) {
    const seconds = error.wait ?? 2;
    const text = `${error.title.toLowerCase()}; retry in ${seconds} s`;
    if (source === labeller) reader.say(text);
    else if (source === solver) at("solve-hint").textContent = text;
    else status.show(error, inWords, `The page tries again in ${seconds} s.`);
    source.schedule(1000 * seconds);
  } else if (source === solver && error.kind === "no-reference") {
    at("auto").checked = false;
    at("solve").disabled = true;
    at("solve-hint").textContent = error.message;
  } else {
    if (error.wantsKey) openKey(true);
    if (source === solver) at("solve-hint").textContent = "";
    if (source === predictor) discardResult();
    status.show(error, inWords);
  }
}

/** Mark everything that is shown as outdated. */
function discardResult() {
  expectNone();
  state.result = null;
  outputs.age("measured", "prediction", "difference");
  times.age();
  figures.age();
  at("sentence").textContent = "";
  showResults();
}

/** Show or hide the field for the key. */
export function openKey(open) {
  at("key-form").hidden = !open;
  at("key-open").setAttribute("aria-expanded", open);
}
