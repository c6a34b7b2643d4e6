/** The parameters of a model: a number input each, with a slider where the card has a range. */

import { inUnits, label } from "./card.js";
import { ends } from "./numbers.js";

export class Parameters {
  values = {};

  /**
   * @param {HTMLElement} section
   * @param {{begin: () => void, changed: () => void}} host `begin` is called before the first change of a series.
   */
  constructor(section, host) {
    Object.assign(this, { section, host });
  }

  /** Show controls for the parameters of a card. */
  open(parameters) {
    this.section.hidden = parameters.length === 0;
    this.controls = Object.fromEntries(parameters.map((parameter) => [parameter.name, new Control(parameter, this)]));
    this.section.replaceChildren(...Object.values(this.controls).map(({ element }) => element));
    this.set({});
  }

  /** Set numbers by name; a parameter that is not named gets its default. */
  set(values) {
    for (const [name, control] of Object.entries(this.controls)) control.show(values[name] ?? control.usual);
    this.values = Object.fromEntries(Object.entries(this.controls).map(([name, { value }]) => [name, value]));
  }

  /** Return whether all numbers are the defaults. */
  get usual() {
    return Object.entries(this.controls).every(([name, { parameter }]) => this.values[name] === parameter.default);
  }

  /** Return the numbers of parameters without a default, by name. */
  get withoutDefault() {
    return Object.fromEntries(Object.entries(this.values).filter(([name]) => (this.controls[name].parameter.default ?? null) === null));
  }

  change(name, value) {
    this.values = { ...this.values, [name]: value };
    this.host.changed(name);
  }
}

class Control {
  #begun = false;

  constructor(parameter, owner) {
    Object.assign(this, { parameter, owner });
    const { minimum, maximum } = parameter;
    this.element = document.createElement("label");
    this.element.className = "slider parameter";
    const head = document.createElement("span");
    const name = document.createElement("b");
    name.textContent = label(parameter) + inUnits(parameter);
    this.number = this.#input("number", name.textContent);
    head.append(name, this.number);
    this.element.append(head);
    if ((minimum ?? null) !== null && (maximum ?? null) !== null) {
      this.slider = this.#input("range", `${name.textContent}, ${ends([minimum, maximum]).join(" to ")}`);
      this.element.append(this.slider);
    }
  }

  /** The default, else the middle of the range. */
  get usual() {
    const { default: usual, minimum, maximum } = this.parameter;
    return usual ?? ((minimum ?? 0) + (maximum ?? minimum ?? 0)) / 2;
  }

  show(value) {
    this.value = value;
    if (document.activeElement !== this.number) this.number.value = Number(value.toPrecision(6));
    if (this.slider) this.slider.value = value;
  }

  #input(type, name) {
    const input = document.createElement("input");
    const { minimum, maximum } = this.parameter;
    Object.assign(input, { type, step: "any", min: minimum ?? "", max: maximum ?? "" });
    input.setAttribute("aria-label", name);
    for (const kind of ["pointerdown", "focus", "keydown"]) input.addEventListener(kind, () => (this.#begun = false));
    input.addEventListener("input", () => this.#changed(input));
    input.addEventListener("blur", () => this.show(this.value));
    return input;
  }

  #changed(input) {
    if (!Number.isFinite(input.valueAsNumber)) return;
    if (!this.#begun) this.owner.host.begin();
    this.#begun = true;
    this.show(input.valueAsNumber);
    this.owner.change(this.parameter.name, this.value);
  }
}
