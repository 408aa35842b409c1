"use strict";
// What lies over the lanes: selection, arrows to neighbours, the line under the pointer, ranges, markers.

const MOST_ARROWS = 40;

/** @param {Timeline} timeline */
function drawOver(timeline) {
  const { shared, model, scroller } = timeline,
    { context, width, height } = fit(timeline.over);
  const theme = themeColours(),
    scale = timeline.scale(),
    top = scroller.scrollTop;
  context.clearRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(scale.left, 0, scale.width, height);
  context.clip();
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  if (shared.range) drawRange(context, shared.rangeOf(model, shared.range), scale, theme, height);
  const markers = shared.markers.map((marker) => marker * shared.part(model));
  for (const [at, marker] of markers.entries()) drawMarker(context, marker, at, markers, scale, theme, height);
  if (timeline.hover !== null) {
    context.fillStyle = theme.soft;
    context.fillRect(Math.round(timeline.hover), 0, 1, height);
  }
  context.translate(0, -top);
  const { selected } = shared;
  if (selected && selected.model === model) {
    drawArrows(context, timeline, selected.row, scale, theme);
    const box = boxOf(timeline, selected.row, scale);
    if (box) outline(context, box, theme.strong, 2);
  }
  context.restore();
}

/**
 * Where an instruction is drawn, or null if its lane is hidden.
 *
 * @param {Timeline} timeline
 * @param {Scale} scale
 */
function boxOf(timeline, row, scale) {
  const { model } = timeline,
    columns = model.inst.columns;
  const item = timeline.place.get(columns.core[row] + "/" + columns.queue.at(row));
  if (!item) return null;
  const x0 = scale.x(model.move[row]),
    x1 = scale.x(model.end[row]);
  return {
    x0,
    x1: Math.max(x1, x0 + 2),
    y: item.y,
    height: item.height,
    trigger: scale.x(model.start[row]),
    turn: scale.x(model.turn[row]),
  };
}

/** @param {CanvasRenderingContext2D} context */
function outline(context, box, colour, wide) {
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.strokeRect(box.x0 - 1, box.y - 1, box.x1 - box.x0 + 2, box.height + 2);
  context.lineWidth = 1;
  if (box.trigger < box.x0 - 1) {
    context.fillStyle = colour;
    context.fillRect(box.trigger, box.y + box.height / 2 - 1, box.x0 - box.trigger, 2);
  }
  if (box.turn < box.trigger - 1) {
    // how long its queue stood still
    context.strokeStyle = colour;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(box.turn, box.y + box.height / 2);
    context.lineTo(box.trigger, box.y + box.height / 2);
    context.stroke();
    context.setLineDash([]);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Timeline} timeline
 * @param {Scale} scale
 * @param {ReturnType<typeof themeColours>} theme
 */
function drawArrows(context, timeline, row, scale, theme) {
  const { model } = timeline,
    mine = boxOf(timeline, row, scale),
    binding = model.tables.edges.columns.binding;
  if (!mine) return;
  const before = model.predecessors(row).slice(0, MOST_ARROWS),
    after = model.successors(row).slice(0, MOST_ARROWS);
  for (const { edge, row: other } of before) {
    const box = boxOf(timeline, other, scale);
    if (box) arrow(context, box, mine, RGB[5], binding[edge] !== 0);
  }
  for (const { edge, row: other } of after) {
    const box = boxOf(timeline, other, scale);
    if (box) arrow(context, mine, box, RGB[0], binding[edge] !== 0);
  }
  for (const { row: other } of [...before, ...after]) {
    const box = boxOf(timeline, other, scale);
    if (box) outline(context, { ...box, trigger: box.x0, turn: box.x0 }, theme.soft, 1);
  }
}

/** @param {CanvasRenderingContext2D} context */
function arrow(context, from, to, colour, strong) {
  const [r, g, b] = colour,
    x0 = from.x1,
    y0 = from.y + from.height / 2,
    x1 = to.trigger,
    y1 = to.y + to.height / 2;
  if (Math.max(x0, x1) < -2000 || Math.min(x0, x1) > 6000) return;
  const bend = Math.min(60, Math.max(14, Math.abs(x1 - x0) / 2));
  context.strokeStyle = context.fillStyle = `rgba(${r},${g},${b},${strong ? 1 : 0.55})`;
  context.lineWidth = strong ? 2 : 1.2;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 7, y1 - 4);
  context.lineTo(x1 - 7, y1 + 4);
  context.fill();
  context.lineWidth = 1;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scale} scale
 * @param {ReturnType<typeof themeColours>} theme
 */
function drawRange(context, range, scale, theme, height) {
  const x0 = scale.x(range.from),
    x1 = scale.x(range.to);
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.15;
  context.fillRect(x0, 0, x1 - x0, height);
  context.globalAlpha = 1;
  context.fillRect(x0, 0, 1, height);
  context.fillRect(x1, 0, 1, height);
  tag(context, time(range.to - range.from), (x0 + x1) / 2 - 24, 10, theme);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scale} scale
 * @param {ReturnType<typeof themeColours>} theme
 */
function drawMarker(context, marker, at, all, scale, theme, height) {
  const x = scale.x(marker);
  context.fillStyle = theme.warn;
  context.fillRect(Math.round(x), 0, 1.5, height);
  const text = at ? `${at + 1}: +${time(marker - all[at - 1])}` : `1: ${time(marker)}`;
  tag(context, text, x + 4, height - 10 - (at % 3) * 16, theme);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {ReturnType<typeof themeColours>} theme
 */
function tag(context, text, x, y, theme) {
  const wide = context.measureText(text).width + 8;
  context.fillStyle = theme.panel;
  context.fillRect(x, y - 8, wide, 16);
  context.strokeStyle = theme.line;
  context.strokeRect(x + 0.5, y - 7.5, wide - 1, 15);
  context.fillStyle = theme.text;
  context.fillText(text, x + 4, y + 0.5);
}
