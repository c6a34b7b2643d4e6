/** What a response says about its own error: badges for the bound, the estimate, and inputs unlike the training data. */

import { atMost, percent } from "./numbers.js";

/** Return the quality of a response to one sample from its headers; members that it does not have are undefined. */
export function quality(headers) {
  const text = (name) => headers.get(`Petrov-${name}`) ?? undefined;
  const number = (name) => (text(name) === undefined ? undefined : Number(text(name)));
  return {
    bound: number("Error-Bound"),
    solve: number("Solve-Bound"),
    misfit: number("Misfit"),
    estimate: number("Error-Estimate"),
    novelty: number("Novelty"),
    outside: text("Outside") && text("Outside") === "true",
    solver: text("Solved-By"),
  };
}

/** Return the quality of one frame of a trajectory, from that of the response, whose arrays `reported` have a number per frame. */
export function ofFrame(whole, reported, frame) {
  const number = (name) => known(reported[name]?.data[frame]);
  const outside = number("outside");
  return { ...whole, estimate: number("error_estimate"), novelty: number("novelty"), outside: outside === undefined ? undefined : outside === 1, subject: "State" };
}

/** Return a number of a response; undefined for NaN, of what is not known. */
export function known(number) {
  return Number.isNaN(number) ? undefined : number;
}

/**
 * Return badges: `title`, `value`, `note`, and whether one calls for care.
 *
 * @param {object} quality
 * @param {{text: string, holds: boolean} | null} coverage How often the estimate held in a test; null where it is not known.
 */
export function badges({ bound, solve, misfit, estimate, novelty, outside, solver, subject = "Input" }, coverage) {
  const made = [];
  if (bound !== undefined) made.push({ title: "Error bound", value: `≤ ${atMost(bound)}`, note: "guaranteed, to the discrete solution of the equation as it was sent" });
  if (solve !== undefined) made.push({ title: "Solve bound", value: `≤ ${atMost(solve)}`, note: "guaranteed, to the discrete solution with the network's corrections" });
  if (misfit !== undefined) made.push({ title: "Misfit", value: percent(misfit), note: "distance between the input and the forward solution of the output" });
  if (estimate !== undefined) made.push(estimated(estimate, coverage, outside));
  if (outside !== undefined) made.push({ title: subject, value: outside ? "outside" : "inside", note: unlike(outside, novelty), care: outside });
  if (solver === "refined") made.push({ title: "Solved by", value: "method", note: "without the network's corrections" });
  if (solver === "solver") made.push({ title: "Solved by", value: "solver", note: "the classical one, in place of the network" });
  return made;
}

/** Return the badge of an estimate; one that seldom held, or was only tested on other inputs, is no promise. */
function estimated(estimate, coverage, outside) {
  if (coverage && !coverage.holds) return { title: "Error estimate, unreliable", value: percent(estimate), note: `it ${coverage.text} only`, care: true };
  const tested = coverage ? `it ${coverage.text}, which were` : "it is made for inputs that are";
  if (outside) return { title: "Error estimate, not for this input", value: percent(estimate), note: `${tested} like the training data`, care: true };
  return { title: "Error estimate", value: `≤ ${atMost(estimate)}`, note: coverage ? `to the true solution; it ${coverage.text}` : "to the true solution; how often it holds was not measured" };
}

function unlike(outside, novelty) {
  const share = novelty === undefined ? "" : `: ${percent(novelty)} of the calibration inputs are as unusual`;
  return `${outside ? "unlike" : "like"} the training data${share}`;
}

/** Show badges as a list; nothing where the response says nothing. */
export function show(list, found) {
  list.hidden = found.length === 0;
  list.replaceChildren(
    ...found.map(({ title, value, note, care }) => {
      const item = document.createElement("li");
      item.dataset.kind = care ? "care" : "good";
      for (const [tag, text] of [["span", title], ["b", value], ["small", note]]) item.append(Object.assign(document.createElement(tag), { textContent: text }));
      return item;
    }),
  );
}
