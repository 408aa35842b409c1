"use strict";
// Draws a step: a row for each rank, lines where ranks meet, and the critical path from rank to rank.

const MOST_MEETINGS = 600; // lines between rows; with more in view, only those that are selected
const STEP_COLOURS = { work: 4, exposed: 5, hidden: 2, waiting: 1, path: 7 };

class RankRows {
  /** @param {StepPage} page */
  constructor(page) {
    this.page = page;
    this.canvas = el("canvas", {
      class: "tl-over",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "timeline of ranks",
      "aria-label": `Timeline of ${count(page.step.rows.length)} ranks. W and S zoom, A and D pan, comma and dot go to the previous and next collective of the rank, J and K to the rank below and above, 0 shows everything.`,
    });
    this.node = el("section", { class: "timeline ranks", "aria-label": "Timeline of ranks" }, this.canvas);
    this.pending = 0;
    page.shared.on("view select theme layout", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** Room for the axis, the height of a row, and where times are. */
  get geometry() {
    const top = 22,
      rows = this.page.step.rows.length,
      pitch = Math.max(3, Math.min(26, (this.canvas.clientHeight - top - 4) / rows));
    return { top, pitch, height: pitch > 8 ? pitch - 2 : pitch > 5 ? pitch - 1 : pitch };
  }

  scale() {
    const left = this.canvas.clientWidth < 600 ? 52 : 84;
    return new Scale(this.page.shared.view, left, this.canvas.clientWidth - left - 4);
  }

  y(row) {
    const { top, pitch } = this.geometry;
    return top + row * pitch;
  }

  /** The row at a height of the canvas, or -1. */
  rowAt(y) {
    const { top, pitch } = this.geometry,
      row = Math.floor((y - top) / pitch);
    return row >= 0 && row < this.page.step.rows.length ? row : -1;
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const { context, width, height } = fit(this.canvas),
      theme = themeColours(),
      scale = this.scale(),
      { step } = this.page;
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.axis(context, scale, theme);
    for (let row = 0; row < step.rows.length; row++) this.row(context, row, scale, theme);
    context.save();
    context.beginPath();
    context.rect(scale.left, 0, scale.width, height);
    context.clip();
    this.meetings(context, scale, theme);
    if (this.page.showPath) this.path(context, scale);
    this.selection(context, scale, theme);
    context.restore();
  }

  axis(context, scale, theme) {
    context.fillStyle = theme.soft;
    for (const at of ticks(scale.from, scale.to, scale.width, 110)) {
      const x = scale.x(at);
      context.fillRect(x, 16, 1, 4);
      context.fillText(time(at), x + 3, 9);
    }
  }

  row(context, row, scale, theme) {
    const { step } = this.page,
      { pitch, height } = this.geometry,
      y = this.y(row),
      found = step.classes[step.rows[row].class];
    context.fillStyle = theme.lane;
    context.fillRect(scale.left, y, scale.width, height);
    const half = Math.max(1, Math.round(height * 0.5));
    for (const made of found.communications) bar(context, scale, made[1], made[2], y + half, height - half, "waiting");
    for (const made of found.communications) bar(context, scale, made[2], made[3], y + half, height - half, "hidden");
    intervals(context, scale, found.exposed, y, height, "exposed");
    intervals(context, scale, found.work, y, half, "work");
    if (pitch >= 9 || row % Math.ceil(10 / pitch) === 0) {
      context.fillStyle = theme.text;
      context.fillText("rank " + count(step.rows[row].rank), 4, y + height / 2, scale.left - 8);
    }
  }

  /** A line through the rows of all that meet, where data begin to move; longer ones first, so that all can be seen. */
  meetings(context, scale, theme) {
    const { meetings } = this.page,
      inView = meetings.filter((each) => each.start >= scale.from && each.start <= scale.to);
    if (inView.length > MOST_MEETINGS) return;
    context.fillStyle = theme.soft;
    for (const each of inView) {
      const { height } = this.geometry,
        from = this.y(each.first),
        to = this.y(each.final) + height;
      context.fillRect(Math.round(scale.x(each.start)), from, 1, to - from);
    }
  }

  /** From rank to rank: strong where a rank works, and down to who waited for it. */
  path(context, scale) {
    const { step, rowOf } = this.page,
      { height } = this.geometry;
    context.strokeStyle = PALETTE[STEP_COLOURS.path];
    context.lineWidth = 2;
    context.beginPath();
    let before = -1;
    for (const [start, end, rank] of step.path) {
      const row = rowOf.get(rank);
      if (row === undefined || end < scale.from || start > scale.to) {
        before = -1;
        continue;
      }
      const y = this.y(row) + height / 2;
      if (before < 0) context.moveTo(scale.x(start), y);
      else context.lineTo(scale.x(start), y);
      context.lineTo(scale.x(end), y);
      before = row;
    }
    context.stroke();
  }

  selection(context, scale, theme) {
    const { selected, step } = this.page;
    if (!selected) return;
    const { height } = this.geometry,
      made = step.classes[step.rows[selected.row].class].communications[selected.number],
      meeting = this.page.meetingOf(selected.row, selected.number);
    for (const [rank] of meeting ? meeting.members : []) {
      const row = this.page.rowOf.get(rank);
      if (row !== undefined) outlineOf(context, scale, made, this.y(row), height, rank === meeting.last ? theme.warn : theme.soft, 1);
    }
    outlineOf(context, scale, made, this.y(selected.row), height, theme.strong, 2);
  }
}

function bar(context, scale, from, to, y, height, kind) {
  if (to < scale.from || from > scale.to || to <= from) return;
  const x0 = Math.max(scale.left, scale.x(from)),
    x1 = Math.min(scale.left + scale.width, scale.x(to));
  context.fillStyle = PALETTE[STEP_COLOURS[kind]];
  context.fillRect(x0, y, Math.max(0.6, x1 - x0), height);
}

/** Intervals are in the order of time; those that share a pixel are drawn as one. */
function intervals(context, scale, rows, y, height, kind) {
  context.fillStyle = PALETTE[STEP_COLOURS[kind]];
  let low = 0,
    high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle][1] < scale.from) low = middle + 1;
    else high = middle;
  }
  let x0 = NaN,
    x1 = NaN;
  for (let at = low; at < rows.length && rows[at][0] <= scale.to; at++) {
    const from = Math.max(scale.left, scale.x(rows[at][0])),
      to = Math.min(scale.left + scale.width, scale.x(rows[at][1]));
    if (from - x1 < 0.3) {
      x1 = Math.max(x1, to);
      continue;
    }
    if (x1 >= x0) context.fillRect(x0, y, Math.max(0.4, x1 - x0), height);
    x0 = from;
    x1 = to;
  }
  if (x1 >= x0) context.fillRect(x0, y, Math.max(0.4, x1 - x0), height);
}

function outlineOf(context, scale, made, y, height, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  const x0 = scale.x(made[1]),
    x1 = scale.x(made[3]);
  context.strokeRect(x0, y + 0.5, Math.max(2, x1 - x0), Math.max(2, height - 1));
}
