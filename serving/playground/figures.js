/** The outputs that are numbers: each with the half-width of its interval, and beside it the truth where it is known. */

import * as cards from "./card.js";
import { percent, within } from "./numbers.js";
import * as published from "./published.js";
import { known } from "./quality.js";

const ALONE = "error_estimate"; // what a response calls the half-width of the only output; of others behind a point their name

export class Figures {
  /** @param {HTMLElement} list Holds the numbers. */
  constructor(list) {
    this.list = list;
  }

  /** Leave the numbers of another model out. */
  open(card) {
    this.card = card;
    this.list.hidden = cards.numbers(card).length === 0;
    this.list.replaceChildren();
  }

  /** Mark the numbers as outdated. */
  age() {
    this.list.dataset.state = "stale";
  }

  /**
   * Show numbers, one per component.
   *
   * @param {Record<string, {data: Float32Array}>} outputs By name.
   * @param {Record<string, {data: Float32Array}> | undefined} truth True outputs, where they are known.
   * @param {Record<string, {data: Float32Array}>} quality That of the response.
   */
  show(outputs, truth, quality) {
    this.list.dataset.state = "fresh";
    this.list.replaceChildren(...cards.numbers(this.card).flatMap((tensor) => this.#rows(tensor, outputs, truth, quality)));
  }

  #rows(tensor, outputs, truth, quality) {
    const widths = quality[`${ALONE}.${tensor.name}`] ?? (this.card.outputs.length === 1 ? quality[ALONE] : undefined);
    const units = tensor.units && tensor.units !== "1" ? ` ${tensor.units}` : "";
    return [...outputs[tensor.name].data].map((value, part) => {
      const width = known(widths?.data[part]);
      const actual = truth?.[tensor.name]?.data[part];
      const [shown, half, right] = within(width, value, width, actual);
      const notes = [cards.rest(tensor), interval(width, published.held(this.card, tensor.name, part)), actual === undefined ? "" : `true: ${right}${units}${miss(width, value - actual)}`];
      const name = cards.title(tensor) + (tensor.components?.length ? `, ${tensor.components[part]}` : "");
      const made = document.createElement("div");
      const texts = [["dt", name], ["dd", shown + (width === undefined ? "" : ` ± ${half}`) + units], ["dd", notes.filter(Boolean).join("; ")]];
      made.append(...texts.map(([tag, textContent]) => Object.assign(document.createElement(tag), { textContent })));
      made.lastElementChild.className = "note";
      return made;
    });
  }
}

/** Return what an interval is meant to hold, and how often it did. */
function interval(width, held) {
  if (width === undefined) return "";
  return held ? `the interval held ${percent(held.share)} of ${held.of} test samples` : "an interval for 90 % of inputs";
}

/** Return that a truth is not in its interval. */
function miss(width, apart) {
  return width !== undefined && Math.abs(apart) > width ? ", outside the interval" : "";
}
