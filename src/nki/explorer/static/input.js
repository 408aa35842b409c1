"use strict";
// Pointer, wheel and keyboard on a timeline.

/** @param {Timeline} timeline */
function listen(timeline) {
  const { over, head, shared } = timeline;
  over.addEventListener("wheel", (event) => wheel(timeline, event), { passive: false });
  over.addEventListener("keydown", (event) => key(timeline, event));
  over.addEventListener("pointerleave", () => {
    timeline.hover = null;
    timeline.tip.hide();
    timeline.draw(false);
  });
  over.addEventListener("dblclick", () => {
    showSelected(shared);
  });
  over.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    mark(shared, inShared(timeline, timeline.scale().time(event.offsetX)));
  });
  drags(timeline);
  head.addEventListener("pointerdown", (event) => {
    head.setPointerCapture(event.pointerId);
    centre(timeline, event);
  });
  head.addEventListener("pointermove", (event) => {
    if (event.buttons) centre(timeline, event);
  });
}

/** @param {Shared} shared */
function mark(shared, when) {
  shared.markers = [...shared.markers, when].sort((a, b) => a - b);
  shared.emit("range");
}

/**
 * Shared time of the start of the selected event, or of the middle of what is visible.
 *
 * @param {Shared} shared
 */
function centreOf(shared) {
  const { selected, view } = shared;
  return selected ? selected.model.start[selected.row] / shared.part(selected.model) : (view.from + view.to) / 2;
}

/**
 * The minimap moves the range, keeping its length.
 *
 * @param {Timeline} timeline
 */
function centre(timeline, event) {
  const { shared } = timeline,
    scale = timeline.scale(),
    { from, to } = shared.view;
  const at = ((event.offsetX - scale.left) / scale.width) * shared.longest;
  shared.setView(at - (to - from) / 2, at + (to - from) / 2);
}

/** @param {Timeline} timeline */
function wheel(timeline, event) {
  const { shared } = timeline,
    scale = timeline.scale();
  if (event.offsetX < scale.left) return; // over the names: the lanes scroll
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    shared.pan(((event.deltaX || event.deltaY) * unit) / scale.width);
    return;
  }
  const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit * 0.0025)));
  shared.zoom(factor, inShared(timeline, scale.time(event.offsetX)));
}

/**
 * A time of the model in the time of the shared range.
 *
 * @param {Timeline} timeline
 */
function inShared(timeline, ns) {
  return ns / timeline.shared.part(timeline.model);
}

/** @param {Timeline} timeline */
function drags(timeline) {
  const { over, shared, scroller } = timeline,
    fingers = new Map();
  /** @typedef {{x: number, y: number, view: {from: number, to: number}, top: number, range: boolean, from: number, spread: number}} Start */
  let start = /** @type {Start | null} */ (null),
    moved = false;
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    over.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.offsetX);
    const scale = timeline.scale();
    start = {
      x: event.offsetX,
      y: event.clientY,
      view: { ...shared.view },
      top: scroller.scrollTop,
      range: event.shiftKey,
      from: inShared(timeline, scale.time(event.offsetX)),
      spread: fingers.size === 2 ? spread(fingers) : 0,
    };
    moved = false;
  });
  over.addEventListener("pointermove", (event) => {
    if (!start || !fingers.has(event.pointerId)) {
      hover(timeline, event);
      return;
    }
    fingers.set(event.pointerId, event.offsetX);
    const dx = event.offsetX - start.x,
      dy = event.clientY - start.y;
    moved = moved || Math.abs(dx) + Math.abs(dy) > 4;
    if (!moved) return;
    timeline.tip.hide();
    const length = start.view.to - start.view.from,
      width = timeline.scale().width;
    if (start.spread) {
      const middle = (start.view.from + start.view.to) / 2,
        half = (length / 2) * (start.spread / Math.max(10, spread(fingers)));
      shared.setView(middle - half, middle + half);
    } else if (start.range) {
      const to = inShared(timeline, timeline.scale().time(event.offsetX));
      shared.range = { from: Math.min(start.from, to), to: Math.max(start.from, to) };
      shared.emit("range");
    } else {
      scroller.scrollTop = start.top - dy;
      shared.setView(start.view.from - (dx / width) * length, start.view.to - (dx / width) * length);
    }
  });
  const end = (event) => {
    fingers.delete(event.pointerId);
    if (start && !moved && event.type === "pointerup") click(timeline, event);
    start = null;
  };
  over.addEventListener("pointerup", end);
  over.addEventListener("pointercancel", end);
}

