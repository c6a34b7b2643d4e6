/** The inputs that are not drawn: samples of the service, and their grids. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { withoutPadding } from "./cloud.js";
import * as fields from "./fields.js";
import { drawnCard, setForward } from "./models.js";
import { failed } from "./requests.js";
import { fillOptions } from "./show.js";
import { at, inputs, state } from "./state.js";

export let fetching = new AbortController();

/** Show an input of the training distribution. */
export async function drawExample(grid) {
  const seed = Number(at("seed").value);
  const card = drawnCard();
  await fetched(async (signal) => {
    const field = await api.example(card.model, seed, grid[0], signal);
    const [{ name }] = cards.required(card);
    return { fields: { [name]: field }, parameters: {}, origin: { kind: "example", seed }, truth: null };
  });
}

/** Show a test sample with its truth. */
export async function openSample(index) {
  if (state.forward) setForward(null);
  const { card } = state.model;
  await fetched(async (signal) => {
    const { arrays: padded, count } = await api.sample(card.model, index, signal);
    const arrays = withoutPadding(padded, card);
    state.samples = count;
    return { fields: withoutDefaults(named(card.inputs, arrays), card), parameters: cards.entered(card, arrays), series: cards.series(card, arrays), origin: { kind: "sample", index }, truth: truthIn(arrays, card), grid: gridOfTruth(arrays, card) };
  });
}

/** Return the true outputs: fields are 0 outside the domain, as predictions are, whatever the data hold there. */
export function truthIn(arrays, card) {
  const inside = ([name, field]) => [name, fields.within(field, arrays[card.mask], 0)];
  return { ...named(card.outputs, arrays), ...Object.fromEntries(Object.entries(named(cards.outputFields(card), arrays)).map(inside)) };
}

/** Return the points per axis that the true outputs have, or those of the first grid where none is a field. */
function gridOfTruth(arrays, card) {
  const field = cards.outputFields(card).find(({ name }) => arrays[name]);
  return field ? arrays[field.name].shape.slice(-cards.dimensions(card)) : cards.firstGrid(card);
}

/** Return the arrays of these tensors by name, as far as there are any. */
export function named(tensors, arrays) {
  return Object.fromEntries(tensors.filter(({ name }) => arrays[name]).map(({ name }) => [name, arrays[name]]));
}

/** Return the fields without those that have their default everywhere. */
function withoutDefaults(found, card) {
  const isUsual = ({ name, default: usual }) => (usual ?? null) !== null && found[name]?.data.every((value) => value === usual);
  return Object.fromEntries(Object.entries(found).filter(([name]) => !card.inputs.some((tensor) => tensor.name === name && isUsual(tensor))));
}

/**
 * Show the sample that a function fetches, or a constant one where there is none, unless another is fetched meanwhile.
 *
 * @param {(signal: AbortSignal) => Promise<object>} fetch
 * @param {(sample: object) => void} show
 * @param {(error: Error) => void} refused Called with what is wrong.
 */
export async function fetched(fetch, show = (sample) => inputs.set(sample), refused = failed) {
  fetching.abort();
  fetching = new AbortController();
  const { signal } = fetching;
  busyInputs(true);
  try {
    const sample = await fetch(signal).catch((error) => {
      if (error.kind !== "no-example" || cards.scattered(state.model.card)) throw error;
      return inputs.constant(cards.firstGrid(state.model.card));
    });
    if (!signal.aborted) show(sample);
  } catch (error) {
    if (!signal.aborted) refused(error);
  } finally {
    if (!signal.aborted) busyInputs(false);
  }
}

function busyInputs(is) {
  for (const { panel } of inputs.drawings) panel.figure.setAttribute("aria-busy", is);
}

export async function chooseGrid(grid) {
  if (inputs.sample?.origin.kind === "example") await drawExample(grid);
  else if (inputs.sample) inputs.set(inputs.resized(grid), false);
}

/** Offer the declared grids and the present one. */
export function showGrids(shape) {
  const { card } = state.model;
  const declared = cards.grids(card).map(cards.gridText);
  const isOwn = !declared.includes(cards.gridText(shape)) && new Set(shape).size > 1;
  const offered = [...declared, ...(isOwn ? [cards.gridText(shape)] : [])];
  fillOptions(at("grid"), [...offered.map((text) => [text, text]), ["other", "other …"]]);
  at("grid").value = offered.includes(cards.gridText(shape)) ? cards.gridText(shape) : "other";
  Object.assign(at("points"), { min: card.grid.minimum, max: card.grid.maximum, value: shape[0] });
  at("points-label").hidden = at("grid").value !== "other" || cards.scattered(card) || !cards.gridded(card);
}

export function showSampleNumber(index) {
  const of = state.samples ? ` of ${state.samples}` : "";
  at("sample").textContent = index === null ? "Test sample" : `Test sample ${index + 1}${of}`;
}

export function stepSample(by) {
  const index = inputs.sample?.origin.index;
  const count = state.samples ?? 1;
  openSample(index === undefined ? 0 : (index + by + count) % count);
}
