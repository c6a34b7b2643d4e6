/** What is published of a model: its errors on test samples, and how far these hold for a request. */

import { gridText, gridded, grids, hasSolver, inWords, isMethod, scattered, takesGrid } from "./card.js";
import { percent } from "./numbers.js";

/** Return how many test fields a row of published errors is of, in words. */
export function testFields({ fields }) {
  return fields === 1 ? "1 test field" : `${fields} test fields`;
}

/** Return the published errors on a grid, at the nearest published level of noise (0 to 1); undefined if there are none. */
export function measured(card, shape, noise = 0) {
  return nearestNoise((card.errors ?? []).filter((row) => scattered(card) || String(row.grid) === String(shape)), noise);
}

/** Return what a row has by the other error measures of the card: their meanings and values, as text in lines. */
export function otherMeasures(card, row) {
  const names = Object.keys(card.measures ?? {}).filter((name) => name !== "relative_l2" && Number.isFinite(row?.[name]));
  return names.map((name) => `${card.measures[name]}: ${name === "correlation" ? row[name].toPrecision(3) : percent(row[name])}`).join("\n");
}

/** Return the published figures of the classical solver on a grid, or on the published grid that is nearest in size. */
export function classical(card, shape, noise = 0) {
  return hasSolver(card) ? nearestNoise(onNearestGrid(card.classical, shape), noise) : undefined;
}

/** Return the rows of figures whose grid is nearest in size. */
function onNearestGrid(rows, shape) {
  const size = (grid) => grid.reduce((product, points) => product * points, 1);
  const distance = (row) => Math.abs(Math.log(size(row.grid) / size(shape)));
  const closest = Math.min(...rows.map(distance));
  return rows.filter((row) => distance(row) === closest);
}

function nearestNoise(rows, noise) {
  const distance = (row) => Math.abs((row.noise ?? 0) - noise);
  return rows.reduce((best, row) => (best && distance(best) <= distance(row) ? best : row), undefined);
}

const LEAST_COVERAGE = 0.7; // of an estimate that is a promise

/**
 * Return for how many test samples the error estimate held, on the nearest grid and at the nearest level of noise.
 *
 * @param {object} card
 * @param {number[]} shape
 * @param {object} input
 * @param {number | null} input.noise 0 to 1; null where it is not known, which counts as the worst level.
 * @param {boolean} input.isUsual Whether the parameters and the inputs that have defaults have them.
 * @param {number | null} frame Index of a trajectory's frame.
 * @returns {{text: string, holds: boolean} | null} Null where it was not measured.
 */
export function coverage(card, shape, input, frame = null) {
  const found = frame === null ? tested(card, shape, input) : card.rollout?.[Math.min(frame, card.rollout.length - 1)];
  if ((found?.coverage ?? null) === null) return null;
  const fields = found.trajectories ?? found.fields ?? card.errors?.[0]?.fields;
  const where = frame !== null ? " at this frame" : scattered(card) ? "" : ` on ${gridText(found.grid)} points`;
  const level = input.noise || found.noise ? ` with ${percent(found.noise ?? 0)} of noise` : "";
  const other = conditions(found).map(([name, value]) => (name === "conditions" ? ` (${value})` : ` (${name} ${value})`));
  return { holds: found.coverage >= LEAST_COVERAGE, text: `held for ${percent(found.coverage)} of ${fields} test samples${where}${level}${other.join("")}` };
}

/** Return the row of the test of the estimates that is nearest. */
function tested(card, shape, { noise, isUsual }) {
  const rows = (card.calibration?.test ?? []).filter((row) => (row.coverage ?? null) !== null);
  const alike = rows.filter((row) => (conditions(row).length === 0) === isUsual);
  const nearest = onNearestGrid(alike.length ? alike : rows, shape);
  if (noise !== null) return nearestNoise(nearest, noise);
  return nearest.reduce((worst, row) => (worst && worst.coverage <= row.coverage ? worst : row), undefined);
}

/** Return what is special about the samples of a row of a test: names and texts. */
function conditions(row) {
  return Object.entries(row).filter(([, value]) => typeof value === "string");
}

const [ROUGH, POOR] = [0.05, 0.2]; // mean errors
const NEAR_MEAN = 0.5; // of the deviation from the mean: hardly better than the mean, however large that is

/**
 * Return what a model is worth in a sentence, and how that looks: "good", "care" or "poor".
 *
 * @param {object} card
 * @param {number[]} shape Shape of the input.
 * @param {number} noise 0 to 1.
 */
