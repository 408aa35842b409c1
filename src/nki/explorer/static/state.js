"use strict";
// What all views share: the profiles, the visible time, the selection, what is highlighted.

class Shared {
  /** @param {Model[]} models */
  constructor(models) {
    this.models = models;
    this.longest = Math.max(...models.map((model) => model.makespan));
    this.view = { from: 0, to: this.longest };
    this.relative = false; // with two profiles: both fill the width
    /** @type {{model: Model, row: number} | null} */
    this.selected = null;
    /** By instruction, if something is highlighted. @type {Map<Model, Uint8Array>} */
    this.masks = new Map();
    this.maskText = "";
    this.colour = "opcode";
    /** What was measured. @type {{from: number, to: number} | null} */
    this.range = null;
    /** @type {number[]} */
    this.markers = [];
    /** @type {[string[], (kind: string) => void][]} */
    this.listeners = [];
    /** Shows a line of the source; the page sets it. */
    this.emitSource = (_model, _source) => {};
  }

  on(kinds, call) {
    this.listeners.push([kinds.split(" "), call]);
  }

  emit(kind) {
    for (const [kinds, call] of this.listeners) if (kinds.includes(kind)) call(kind);
  }

  /** How much of shared time a time of a model is; with relative zoom both profiles fill the same width. */
  part(model) {
    return this.relative ? model.makespan / this.longest : 1;
  }

  /** A shared range in the time of a model. */
  rangeOf(model, { from, to }) {
    const part = this.part(model);
    return { from: from * part, to: to * part };
  }

  viewOf(model) {
    return this.rangeOf(model, this.view);
  }

  setView(from, to) {
    const length = Math.max(1, Math.min(to - from, this.longest * 1.04));
    const start = Math.max(-0.02 * this.longest, Math.min(from, this.longest * 1.02 - length));
    this.view = { from: start, to: start + length };
    this.emit("view");
  }

  zoom(factor, centre) {
    const { from, to } = this.view,
      at = centre ?? (from + to) / 2;
    this.setView(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(part) {
    const { from, to } = this.view,
      by = (to - from) * part;
    this.setView(from + by, to + by);
  }

  /** Show an interval of a model's time with some room around it. */
  show(model, from, to, room = 0.25) {
    const part = this.part(model),
      by = (to - from) * room + 1;
    this.setView((from - by) / part, (to + by) / part);
  }

  select(model, row) {
    this.selected = row === null || row < 0 ? null : { model, row };
    this.emit("select");
  }

  /** Select, and move the time range if the event cannot be seen. */
  reveal(model, row) {
    this.select(model, row);
    this.emit("reveal");
    const view = this.viewOf(model),
      start = model.start[row],
      end = model.end[row],
      length = view.to - view.from;
    const small = end - start < length / 400;
    if (start < view.from || end > view.to || small) this.show(model, start, end, small ? 12 : 1);
  }

  /** Highlight instructions of a model; null for none. */
  highlight(model, rows, text) {
    this.masks.clear();
    this.maskText = "";
    if (rows) {
      const mask = new Uint8Array(model.rows);
      for (const row of rows) mask[row] = 1;
      this.masks.set(model, mask);
      this.maskText = text;
    }
    this.emit("highlight");
  }

  highlightMasks(masks, text) {
    this.masks = masks;
    this.maskText = text;
    this.emit("highlight");
  }
}
