/** Pictures of trajectories on one axis: time downwards, position across (Hovmöller diagrams). */

import * as cards from "./card.js";
import { divergent, ember, hasSigns, signed } from "./colours.js";
import * as fields from "./fields.js";
import { Panel, figure } from "./panel.js";

const TITLES = { predicted: "predicted", expected: "true or solved", apart: "difference" }; // before a truth is known

export class TimePictures {
  /** @param {HTMLElement} section Holds the panels. */
  constructor(section) {
    this.section = section;
    this.rows = [];
  }

  /** Show empty panels for a model of trajectories on one axis, and nothing for any other. */
  open(card, dark) {
    Object.assign(this, { card, dark });
    const fits = cards.rollsOut(card) && cards.dimensions(card) === 1;
    this.rows = fits ? cards.channels(card.outputs).filter(({ tensor }) => !tensor.components?.length).map(({ name, tensor }) => this.#row(name, tensor, dark)) : [];
    this.section.hidden = this.rows.length === 0;
    this.section.replaceChildren(...this.rows.flatMap(({ panels }) => Object.values(panels).map((panel) => panel.figure)));
  }

  /**
   * Show all frames.
   *
   * @param {object | null} result A prediction with the truth of its sample, where it is known.
   * @param {object | null} solved The classical solution of the same input.
   */
  show(result, solved) {
    const mask = result?.sample?.fields[this.card.mask];
    const shown = (field) => field && fields.within(field, mask);
    for (const { tensor, panels } of this.rows) {
      const found = shown(result?.outputs[tensor.name]);
      if (!found) continue;
      const truth = shown(result.truth?.[tensor.name] ?? solved?.outputs[tensor.name]);
      const expected = truth && fields.sameShape(truth, found) ? truth : null;
      const values = fields.range(...[found, expected].filter(Boolean));
      const most = Math.max(...values.map(Math.abs));
      const range = hasSigns(values) ? [-most, most] : values;
      const named = [{ name: "time", ends: [cards.timeOf(this.card, 0), cards.timeOf(this.card, found.shape[0] - 1)] }, ...cards.axes(this.card)];
      for (const panel of Object.values(panels)) panel.axes = named;
      for (const panel of [panels.predicted, panels.expected]) panel.ramp = hasSigns(values) ? signed(this.dark) : ember;
      panels.predicted.show(found, range);
      if (!expected) {
        panels.expected.describe(panels.expected.title, TITLES.expected);
        for (const panel of [panels.expected, panels.apart]) panel.clear("solve it to compare");
        continue;
      }
      const isTrue = Boolean(result.truth?.[tensor.name]);
      panels.expected.describe(panels.expected.title, isTrue ? "true, of the test sample" : "solved classically");
      panels.expected.show(expected, range);
      const apart = fields.difference(found, expected);
      const largest = Math.max(...fields.range(apart).map(Math.abs)) || 1;
      panels.apart.show(apart, [-largest, largest]);
    }
  }

  /** Mark all pictures as outdated. */
  age() {
    for (const { panels } of this.rows) for (const panel of Object.values(panels)) panel.age();
  }

  #row(name, tensor, dark) {
    const panels = {};
    for (const [kind, title] of Object.entries(TITLES)) {
      const panel = new Panel(figure(`time-${kind}`, tensor.name));
      panel.become(2, kind === "apart" ? divergent(dark) : ember);
      panel.describe(`${name}${cards.inUnits(tensor)} over time`, title);
      panel.aspect = 1;
      panels[kind] = panel;
    }
    return { tensor, panels };
  }
}