function spread(fingers) {
  const [a, b] = fingers.values();
  return Math.abs(a - b);
}

/** @param {Timeline} timeline */
function click(timeline, event) {
  const { shared, model } = timeline,
    { item, row } = timeline.hitAt(event.offsetX, event.offsetY);
  if (item && item.kind === "heading") {
    if (timeline.hidden.has(item.core)) timeline.hidden.delete(item.core);
    else timeline.hidden.add(item.core);
    timeline.layout();
    timeline.draw(true);
    return;
  }
  if (row < 0 && shared.range && !event.shiftKey) {
    shared.range = null;
    shared.emit("range");
  }
  shared.select(model, row);
}

/** @param {Timeline} timeline */
function hover(timeline, event) {
  const { model } = timeline,
    found = timeline.hitAt(event.offsetX, event.offsetY);
  timeline.hover = event.offsetX;
  timeline.draw(false);
  if (found.item && found.item.kind === "counter") {
    const { counter } = found.item,
      at = bisect(counter.times, found.time + 1e-9) - 1;
    timeline.tip.show(event, [
      counter.name,
      `${time(found.time)}: ${shown(at < 0 ? 0 : counter.values[at], counterUnit(counter.name))}`,
    ]);
  } else if (found.row >= 0) {
    timeline.tip.show(event, tipOf(model, found));
  } else {
    timeline.tip.hide();
  }
}

/**
 * @param {Model} model
 * @param {{row: number, piece?: number}} found an instruction, and a piece of the critical path
 * @returns {string[]}
 */
function tipOf(model, { row, piece = -1 }) {
  const columns = model.inst.columns,
    lines = [model.titleOf(row)];
  if (piece >= 0) lines.push(`critical path: ${model.tables.path.columns.kind.at(piece)}`);
  lines.push(`${columns.queue.at(row)} · ${time(model.end[row] - model.move[row])} from ${time(model.move[row])}`);
  if (model.wait[row] > 0)
    lines.push(`waited ${time(model.wait[row])}: ${columns.wait_kind.at(row)} ${columns.wait_text.at(row)}`);
  if (columns.runs[row] !== 1) lines.push(`runs ${count(columns.runs[row])} times`);
  lines.push(model.line(columns.source[row]));
  return lines;
}

/** @param {Shared} shared */
function showSelected(shared) {
  if (!shared.selected) return;
  const { model, row } = shared.selected;
  shared.show(model, model.start[row], model.end[row], 2);
}

/** @param {Timeline} timeline */
function key(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { shared } = timeline;
  const actions = {
    w: () => shared.zoom(0.7),
    s: () => shared.zoom(1 / 0.7),
    a: () => shared.pan(-0.15),
    d: () => shared.pan(0.15),
    ArrowUp: () => shared.zoom(0.7),
    ArrowDown: () => shared.zoom(1 / 0.7),
    ArrowLeft: () => shared.pan(-0.15),
    ArrowRight: () => shared.pan(0.15),
    0: () => shared.setView(0, shared.longest),
    Home: () => shared.setView(0, shared.longest),
    ",": () => beside(timeline, -1),
    ".": () => beside(timeline, 1),
    n: () => neighbour(timeline, "successors"),
    p: () => neighbour(timeline, "predecessors"),
    f: () => {
      showSelected(shared);
    },
    m: () => mark(shared, centreOf(shared)),
    Escape: () => {
      shared.range = null;
      shared.markers = [];
      shared.select(null, null);
      shared.highlight(null, null, "");
    },
  };
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/**
 * The event before or after the selected one in its lane; without a selection the first one that is visible.
 *
 * @param {Timeline} timeline
 */
function beside(timeline, by) {
  const { shared, model } = timeline,
    mine = shared.selected && shared.selected.model === model ? shared.selected.row : -1;
  const columns = model.inst.columns;
  const lane =
    mine < 0
      ? model.lanes[0]
      : model.lanes.find((one) => one.core === columns.core[mine] && one.queue === columns.queue.at(mine));
  if (!lane) return;
  const at = mine < 0 ? bisect(lane.start, shared.viewOf(model).from) : lane.rows.indexOf(mine) + by;
  if (at >= 0 && at < lane.rows.length) shared.reveal(model, lane.rows[at]);
}

/** @param {Timeline} timeline */
function neighbour(timeline, which) {
  const { shared, model } = timeline;
  if (!shared.selected || shared.selected.model !== model) return;
  const [first] = model[which](shared.selected.row);
  if (first) shared.reveal(model, first.row);
}
