/** What is said about a prediction: its error, what that is measured against, and the sentence. */

import * as cards from "./card.js";
import * as fields from "./fields.js";
import { duration, percent } from "./numbers.js";
import * as published from "./published.js";

const LEAST_OWN = 0.1; // of the difference: an error of the solver that is worth a word

/** Return the relative L2 error per output, where it can be compared; of a number its error in the usual deviations. */
export function errors(card, found, truth) {
  const comparable = Object.keys(found).filter((name) => truth?.outputs[name] && fields.sameShape(found[name], truth.outputs[name]));
  const known = comparable.map((name) => ({ name, error: cards.numbers(card).some((tensor) => tensor.name === name) ? inDeviations(card, name, found[name], truth.outputs[name]) : fields.relativeL2(found[name], truth.outputs[name]) }));
  return known.filter(({ error }) => Number.isFinite(error)); // a truth of zero has no relative error
}

/** Return the root of the mean square of a number's error over its components, in deviations of the training samples. */
function inDeviations(card, name, found, truth) {
  const rows = (card.scalars ?? []).filter(({ output }) => output === name);
  const squares = rows.map(({ deviation }, part) => ((found.data[part] - truth.data[part]) / deviation) ** 2);
  return rows.length ? Math.sqrt(squares.reduce((sum, each) => sum + each) / rows.length) : NaN;
}

/** Return the largest error over the deviation from the mean in words; nothing where a domain has an outside. */
function deviations(card, found, truth) {
  const comparable = cards.outputFields(card).filter(({ name }) => truth.outputs[name] && fields.sameShape(found[name], truth.outputs[name]));
  const all = comparable.map((tensor) => fields.ofDeviation(found[tensor.name], truth.outputs[tensor.name], cards.components(tensor), cards.scattered(card)));
  const known = all.filter(Number.isFinite); // a constant truth has no such error
  return known.length && !card.mask ? `; ${percent(Math.max(...known))} of the deviation from the mean` : "";
}

function worst(card, found, truth) {
  return percent(Math.max(...errors(card, found, truth).map(({ error }) => error)));
}

/**
 * Return the error of a result: what it is called, its value, and what it is measured against.
 *
 * @param {object} card
 * @param {object | null} result The prediction, of a trajectory one `frame`.
 * @param {{outputs: object, kind: "drawn" | "sample" | "solved"} | null} truth
 * @param {number[]} grid
 * @param {number} noise 0 to 1.
 */
export function measure(card, result, truth, grid, noise) {
  const known = result ? errors(card, result.outputs, truth) : [];
  const frame = result?.frame ? `, frame ${result.frame.index + 1} of ${result.frame.frames}` : "";
  const name = ({ drawn: "From the truth", sample: "Error" }[truth?.kind] ?? "Difference") + frame;
  if (!truth) return { name, value: "–", note: "no truth is known" };
  const measures = { drawn: "relative L2 to the drawn field", sample: "relative L2 to the truth", solved: `relative L2 to the classical solution${ofSolver(card, grid, noise, known)}` };
  const each = known.length > 1 ? `: ${known.map(({ name: output, error }) => `${titleOf(card, output)} ${percent(error)}`).join(", ")}` : "";
  const numbers = cards.numbers(card).length ? "; of a number in deviations of the training samples" : "";
  const spread = result && known.length ? deviations(card, result.outputs, truth) : "";
  const zero = result && !known.length ? "; it is zero, or on another grid" : "";
  return { name, value: known.length ? worst(card, result.outputs, truth) : "–", note: measures[truth.kind] + each + spread + numbers + zero };
}

function titleOf(card, name) {
  return cards.title(card.outputs.find((tensor) => tensor.name === name));
}

/** Return that the solver on this grid has an error of its own, where it is published. */
function ofSolver(card, grid, noise, known) {
  const row = published.classical(card, grid, noise);
  const isSmall = known.every(({ error }) => !(row?.relative_l2 > LEAST_OWN * error));
  if (!row || String(row.grid) !== String(grid) || isSmall) return "";
  return ` on this grid, which is itself ${percent(row.relative_l2)} off the truth (mean of ${row.fields} fields)`;
}

/** Return the result in a sentence. */
export function sentence(card, { result, solved, truth, inverse, noise }) {
  const output = card.outputs.map(cards.title).join(" and ") + (result.frame ? ` at time ${result.frame.time}` : "");
  const error = truth && errors(card, result.outputs, truth).length ? worst(card, result.outputs, truth) : null;
  const from = solved && truth && truth.kind !== "solved" ? `, ${worst(card, solved.outputs, truth)} from the truth` : "";
  const readings = inverse && noise ? ` from readings with ${percent(noise)} of noise` : "";
  const isTrue = inverse || truth?.kind === "sample";
  const parts = [
    `${output}: ${inverse ? "recovered" : "predicted"} in ${time(result)}${readings}${isTrue && error ? `, ${error} from the truth (relative L2)` : ""}`,
    solved && `the classical ${inverse ? "inversion" : "solution"} took ${time(solved)}${from}`,
    !isTrue && error && `they differ by ${error} (relative L2)`,
  ];
  return `${parts.filter(Boolean).join("; ")}.`;
}

function time({ processor, milliseconds }) {
  return processor === undefined ? `${duration(milliseconds)} (round trip)` : duration(processor);
}
