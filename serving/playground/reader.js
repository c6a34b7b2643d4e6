/** A text that a person writes in, the question out; and a model's labels in, bars out. */

import { duration, percent } from "./numbers.js";
import { decode, encode, example } from "./words.js";

const MOST_BUTTONS = 40; // of words: more are typed
const MOST_LABELS = 10; // that are shown

export class Reader {
  #card = null;
  #read = [];

  /**
   * @param {HTMLElement} section
   * @param {() => void} changed Called when there is another question.
   */
  constructor(section, changed) {
    this.section = section;
    this.changed = changed;
    this.area.addEventListener("input", () => this.#understand());
  }

  get area() {
    return this.#part("textarea");
  }

  /** The tokens of the text as an array, or null where it is no question. */
  get tokens() {
    return this.#read.length ? { shape: [this.#read.length], data: Int32Array.from(this.#read, ({ token }) => token) } : null;
  }

  /** Turn to a model; `keep` leaves the text. */
  open(card, keep) {
    this.#card = card;
    if (!keep) this.area.value = example(card);
    this.area.maxLength = 16 * card.grid.maximum + 16; // longer ones have too many words
    this.#offerWords();
    this.#facts();
    this.#understand();
  }

  /** Show what the model answers, or that there is no answer. */
  show(answer) {
    this.section.dataset.state = answer ? "fresh" : "stale";
    if (!answer) return;
    const { vocabulary } = this.#card;
    const count = vocabulary.labels.length;
    const choices = Array.from({ length: answer.output.data.length / count }, (_, row) => decode(vocabulary.labels, answer.output.data.subarray(row * count, (row + 1) * count)));
    this.#part("[data-fact=time]").textContent = duration(answer.milliseconds);
    vocabulary.answer === "token" ? this.#showTokens(choices) : this.#showSequence(choices[0]);
  }

  /** A word about the question. */
  say(words, fault = false) {
    this.#part("#text-hint").textContent = words;
    this.area.setAttribute("aria-invalid", fault);
  }

  #understand() {
    this.#read = [];
    const { vocabulary, grid } = this.#card;
    try {
      const read = encode(vocabulary, this.area.value);
      if (read.length > grid.maximum) throw new Error(`${read.length} words: the model takes ${grid.maximum} at most.`);
      this.#read = read;
      this.say(read.length ? `${read.length} of at most ${grid.maximum} words` : "Write words of the model, or press them.");
    } catch (error) {
      this.say(error.message, true);
    }
    this.show(null);
    this.changed();
  }

  #showSequence([first, ...others]) {
    this.#part("[role=status]").textContent = `${first.label}, with a probability of ${percent(first.share)}`;
    this.#bars([first, ...others].slice(0, MOST_LABELS).map(({ label, share }) => [label, "", share]));
  }

  #showTokens(choices) {
    this.#part("[role=status]").textContent = choices.map(([{ label }]) => label).join(" ");
    this.#bars(choices.map(([{ label, share }], i) => [this.#read[i].word, label, share]));
  }

  /** Rows of a name, what it is called, and how sure that is. */
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

  #offerWords() {
    const words = this.#card.vocabulary.pattern === null ? [] : this.#card.vocabulary.words.slice(1);
    const made = (words.length <= MOST_BUTTONS ? words : []).map((word) => {
      const button = element("button", word, "quiet");
      button.type = "button";
      button.addEventListener("click", () => this.#insert(word));
      return button;
    });
    const back = element("button", "⌫", "quiet");
    back.type = "button";
    back.setAttribute("aria-label", "Take the last word away");
    back.addEventListener("click", () => this.#write(this.#read.slice(0, -1).map(({ word }) => word).join(" ")));
    this.#part("[role=group]").replaceChildren(...made, ...(made.length ? [back] : []));
  }

  #insert(word) {
    const { selectionStart, selectionEnd, value } = this.area;
    const [before, after] = [value.slice(0, selectionStart).trimEnd(), value.slice(selectionEnd).trimStart()];
    const head = `${before}${before && " "}${word}`;
    this.#write(`${head}${after && " "}${after}`, head.length);
  }

  #write(text, place = text.length) {
    this.area.value = text;
    this.area.setSelectionRange(place, place);
    this.#understand();
  }

  /** What the card says of the model. */
  #facts() {
    const { accuracy = [], training, vocabulary } = this.#card;
    const [row] = accuracy;
    this.#part("h2").textContent = vocabulary.answer === "token" ? "The label of every word" : "The label of the text";
    this.#part("[data-fact=accuracy]").textContent = row ? percent(row.accuracy) : "–";
    this.#part("[data-fact=accuracy-note]").textContent = row ? `of ${row.sequences} ${row.split} sequences` : "not published";
    this.#part("[data-fact=majority]").textContent = row ? percent(row.majority) : "–";
    this.#part("[data-fact=labels]").textContent = vocabulary.labels.length;
    this.#part("[data-fact=training]").textContent = training.distribution ? `The accuracy is that of: ${training.distribution}.` : "";
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
