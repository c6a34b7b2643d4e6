/** The panels of the outputs: prediction, truth or classical solution, and their difference, per scalar field. */

import * as cards from "./card.js";
import { aspect, axes, shown } from "./cloud.js";
import { divergent, ember, hasSigns, signed, tide } from "./colours.js";
import * as fields from "./fields.js";
import { percent } from "./numbers.js";
import { Panel, figure } from "./panel.js";

const NAMES = { drawn: "true", sample: "true", solved: "solved" };
const MOST_ABREAST = 3; // outputs whose predictions are in one row, with truths and differences in rows below

export class Outputs {
  /** @param {HTMLElement} section Holds the panels. */
  constructor(section) {
    this.section = section;
    this.rows = [];
    this.measured = null;
  }

  /**
   * Show empty panels for a model.
   *
   * @param {object} card
   * @param {"curve" | "forward" | "inverse"} layout "inverse": the input is a measurement, whose truth is drawn.
   * @param {boolean} dark Whether the page is dark.
   * @param {boolean} inverts Whether the output is what another model's input is: it has the colours of an input.
   */
  open(card, layout, dark, inverts) {
    Object.assign(this, { card, layout, dark, slice: 0, inputs: {}, when: "", warning: "" });
    const isInverse = layout === "inverse";
    this.measured = isInverse ? this.#panel("measured", card.inputs[0].name, ember) : null;
    this.measured?.describe(cards.title(card.inputs[0]) + cards.inUnits(card.inputs[0]), "solved, and measured with noise");
    this.rows = cards.channels(cards.outputFields(card)).map((channel) => this.#row(channel, inverts ? tide : ember, divergent(dark)));
    const abreast = layout === "forward" && this.rows.length > 1 && this.rows.length <= MOST_ABREAST;
    const roles = isInverse ? ["prediction", "difference", "classical"] : ["prediction", "classical", "difference"];
    const ordered = abreast ? roles.flatMap((role) => this.rows.map((row) => row[role])) : this.rows.flatMap((row) => roles.map((role) => row[role]));
    this.section.dataset.channels = abreast ? this.rows.length : 1;
    this.section.replaceChildren(...[this.measured, ...ordered].filter(Boolean).map((panel) => panel.figure));
  }

  get panels() {
    return [this.measured, ...this.rows.flatMap(({ prediction, classical, difference }) => [prediction, classical, difference])].filter(Boolean);
  }

  get isCurve() {
    return this.layout === "curve";
  }

  /** Show the panels of the truth and of differences, or leave them out where no truth can be known. */
  set comparing(is) {
    for (const { classical, difference } of this.rows) for (const { figure } of [classical, difference]) figure.hidden = !is;
  }

  /** Mark predictions of a poor model, whose mean error is stated; null: it is not poor. */
  set poor(error) {
    this.warning = error === null ? "" : `, mean error ${percent(error)}`;
    for (const { prediction } of this.rows) prediction.figure.dataset.worth = error === null ? "good" : "poor";
  }

  /** Change the colours of differences for a dark or a light page. */
  restyle(dark) {
    this.dark = dark;
    for (const { difference } of this.rows) if (difference.view.ramp) difference.ramp = divergent(dark);
  }

  /** Mark the panels of these roles as outdated. */
  age(...roles) {
    for (const panel of this.panels) if (roles.includes(panel.role)) panel.age();
  }

  /** Show nothing but reasons where there is nothing to compare with. */
  clear(unsolved, uncompared, rows = this.rows) {
    for (const { classical, difference } of rows) {
      classical.describe(classical.title, about("classical", this.layout));
      classical.clear(unsolved);
      difference.describe("Difference", "");
      difference.clear(uncompared);
    }
  }

  busy(role, is) {
    for (const panel of this.panels) if (panel.role === role) panel.figure.setAttribute("aria-busy", is);
  }

  showMeasurement(field) {
    this.measured?.show(field, fields.range(field));
  }

  /**
   * Show what is predicted and, where it is known, what is true or solved.
   *
   * @param {Record<string, object>} outputs Fields by name.
   * @param {{outputs: Record<string, object>, kind: string, source?: string} | null} truth To compare with; `kind` is a key of
   *     `NAMES`, and a sample is from a `source`.
   * @param {Record<string, object>} inputs The fields of the request, by name.
   * @param {{base: [number, number] | null, whole: Record<string, [number, number]>, drawn: Record<string, [number, number]>, when: string}} scales
   *     A range that all scales contain, ranges by output that its scale contains, those of curves that have room already, and
   *     the time of a frame.
   */
  show(outputs, truth, inputs, { base, whole, drawn, when }) {
    Object.assign(this, { inputs, when });
    for (const row of this.rows) {
      const { name } = row.channel.tensor;
      const [found, expected] = [outputs[name], truth?.outputs[name]].map((field) => field && this.#part(field, row.channel));
      const range = widest(...[base, whole[name], fields.range(...[found, expected].filter(Boolean))].filter(Boolean));
      const scale = this.isCurve ? range : this.#colour(row, range);
      this.#shape(row, found);
      row.prediction.show(found, this.isCurve ? spacious(range, drawn[name]) : scale, this.isCurve && expected ? { ...expected, name: NAMES[truth.kind] } : null);
      row.prediction.describe(row.prediction.title, this.#about("prediction", row));
      if (expected && fields.sameShape(found, expected)) this.#compare(row, found, expected, scale, truth);
      else if (truth) this.clear("no truth is known", "", [row]);
    }
  }

  /** Choose the colours for values in a range, and return the range of the scale: around zero where they have both signs. */
  #colour({ prediction, classical, ramp }, range) {
    const isSigned = hasSigns(range);
    const most = Math.max(...range.map(Math.abs));
    for (const panel of [prediction, classical]) panel.ramp = isSigned ? signed(this.dark) : ramp;
    return isSigned ? [-most, most] : range;
  }

  /** Show the classical solution in its own panel; `base` is a range that the scale contains. */
  showSolution(outputs, base) {
    for (const { channel, classical } of this.rows) {
      const solved = this.#part(outputs[channel.tensor.name], channel);
      classical.describe(classical.title, "recovered classically");
      classical.show(solved, widest(base, fields.range(solved)));
    }
  }

  #compare(row, found, expected, range, { kind, source }) {
    const { channel, prediction, classical, difference } = row;
    const apart = fields.difference(found, expected);
    const most = Math.max(...fields.range(apart).map(Math.abs)) || 1;
    const largest = Math.max(...fields.range(expected).map(Math.abs));
    const share = largest ? `, up to ${percent(Math.max(...fields.range(apart).map(Math.abs)) / largest)} of max` : "";
    const several = this.rows.length > 1;
    difference.describe(several ? `Difference, ${channel.tensor.components?.[channel.component] ?? channel.name}` : "Difference", `${this.layout === "inverse" ? "recovered" : "predicted"} − ${NAMES[kind]}${share}`);
    difference.show(apart, this.isCurve ? [-1.2 * most, 1.2 * most] : [-most, most]);
    prediction.describe(prediction.title, this.isCurve ? `line: predicted, band: ${NAMES[kind]}${this.when}` : this.#about("prediction", row));
    if (this.layout !== "forward") return;
    classical.describe(channel.name + cards.inUnits(channel.tensor), (kind === "solved" ? "solved classically" : `true, of the ${source}`) + this.when);
    classical.show(expected, range);
  }

  /** Return what is under the title of a panel: how the field was found, when it is, and in which units. */
  #about(role, { channel: { tensor } }) {
    const rest = this.when ? "" : cards.rest(tensor);
    const how = role === "prediction" && cards.isMethod(this.card) ? "computed by the method" : about(role, this.layout);
    return `${how}${this.when}${this.warning}${rest && `, ${rest}`}`;
  }

  #row(channel, ramp, differences) {
    const title = channel.name + cards.inUnits(channel.tensor);
    const { name } = channel.tensor;
    const row = { channel, ramp, prediction: this.#panel("prediction", name, ramp), classical: this.#panel("classical", name, ramp), difference: this.#panel("difference", name, differences) };
    row.prediction.describe(title, about("prediction", this.layout));
    row.classical.describe(title, about("classical", this.layout));
    row.difference.describe("Difference", "");
    return row;
  }

  #panel(role, name, ramp) {
    const panel = new Panel(figure(role, name));
    panel.become(cards.dimensions(this.card), this.isCurve ? null : ramp);
    panel.axes = cards.axes(this.card);
    return panel;
  }

  #shape({ prediction, classical, difference }, { shape }) {
    if (this.isCurve) return;
    for (const panel of [prediction, classical, difference, this.measured])
      if (panel) Object.assign(panel, { aspect: aspect(this.card, shape, this.inputs), axes: axes(this.card, this.inputs) });
  }

  #part(field, { component }) {
    return shown(this.card, field, component, this.slice, this.inputs);
  }
}

function about(role, layout) {
  const texts = {
    prediction: { forward: "predicted by the network", inverse: "recovered by the network", curve: "predicted by the network" },
    classical: { forward: "true or solved", inverse: "recovered classically", curve: "" },
  };
  return texts[role][layout];
}

/** Return the range of a curve's scale: that of the drawn curve where it holds the values, else with room about them. */
function spacious(range, drawn) {
  return drawn && drawn[0] <= range[0] && drawn[1] >= range[1] ? drawn : roomy(range, 0.15);
}

function roomy([low, high], share) {
  const room = share * (high - low || 1);
  return [low - room, high + room];
}

function widest(...ranges) {
  return [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
}
