/** The text of a model of sequences: its tokens as the input, and its labels as bars. */

import { duration, percent } from "./numbers.js";
import { decode, encode, example } from "./vocabulary.js";

const MAX_BUTTONS = 40; // of symbols: larger vocabularies are typed
const MAX_LABELS = 10; // shown

export class Reader {
  #card = null;
  #read = [];

  /**
   * @param {HTMLElement} section
   * @param {() => void} changed Called when the input has changed.
   */
  constructor(section, changed) {
    this.section = section;
    this.changed = changed;
    this.area.addEventListener("input", () => this.#parse());
  }

  get area() {
    return this.#part("textarea");
  }

  /** The tokens of the text as an array, or null where it is no valid input. */
  get tokens() {
    return this.#read.length ? { shape: [this.#read.length], data: Int32Array.from(this.#read, ({ token }) => token) } : null;
  }

  /** Open a model; `keep` leaves the text. */
  open(card, keep) {
    this.#card = card;
    if (!keep) this.area.value = example(card);
    this.area.maxLength = 16 * card.grid.maximum + 16; // longer texts have too many tokens
    this.#offerSymbols();
    this.#facts();
    this.#parse();
  }

  /** Show the response of the model, or that there is none. */
  show(response) {
    this.section.dataset.state = response ? "fresh" : "stale";
    if (!response) return;
    const { vocabulary } = this.#card;
    const count = vocabulary.labels.length;
    const choices = Array.from({ length: response.output.data.length / count }, (_, row) => decode(vocabulary.labels, response.output.data.subarray(row * count, (row + 1) * count)));
    const { processor, milliseconds } = response;
    this.#part("[data-fact=time]").textContent = duration(processor ?? milliseconds);
    this.#part("[data-fact=time-note]").textContent = processor === undefined ? "round trip" : `processor time; ${duration(milliseconds)} round trip`;
    vocabulary.answer === "token" ? this.#showTokens(choices) : this.#showSequence(choices[0]);
  }

  /** Show a remark about the text. */
  say(text, invalid = false) {
    this.#part("#text-hint").textContent = text;
    this.area.setAttribute("aria-invalid", invalid);
  }

  #parse() {
    this.#read = [];
    const { vocabulary, grid } = this.#card;
    try {
      const read = encode(vocabulary, this.area.value);
      if (read.length > grid.maximum) throw new Error(`${read.length} tokens; the model takes at most ${grid.maximum}.`);
      this.#read = read;
      this.say(read.length ? this.#remark(read) : "Type symbols of the vocabulary, or press their buttons.");
    } catch (error) {
      this.say(error.message, true);
    }
    this.show(null);
    this.changed();
  }

  /** Say how long a text is, and whether a model that learned texts by heart has learned it. */
  #remark(read) {
    const { grid, training } = this.#card;
    const learned = training.by_heart?.includes(read.map(({ symbol }) => symbol).join(" ")) ?? true;
    const length = `${read.length} of at most ${grid.maximum} tokens`;
    return learned ? length : `${length}. This is not one of the ${training.by_heart.length} sequences that were learned by heart: its labels mean nothing.`;
  }

  #showSequence([first, ...others]) {
    this.#part("[role=status]").textContent = `${first.label}, with a probability of ${percent(first.share)}`;
    this.#bars([first, ...others].slice(0, MAX_LABELS).map(({ label, share }) => [label, "", share]));
  }

  #showTokens(choices) {
    this.#part("[role=status]").textContent = choices.map(([{ label }]) => label).join(" ");
    this.#bars(choices.map(([{ label, share }], i) => [this.#read[i].symbol, label, share]));
  }

  /** Show rows of a name, its label and the probability. */
  #bars(rows) {
    const made = rows.map(([name, label, share]) => {
      const row = document.createElement("li");
      const bar = element("i", "");
      bar.style.inlineSize = `${100 * share}%`;
      const track = element("span", "", "track");
      track.append(bar);
      row.append(element("b", name), element("span", label), track, element("span", percent(share)));
      return row;
    });
    this.#part("ol").replaceChildren(...made);
    this.#part("ol").dataset.labelled = this.#card.vocabulary.answer;
  }

  #offerSymbols() {
    const symbols = this.#card.vocabulary.pattern === null ? [] : this.#card.vocabulary.words.slice(1);
    const made = (symbols.length <= MAX_BUTTONS ? symbols : []).map((symbol) => {
      const button = element("button", symbol, "quiet");
      button.type = "button";
      button.addEventListener("click", () => this.#insert(symbol));
      return button;
    });
    const back = element("button", "⌫", "quiet");
    back.type = "button";
    back.setAttribute("aria-label", "Remove the last symbol");
    back.addEventListener("click", () => this.#write(this.#read.slice(0, -1).map(({ symbol }) => symbol).join(" ")));
    this.#part("[role=group]").replaceChildren(...made, ...(made.length ? [back] : []));
  }

  #insert(symbol) {
    const { selectionStart, selectionEnd, value } = this.area;
    const [before, after] = [value.slice(0, selectionStart).trimEnd(), value.slice(selectionEnd).trimStart()];
    const head = `${before}${before && " "}${symbol}`;
    this.#write(`${head}${after && " "}${after}`, head.length);
  }

  #write(text, caret = text.length) {
    this.area.value = text;
    this.area.setSelectionRange(caret, caret);
    this.#parse();
  }

  /** Show the published figures of the model. */
  #facts() {
    const { accuracy = [], training, vocabulary } = this.#card;
    const [row] = accuracy;
    this.#part("h2").textContent = vocabulary.answer === "token" ? "The label of every token" : "The label of the text";
    this.#part("[data-fact=accuracy]").textContent = row ? percent(row.accuracy) : "–";
    this.#part("[data-fact=accuracy-note]").textContent = row ? `of ${row.sequences} ${row.split} sequences` : "not published";
    this.#part("[data-fact=majority]").textContent = row ? percent(row.majority) : "–";
    this.#part("[data-fact=labels]").textContent = vocabulary.labels.length;
    this.#part("[data-fact=training]").textContent = training.distribution ? `The accuracy was measured on: ${training.distribution}.` : "";
  }

  #part(selector) {
    return this.section.querySelector(selector);
  }
}

function element(name, text, kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
