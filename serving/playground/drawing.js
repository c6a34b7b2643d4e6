/**
 * One input panel: a scalar field, or one component of a vector field. On a grid it is drawn on, with the values of its
 * brush; on points of a plane their boundary is moved, and points in space are turned.
 */

import * as cards from "./card.js";
import { aspect, axes, framed, located, mesh, outline, position, shown, width } from "./cloud.js";
import { hasSigns, signed } from "./colours.js";
import * as fields from "./fields.js";
import { movable, moved } from "./mesh.js";
import { Mover } from "./mover.js";
import { Pen } from "./pen.js";
import { ends } from "./numbers.js";
import { Turner } from "./space.js";

const ROOM = 0.1; // above and below a curve, as a share of its height

export class Drawing {
  base = [0, 1]; // the range of the sample that was drawn on
  scale = [0, 1]; // the values at the ends of the colours
  value = 1;
  other = 0;

  /**
   * @param {object} inputs The owner, an `Inputs`.
   * @param {{tensor: object, component: number, name: string}} channel What is drawn.
   * @param {object} panel Its `Panel`.
   */
  constructor(inputs, channel, panel) {
    Object.assign(this, { inputs, channel, panel });
    const { surface } = panel.view;
    if (cards.spatial(inputs.card)) new Turner(surface, () => inputs.turned());
    else if (!this.fixed) new Pen(surface, this);
    else if (cards.bendable(inputs.card)) new Mover(surface, this);
  }

  /** Whether it cannot be drawn on: brushes paint points of a grid. */
  get fixed() {
    return cards.scattered(this.inputs.card);
  }

  get field() {
    const whole = this.inputs.sample?.fields[this.channel.tensor.name];
    if (whole && this.fixed) return this.#shown(whole);
    return whole ? fields.plane(whole, cards.dimensions(this.inputs.card), this.start, this.inputs.slice) : null;
  }

  /** The number of its component among all of the field, those of frames before the one that is shown included. */
  get start() {
    const { tensor, component } = this.channel;
    const last = cards.history(tensor) - 1; // of a state the frame that the rollout goes on from
    const frames = cards.forced(tensor) ? this.inputs.sample?.fields[tensor.name].shape[0] : 1;
    return (last || Math.min(this.inputs.frame, frames - 1)) * cards.components(tensor) + component;
  }

  get view() {
    return this.panel.view;
  }

  get size() {
    return this.inputs.size;
  }

  get periodic() {
    return cards.periodic(this.inputs.card);
  }

  get lie() {
    return this.view.axes[0]?.points;
  }

  get keepsMean() {
    return this.inputs.keepsMean;
  }

  get isCurve() {
    return this.view.dimensions === 1;
  }

  begin() {
    this.inputs.activate(this);
    this.inputs.remember();
  }

  moved(position) {
    if (position) this.inputs.activate(this);
    this.inputs.host.moved(position);
  }

  changed(done) {
    if (cards.forced(this.channel.tensor)) this.#lasting();
    this.show(!done);
    this.inputs.edited();
  }

  // Points that are moved

  get coordinates() {
    return this.inputs.sample.fields[cards.COORDINATES];
  }

  get width() {
    return width(this.coordinates);
  }

  get movable() {
    return movable(this.inputs.sample.fields, framed(this.coordinates).triangles);
  }

  /** Return the place that a pointer is at. */
  place(event) {
    return located(this.coordinates, this.view.position(event));
  }

  placeOf(point) {
    return [...this.coordinates.data.subarray(2 * point, 2 * point + 2)];
  }

  /** Return the nearest movable point within reach of a place, or null. */
  nearest([x, y]) {
    const distance = (point) => Math.hypot(this.coordinates.data[2 * point] - x, this.coordinates.data[2 * point + 1] - y);
    const found = this.movable.reduce((best, point) => (best === null || distance(point) < distance(best) ? point : best), null);
    return found !== null && distance(found) <= this.reach ? found : null;
  }

  following(point, by) {
    const points = this.movable;
    return point === null ? points[0] : points.at((points.indexOf(point) + by) % points.length);
  }

  get reach() {
    return (this.size / 2) * this.width;
  }

  move(point, place, done) {
    const { fields: before } = this.inputs.sample;
    const fixed = { ...before, [cards.COORDINATES]: framed(this.coordinates) };
    const after = moved(fixed, point, place, this.reach);
    if (done) delete after[cards.COORDINATES].frame; // fits the picture to the points again
    this.inputs.reshape(after);
  }

