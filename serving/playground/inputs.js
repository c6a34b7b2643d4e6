/** The input of a request: fields in panels to draw on, parameters, and the tools that change them. */

import * as cards from "./card.js";
import { colour, tide } from "./colours.js";
import { Drawing } from "./drawing.js";
import * as fields from "./fields.js";
import { short } from "./numbers.js";
import { Panel, figure } from "./panel.js";
import { Parameters } from "./parameters.js";

const MAX_UNDOS = 20;
const MOST_KEPT = 2 ** 25; // values of all of them, 128 MiB
const at = (id) => document.getElementById(id);

export class Inputs {
  /**
   * The present input; null before the first.
   *
   * `fields` has arrays by input name, without a batch axis. `parameters` has numbers by name. `origin` is
   * {kind: "sample", index}, {kind: "example", seed} or {kind: "own"}. `truth` has the true outputs by name; null where
   * they are not known. `series` has the arrays of parameters that have a value for every frame, until they are changed.
   * `grid` has the points per axis of the outputs where no input has them.
   */
  sample = null;
  card = null;
  scales = {}; // ranges by name of what is the same quantity elsewhere on the page, whose scales are one
  dark = false; // whether the page is
  drawings = [];
  active = null;
  slice = 0;
  frame = 0; // of a trajectory, whose values are shown of inputs that have one for each
  #history = [];
  #opened = new Set(); // names of inputs with a default that are drawn
  #scattered = 0;