export function worth(card, shape, noise) {
  const own = measured(card, shape, noise);
  const row = own ?? nearestNoise(onNearestGrid(card.errors ?? [], shape), noise);
  if (!row) return { kind: "care", text: "No error is published for this model" };
  const error = row.relative_l2;
  const spread = Number.isFinite(row.vrmse) ? `, ${percent(row.vrmse)} of the deviation from the mean,` : "";
  const kind = error >= POOR || row.vrmse >= NEAR_MEAN ? "poor" : error >= ROUGH ? "care" : "good";
  const name = { poor: "Poor model: mean error", care: "Rough model: mean error", good: "Mean error" }[kind];
  const over = row.frames > 1 ? ` over the first ${row.frames} frames` : ""; // a longer rollout is worse at its end
  return { kind, error, text: `${name} ${percent(error)}${over}${spread} on ${testFields(row)}${own ? "" : ` of ${gridText(row.grid)} points`}` };
}

const [SEVERAL_WRONG, MOST_WRONG] = [0.8, 0.5]; // accuracies below which labels are often, or mostly, wrong

/** Return what a model of texts is worth, likewise. */
export function worthOfText({ accuracy = [] }) {
  const [row] = accuracy;
  if (!row) return { kind: "care", text: "No accuracy is published for this model" };
  const kind = row.accuracy < MOST_WRONG ? "poor" : row.accuracy < SEVERAL_WRONG ? "care" : "good";
  const name = { poor: "Poor model: right for", care: "Rough model: right for", good: "Right for" }[kind];
  return { kind, text: `${name} ${percent(row.accuracy)} of ${row.sequences ?? row.fields ?? "the"} test sequences` };
}

/** Return for which share of how many test samples the interval of a number held; null where it was not measured. */
export function held(card, name, part) {
  const row = (card.calibration?.test ?? []).find(({ intervals }) => intervals?.[name]);
  const share = row?.intervals[name][part]?.coverage ?? null;
  return share === null ? null : { share, of: row.fields };
}

/**
 * Return what the card warns of and how far the request is covered by published errors, in sentences.
 *
 * @param {object} card
 * @param {number[]} shape Shape of the input.
 * @param {{kind: "sample" | "example" | "own", index?: number}} origin Origin of the input.
 * @returns {{good: boolean, text: string}[]}
 */
export function trust(card, shape, origin) {
  const warnings = (card.warnings ?? []).map((text) => ({ good: false, text: inWords(card, text) }));
  const method = isMethod(card) ? { good: true, text: "Nothing was trained: the model is a classical method itself, and only test samples are compared with another one." } : null;
  return [...warnings, guesses(card), method, onGrid(card, shape), fromDistribution(card, origin)].filter(Boolean);
}

/** Return what was guessed of the axes; those with the same guesses are named together. */
function guesses(card) {
  const found = new Map();
  for (const entry of card.grid?.guessed ?? []) {
    const [axis, guess] = entry.split(".");
    found.set(axis, [...(found.get(axis) ?? []), guess]);
  }
  const axesWith = new Map();
  for (const [axis, entries] of found) axesWith.set(enumerated(entries), [...(axesWith.get(enumerated(entries)) ?? []), axis]);
  const parts = [...axesWith].map(([entries, names]) => `${entries} of ${enumerated(names)}`);
  return parts.length ? { good: false, text: `Guessed, not read from the data: ${parts.join("; ")}.` } : null;
}

function enumerated(names) {
  return names.join(", ").replace(/, ([^,]*)$/, " and $1");
}

function onGrid(card, shape) {
  if (scattered(card) || !gridded(card)) return null; // any number of points
  const grid = gridText(shape);
  const declared = grids(card).map(gridText);
  if (declared.includes(grid)) return { good: true, text: `The grid ${grid} is declared: errors are published for it.` };
  if (measured(card, shape)) return { good: true, text: `The grid ${grid} is not declared, but errors are published for it.` };
  return { good: false, text: `The grid ${grid} is accepted and not declared (${declared.join(", ")}): no error is published for it.` };
}

function fromDistribution(card, { kind, index }) {
  const own = takesGrid(card) ? "The numbers are" : "The field is";
  const distribution = card.training.distribution;
  if (kind === "sample") return { good: true, text: `The input is test sample ${index + 1}: the model was neither trained nor selected on it.` };
  if (!distribution) return null;
  if (kind === "example") return { good: true, text: `The field is drawn from the training distribution: ${distribution}.` };
  return { good: false, text: `${own} your own. The published errors are those of test samples like the training's: ${distribution}.` };
}