  undo() {
    this.inputs.undo();
  }

  swept(point) {
    this.moved(position(this.coordinates, point));
  }

  swap() {
    [this.value, this.other] = [this.other, this.value];
    this.inputs.showBrush();
  }

  grow(sign) {
    this.inputs.resizeBrush(sign);
  }

  /** Return what the panel shows of the whole field. */
  #shown(whole = this.inputs.sample.fields[this.channel.tensor.name]) {
    const { card, slice, sample } = this.inputs;
    const seen = cards.isMesh(card, this.channel.tensor) ? mesh(this.coordinates) : shown(card, whole, this.fixed ? this.channel.component : this.start, slice, sample.fields);
    return { ...seen, outline: this.fixed ? outline(this.coordinates) : [] };
  }

  /** Let what is drawn hold in the frames that follow, too. */
  #lasting() {
    const { tensor } = this.channel;
    const { shape, data } = this.inputs.sample.fields[tensor.name];
    const size = fields.product(shape.slice(-cards.dimensions(this.inputs.card)));
    for (let from = this.start * size, to = from; (to += size * cards.components(tensor)) < data.length; ) data.copyWithin(to, from, from + size);
  }

  /** Set the range of the values that the brush offers, and a little more. */
  setBase() {
    const [low, high] = this.channel.tensor.name === this.inputs.card.mask ? [0, 1] : fields.range(this.#shown());
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    this.base = this.isCurve && !this.channel.tensor.positive ? [-1.25 * most, 1.25 * most] : [low, high];
    this.ends = [low, high > low ? high : low + (Math.abs(low) || 1)]; // two values to draw with, on a constant field, too
    [this.other, this.value] = this.ends;
  }

  /** Return the least and the largest value of the brush. */
  get offered() {
    const [low, high] = this.ends;
    const span = high - low || Math.abs(high) || 1;
    return [this.channel.tensor.positive ? low / 3 : low - span / 2, high + span / 2];
  }

  /** The value of a field on which nothing is drawn. */
  get ground() {
    const [low, high] = this.ends;
    if (!this.isCurve) return low;
    return this.channel.tensor.positive ? (low + high) / 2 : 0;
  }

  /** Replace the values of the panel; the field keeps its shape. */
  fill(values) {
    this.field.data.set(values.data);
  }

  /** Return the share of the scale at which a value is. */
  share(value) {
    const [low, high] = this.scale;
    return high > low ? (value - low) / (high - low) : 0.5;
  }

  /** Choose the colours for values in a range, and return the range of the scale: around zero where they have both signs. */
  #colour(own) {
    const { dark, ramp, scales } = this.inputs;
    const shared = scales[this.channel.tensor.name] ?? own;
    const range = [Math.min(own[0], shared[0]), Math.max(own[1], shared[1])];
    const isSigned = !this.channel.tensor.positive && hasSigns(range);
    const most = Math.max(...range.map(Math.abs));
    this.panel.ramp = isSigned ? signed(dark) : ramp;
    this.scale = isSigned ? [-most, most] : range;
    return this.scale;
  }

  show(frozen = false) {
    const seen = this.#shown();
    const [low, high] = fields.range(seen);
    const room = this.isCurve ? ROOM * (high - low) : 0;
    const least = this.channel.tensor.positive ? Math.max(0, low - room) : low - room;
    let range = this.isCurve && frozen ? this.view.range : [Math.min(this.base[0], least), Math.max(this.base[1], high + room)];
    if (!this.isCurve) {
      range = this.#colour(range);
      Object.assign(this.panel, { aspect: aspect(this.inputs.card, seen.shape, this.inputs.sample.fields), axes: axes(this.inputs.card, this.inputs.sample.fields) });
    }
    this.panel.show(seen, range);
    const { card } = this.inputs;
    const hold = cards.spatial(card) ? " Arrow keys turn it." : cards.bendable(card) ? " Space chooses a point of the boundary, arrow keys move it." : "";
    if (this.fixed) return void this.view.label(`${this.view.surface.getAttribute("aria-label")}.${hold}`);
    const keys = this.isCurve ? "Left and right move, up and down pull the curve." : "Arrow keys move the brush, Space paints.";
    this.view.label(`${this.panel.title}, ${cards.gridText(this.field.shape)} points, scale from ${ends(range).join(" to ")}. ${keys}`);
  }
}