  /** @param {{changed: () => void, moved: (position: number[] | null) => void}} host What to call. */
  constructor(host) {
    this.host = host;
    this.parameters = new Parameters(at("parameters"), { begin: () => this.sample && this.remember(), changed: (name) => this.sample && this.#numbered(name) });
    this.#wire();
  }

  /** Show panels for the inputs of a card, of a model or of the model whose solution is measured, in a colour map. */
  open(card, about, ramp = tide) {
    Object.assign(this, { card, about, ramp, scales: {}, sample: null, slice: 0, frame: 0 });
    this.#history = [];
    at("undo").disabled = true;
    this.parameters.open(cards.entries(card));
    this.#build();
  }

  /** Show a sample; `anew` offers the range of its values to the brush. */
  set(sample, anew = true) {
    this.sample = sample;
    const drawn = new Set(cards.pictured(this.card).map(({ name }) => name).filter((name) => sample.fields[name]));
    if (drawn.symmetricDifference(new Set(this.drawings.map(({ channel }) => channel.tensor.name))).size) this.#build(drawn);
    this.parameters.set(sample.parameters);
    sample.parameters = this.parameters.values;
    this.#showSlices();
    for (const drawing of this.drawings) {
      if (anew || !drawing.ends) drawing.setBase();
      drawing.show();
    }
    this.showBrush();
    this.host.changed();
  }

  /** Return the points per axis. */
  get grid() {
    if (!this.sample) return null;
    if (cards.takesGrid(this.card)) return this.sample.grid;
    const [{ shape }] = Object.values(this.sample.fields);
    return cards.scattered(this.card) ? shape.slice(0, 1) : shape.slice(-cards.dimensions(this.card));
  }

  /** Return the grid that a request says; none where the inputs have it, or nothing is on it. */
  get requestedGrid() {
    return cards.takesGrid(this.card) && cards.gridded(this.card) ? this.grid : undefined;
  }

  /** Return whether all parameters have their defaults, in all frames. */
  get hasUsualNumbers() {
    return this.parameters.usual && Object.keys(this.sample.series ?? {}).length === 0;
  }

  /** Return whether all parameters, and all inputs that have a default, have it. */
  get isUsual() {
    return this.hasUsualNumbers && Object.keys(this.sample.fields).length <= cards.required(this.card).length;
  }

  /** Return the request: arrays by name, as copies. */
  request() {
    return this.requestOf(this.sample);
  }

  /** Return the request for a sample. */
  requestOf({ fields: found, parameters, series = {} }) {
    const arrays = Object.entries(found).map(([name, field]) => [name, fields.copy(field)]);
    const numbers = Object.keys(parameters).length ? cards.sent(this.card, parameters) : {};
    return { ...Object.fromEntries(arrays), ...numbers, ...series };
  }

  /** Return a constant input on a grid. */
  constant(grid) {
    const values = this.card.inputs.filter(({ name }) => this.#isDrawn(name)).map((tensor) => [tensor.name, fields.full(this.#shapeOn(tensor, grid), tensor.default ?? 0.5)]);
    return { fields: Object.fromEntries(values), parameters: {}, origin: { kind: "own" }, truth: null, grid };
  }

  /** Return the present input on another grid. */
  resized(grid) {
    const lie = cards.axes(this.card).map(({ points }) => points);
    const linear = (name) => grid.length === 1 && name !== this.card.mask; // which has no values between 0 and 1
    const values = Object.entries(this.sample.fields).map(([name, field]) => [name, fields.resized(field, grid, lie, linear(name))]);
    return { ...this.sample, fields: Object.fromEntries(values), origin: { kind: "own" }, truth: null, grid };
  }

  /** Handle a change of values by the user: the input is their own, and its truth is not known. */
  edited() {
    this.sample = { ...this.sample, parameters: this.parameters.values, origin: { kind: "own" }, truth: null };
    this.host.changed();
  }

  /** Handle a move of points by the user: these are the fields now. */
  reshape(fields) {
    this.sample = { ...this.sample, fields };
    for (const drawing of this.drawings) drawing.show();
    this.edited();
  }

  /** Show the values that the step to a frame sees. */
  showFrame(index) {
    if (this.frame === index) return;
    this.frame = index;
    for (const drawing of this.drawings) if (cards.forced(drawing.channel.tensor)) drawing.show();
  }

  /** Share the scales of quantities that are also shown elsewhere: ranges by name of the input. */
  share(scales) {
    if (JSON.stringify(scales) === JSON.stringify(this.scales)) return;
    this.scales = scales;
    for (const drawing of this.drawings) drawing.show(drawing.view.dimensions === 1);
    this.showBrush();
  }

  /** Draw the points again after the direction has changed that they are seen from. */
  turned() {
    if (!this.sample) return;
    for (const drawing of this.drawings) drawing.show();
    this.host.sliced();
  }

  remember() {
    const copies = Object.entries(this.sample.fields).map(([name, field]) => [name, fields.copy(field)]);
    const brushes = this.drawings.map(({ base, ends, value, other }) => ({ base, ends, value, other }));
    this.#history.push([{ ...this.sample, fields: Object.fromEntries(copies) }, brushes]);
    const size = copies.reduce((sum, [, { data }]) => sum + data.length, 1);
    while (this.#history.length > Math.max(1, Math.min(MAX_UNDOS, MOST_KEPT / size))) this.#history.shift();
    at("undo").disabled = false;
  }

  undo() {
    const [before, brushes] = this.#history.pop() ?? [];
    at("undo").disabled = this.#history.length === 0;
    if (!before) return;
    this.drawings.forEach((drawing, i) => Object.assign(drawing, brushes[i]));
    this.set(before, false);
  }

  /** Make the tools act on a panel. */
  activate(drawing) {
    if (this.active === drawing || !drawing) return;
    this.active = drawing;
    for (const other of this.drawings) other.panel.figure.dataset.active = this.drawings.length > 1 && other === drawing && !drawing.fixed;
    at("active-name").textContent = drawing.channel.name;
    this.showBrush();
  }

  /** Show an input of the user, which can be undone. */
  adopt(sample) {
    if (this.sample) this.remember();
    this.set(sample);
  }

  /** Return the present input with a field of a file, of one panel or of all components. */
  replaced(shape, values) {
    const { tensor } = this.active.channel;
    const dimensions = cards.dimensions(this.card);
    const grid = shape.slice(-dimensions);
    const whole = String(shape) === String(this.#shapeOn(tensor, grid));
    if (!whole && shape.length !== dimensions) throw new Error(`it has shape (${shape}); expected one field with axes ${tensor.axes.slice(1).join(", ")}.`);
    const sample = this.sample ? this.resized(grid) : this.constant(grid);
    if (whole) sample.fields[tensor.name] = { shape, data: values };
    else sample.fields[tensor.name] = part(sample.fields[tensor.name], values, this.active.start * values.length);
    return sample;
  }

  /**
   * Return the inputs and parameters in the arrays of a file, which may hold the true outputs, too, of a model on points.
   *
   * A parameter that it does not hold has its default or, without one, the present number.
   *
   * @param {Record<string, {shape: number[], data: Float32Array} | null>} arrays By their names; others are ignored.
   */
  read(arrays) {
    const missing = cards.required(this.card).filter(({ name }) => !arrays[name]);
    if (missing.length) throw new Error(`it holds ${Object.keys(arrays).join(", ") || "nothing"}; expected ${missing.map(named).join(", ")}.`);
    const found = this.card.inputs.filter(({ name }) => arrays[name]);
    for (const tensor of found) {
      const { shape } = arrays[tensor.name];
      const lead = arrays[found[0].name].shape;
      const expected = cards.shapeOn(tensor, cards.scattered(this.card) ? lead.slice(0, 1) : lead.slice(-cards.dimensions(this.card)), shape[0]);
      if (String(shape) !== String(expected)) throw new Error(`${named(tensor)} has shape (${shape}); expected (${expected}), one field.`);
    }
    const truth = cards.scattered(this.card) ? this.card.outputs.filter(({ name }) => arrays[name]) : [];
    return {
      fields: Object.fromEntries(found.map(({ name }) => [name, arrays[name]])),
      parameters: { ...this.parameters.withoutDefault, ...cards.entered(this.card, arrays) },
      series: cards.series(this.card, arrays),
      origin: { kind: "own" },
      truth: truth.length ? Object.fromEntries(truth.map(({ name }) => [name, arrays[name]])) : null,
    };
  }

  get size() {
    return Number(at("size").value) / 100;
  }

  get keepsMean() {
    return at("mean").checked;
  }

  resizeBrush(sign) {
    at("size").value = Number(at("size").value) + sign;
    this.showSize();
  }

  showBrush() {
    const { active } = this;
    if (!active?.ends || active.isCurve) return;
    const [least, most] = active.offered;
    const text = (value) => short(value, active.ends[1] - active.ends[0]);
    Object.assign(at("value"), { min: least, max: most, value: active.value });
    at("value-shown").textContent = text(active.value);
    ["low", "high"].forEach((id, end) => {
      const value = active.ends[end];
      at(id).lastElementChild.textContent = text(value);
      at(id).setAttribute("aria-label", `Brush value ${text(value)}`);
      at(id).setAttribute("aria-pressed", value === active.value);
      at(id).firstElementChild.style.background = `rgb(${colour(active.view.ramp, active.share(value))})`;
    });
  }

  /** Handle a change of a parameter, which is one number for all frames then. */
  #numbered(name) {
    this.sample = { ...this.sample, series: Object.fromEntries(Object.entries(this.sample.series ?? {}).filter(([other]) => other !== name)) };
    this.edited();
  }

  /** Return a tensor's shape on a grid, with as many frames as the present input has. */
  #shapeOn(tensor, grid) {
    const other = this.card.inputs.find((each) => cards.forced(each) && this.sample?.fields[each.name]);
    const frames = other ? this.sample.fields[other.name].shape[0] : this.card.frames?.trained;
    return cards.shapeOn(tensor, grid, frames);
  }

  #isDrawn(name) {
    return this.#opened.has(name) || cards.required(this.card).some((tensor) => tensor.name === name);
  }

  /** Build the panels of the required inputs, and of those with a default that are drawn. */
  #build(drawn = new Set()) {
    this.#opened = drawn;
    const dimensions = cards.dimensions(this.card);
    const pictured = cards.pictured(this.card).filter(({ name }) => this.#isDrawn(name));
    const shown = pictured.length === 1 && cards.isMesh(this.card, pictured[0]) ? [{ tensor: pictured[0], component: 0, name: "Mesh" }] : cards.channels(pictured);
    at("stage").dataset.inputs = ["none", "one", "two"][shown.length] ?? "many";
    this.drawings = shown.map((channel) => {
      const panel = new Panel(figure("input", channel.tensor.name));
      panel.become(dimensions, dimensions === 1 ? null : this.ramp);
      panel.axes = cards.axes(this.card);
      panel.view.round = cards.scattered(this.card);
      const isMesh = cards.isMesh(this.card, channel.tensor);
      const rest = isMesh ? "" : cards.forced(channel.tensor) ? "at the step shown, drawn on from there" : cards.rollsOut(this.card) ? "at time 0" : cards.rest(channel.tensor);
      panel.describe(channel.name + (isMesh ? "" : cards.inUnits(channel.tensor)), [this.about, rest].filter(Boolean).join(", "));
      return new Drawing(this, channel, panel);
    });
    at("inputs").replaceChildren(...this.drawings.map(({ panel }) => panel.figure));
    this.#offerOthers();
    at("active").hidden = shown.length < 2 || cards.scattered(this.card);
    this.active = null;
    this.activate(this.drawings[0]);
    this.showSize();
  }

  /** Offer the inputs with a default that are not drawn. */
  #offerOthers() {
    const others = cards.pictured(this.card).filter(({ name }) => !this.#isDrawn(name));
    const made = others.map((tensor) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "quiet", textContent: `Draw ${cards.title(tensor).toLowerCase()} (now ${short(tensor.default)})` });
      button.addEventListener("click", () => this.#draw(tensor));
      return button;
    });
    at("others").hidden = made.length === 0;
    at("others").replaceChildren(...made);
  }

  #draw(tensor) {
    if (!this.sample) return;
    this.remember();
    const field = fields.full(this.#shapeOn(tensor, this.grid), tensor.default);
    this.set({ ...this.sample, fields: { ...this.sample.fields, [tensor.name]: field } });
  }

  #showSlices() {
    const isBox = cards.dimensions(this.card) === 3;
    at("slice-row").hidden = !isBox;
    if (!isBox) return;
    const [planes] = this.grid;
    this.slice = Math.min(this.slice || Math.floor(planes / 2), planes - 1);
    Object.assign(at("slice"), { max: planes - 1, value: this.slice });
    at("slice-name").textContent = cards.label({ name: `plane along ${this.card.grid.axes[0]}` });
    at("slice-shown").textContent = `${this.slice} of ${planes}`;
  }

  /** Show the size of the brush, or the reach of a move. */
  showSize() {
    at("size-shown").textContent = `${at("size").value} %`;
    for (const { view } of this.drawings) view.brush = cards.spatial(this.card) ? null : this.size;
  }

  #wire() {
    const on = (id, type, act) => at(id).addEventListener(type, () => this.sample && act());
    on("undo", "click", () => this.undo());
    on("blobs", "click", () => this.#scatter());
    on("fill", "click", () => {
      this.#put((field, { isCurve, ground, value }) => fields.full(field.shape, isCurve ? ground : value));
      if (!this.active.isCurve) this.active.swap(); // else the brush would leave no trace
    });
    on("size", "input", () => this.showSize());
    on("value", "input", () => {
      this.active.value = Number(at("value").value);
      this.showBrush();
    });
    [["low", 0], ["high", 1]].forEach(([id, end]) =>
      on(id, "click", () => {
        Object.assign(this.active, { value: this.active.ends[end], other: this.active.ends[1 - end] });
        this.showBrush();
      }),
    );
    on("slice", "input", () => {
      this.slice = Number(at("slice").value);
      this.#showSlices();
      for (const drawing of this.drawings) drawing.show();
      this.host.sliced();
    });
  }

  #scatter() {
    this.#put((field, { isCurve, ground, ends: [, high], base, value, periodic, keepsMean, lie }) => {
      const top = isCurve ? base[1] : value === ground ? high : value;
      return fields.blobs(field.shape, ground, top, (this.#scattered += 1), { periodic, keepsMean, lie });
    });
  }

  /** Replace the values of the active panel. */
  #put(make) {
    this.remember();
    this.active.fill(make(this.active.field, this.active));
    this.active.changed(true);
  }
}

/** Return a copy of a field with other values from a position on. */
function part(field, values, start) {
  const copy = fields.copy(field);
  copy.data.set(values, start);
  return copy;
}

/** Return the name of an array in files, with the name on the screen where that is another. */
function named(tensor) {
  const shown = cards.title(tensor);
  return shown.toLowerCase() === tensor.name ? tensor.name : `${tensor.name} (${shown})`;
}
