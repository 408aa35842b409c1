"use strict";
// The timeline of one profile: lanes, counters, path, minimap; zoom, pan, selection and arrows.

const LANE = 18,
  COUNTER = 30,
  HEADING = 18,
  AXIS = 20,
  MAP = 26;

/** @typedef {{kind: string, y: number, height: number, core?: number, title?: string, lane?: any, counter?: any}} Item */

class Timeline {
  /** From top to bottom. @type {Item[]} */
  items;
  /** Those with a lane, by core and queue. @type {Map<string, Item>} */
  place;

  /**
   * @param {Shared} shared
   * @param {Model} model
   * @param {Tip} tip
   */
  constructor(shared, model, tip) {
    this.shared = shared;
    this.model = model;
    this.tip = tip;
    this.painter = new Painter();
    this.hidden = new Set();
    this.hover = null;
    this.frames = [];
    this.head = el("canvas", { class: "tl-head", "aria-hidden": "true" });
    this.base = el("canvas", { class: "tl-base", "aria-hidden": "true" });
    this.over = el("canvas", {
      class: "tl-over",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label": `Timeline of ${model.label}. W and S zoom, A and D pan, comma and dot go to the previous and next event, N and P to a successor and predecessor, F shows the selection, 0 everything, M sets a marker.`,
    });
    this.live = el("div", { class: "hidden", role: "status", "aria-live": "polite" });
    this.inner = el("div", { class: "tl-inner" }, this.base, this.over);
    this.scroller = el("div", { class: "tl-scroll" }, this.inner);
    this.node = el("section", { class: "timeline", "aria-label": "Timeline" }, this.head, this.scroller, this.live);
    this.layout();
    this.pending = 0;
    shared.on("view highlight colour theme layout", (kind) => {
      if (kind === "theme") this.mapImage = null;
      this.draw(true);
    });
    shared.on("select range", () => this.draw(false));
    shared.on("select", () => this.announce());
    shared.on("reveal", () => this.scrollToSelected());
    this.scroller.addEventListener("scroll", () => this.draw(true), { passive: true });
    new ResizeObserver(() => this.draw(true)).observe(this.scroller);
    listen(this);
  }

  /** Rows from top to bottom with their places. */
  layout() {
    const { model } = this,
      rows = [];
    let y = 2;
    const put = (kind, height, more) => {
      rows.push({ kind, y, height, ...more });
      y += height + GAP;
    };
    for (let core = 0; core < model.about.cores; core++) {
      put("heading", HEADING, { core, title: model.about.cores > 1 ? `Core ${core}` : "Engines" });
      if (this.hidden.has(core)) continue;
      for (const lane of model.paths) if (lane.core === core) put("path", 10, { lane });
      for (const lane of model.lanes) if (lane.core === core) put("lane", LANE, { lane });
      for (const counter of model.counters) {
        if (counter.core === core && !/_\d+$/.test(counter.name)) put("counter", COUNTER, { counter });
      }
    }
    this.items = rows;
    this.height = y + 4;
    this.place = new Map(
      rows.filter((row) => row.kind === "lane").map((row) => [row.lane.core + "/" + row.lane.queue, row]),
    );
  }

  get gutter() {
    return this.scroller.clientWidth < 600 ? 74 : 112;
  }

  scale() {
    const left = this.gutter;
    return new Scale(this.shared.viewOf(this.model), left, this.scroller.clientWidth - left - 4);
  }

  /** Draw in the next frame; `all` or only what lies over the lanes. */
  draw(all) {
    this.dirty = this.dirty || all;
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      const began = performance.now();
      if (this.dirty) {
        this.dirty = false;
        this.drawBase();
      }
      drawOver(this);
      this.frames.push(performance.now() - began);
      if (this.frames.length > 600) this.frames.shift();
    });
  }

  colours() {
    const { colours } = this.model.colouring(this.shared.colour),
      mask = this.shared.masks.get(this.model);
    if (!this.shared.masks.size) return colours;
    if (this.masked && this.maskedFor === mask && this.maskedOf === colours) return this.masked;
    this.masked = Uint8Array.from(colours, (colour, row) => (mask && mask[row] ? colour : DIMMED));
    this.maskedFor = mask;
    this.maskedOf = colours;
    return this.masked;
  }

  drawBase() {
    this.inner.style.height = this.height + "px";
    const theme = themeColours(),
      { painter, model } = this;
    painter.use(theme);
    const { context } = fit(this.base),
      scale = this.scale(),
      colours = this.colours();
    const top = this.scroller.scrollTop,
      bottom = top + this.scroller.clientHeight,
      width = this.scroller.clientWidth;
    this.base.style.transform = this.over.style.transform = `translateY(${top}px)`;
    context.clearRect(0, 0, width, this.scroller.clientHeight);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.translate(0, -top);
    const label = (row) => model.titleOf(row);
    for (const item of this.items) {
      if (item.y > bottom || item.y + item.height < top) continue;
      if (item.kind === "lane")
        painter.lane(context, item.lane, item.y, item.height, scale, model.makespan, colours, label);
      else if (item.kind === "path")
        painter.lane(context, item.lane, item.y, item.height, scale, model.makespan, model.pathColours(colours), null);
      else if (item.kind === "counter")
        painter.counter(context, item.counter, item.y, item.height, scale, item.counter.peak || 1);
      this.caption(context, item, theme);
    }
    this.loops(context, scale, theme);
    this.drawHead(theme, scale);
  }

  caption(context, item, theme) {
    const middle = item.y + item.height / 2 + 0.5,
      room = this.gutter < 100 ? 10 : 17;
    context.fillStyle = item.kind === "heading" ? theme.text : theme.soft;
    if (item.kind === "heading") {
      context.font = "600 11px system-ui, sans-serif";
      context.fillText((this.hidden.has(item.core) ? "▸ " : "▾ ") + item.title, 6, middle);
      context.font = "11px system-ui, sans-serif";
      return;
    }
    const counter = item.counter,
      text = counter
        ? counter.name
            .replace(/_bytes_per_ns$/, "")
            .replace(/_bytes$/, "")
            .replaceAll("_", " ")
        : item.lane.title;
    if (item.kind !== "counter") {
      if (item.kind === "path") context.font = "10px system-ui, sans-serif";
      context.fillText(text.length > room ? text.slice(0, room - 1) + "…" : text, 8, middle);
      context.font = "11px system-ui, sans-serif";
      if (item.kind === "lane" && room > 12) {
        context.textAlign = "right";
        context.fillText(share(item.lane.busy), this.gutter - 6, middle);
        context.textAlign = "left";
      }
      return;
    }
    context.fillText(text.slice(0, room), 8, item.y + 9);
    const most = shown(counter.peak, counterUnit(counter.name));
    context.fillText(room > 12 ? "max " + most : most, 8, item.y + 22, this.gutter - 12);
  }

  /** The trips after the first one are not drawn; say so where they are. */
  loops(context, scale, theme) {
    const { core, start_ns: start, trip_ns: trip, end_ns: end, trips } = this.model.tables.loops.columns;
    for (let row = 0; row < start.length; row++) {
      const from = scale.x(start[row] + trip[row]),
        to = scale.x(end[row]);
      if (to - from < 1 || to < scale.left || from > scale.left + scale.width) continue;
      const items = this.items.filter((item) => item.lane && item.lane.core === core[row]);
      if (!items.length) continue;
      const x0 = Math.max(scale.left, from),
        x1 = Math.min(scale.left + scale.width, to);
      const y0 = items[0].y,
        y1 = items[items.length - 1].y + LANE;
      context.globalAlpha = 0.14;
      context.fillStyle = theme.text;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      context.globalAlpha = 1;
      if (x1 - x0 > 120) {
        context.fillStyle = theme.text;
        context.fillText(`loop: ${count(trips[row] - 1)} more trips like the first`, x0 + 8, (y0 + y1) / 2);
      }
    }
  }

  drawHead(theme, scale) {
    const { context, width } = fit(this.head);
    context.clearRect(0, 0, width, MAP + AXIS);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawMap(context, theme, scale);
    this.painter.axis(context, MAP, AXIS, scale);
    context.fillStyle = theme.soft;
    context.fillText(this.model.label.slice(0, this.gutter < 100 ? 11 : 17), 8, MAP / 2);
  }

  /** All of the time in a few pixels; drawn once for each width and colouring. */
  drawMap(context, theme, scale) {
    const { model } = this,
      whole = new Scale({ from: 0, to: this.span() }, scale.left, scale.width),
      colours = this.colours();
    if (!this.mapImage || this.mapWidth !== scale.width || this.mapFor !== colours) {
      this.mapImage = document.createElement("canvas");
      this.mapImage.width = Math.ceil(scale.width);
      this.mapImage.height = MAP;
      const inner = this.mapImage.getContext("2d"),
        flat = new Scale({ from: 0, to: this.span() }, 0, scale.width);
      const height = Math.max(1, (MAP - 4) / Math.max(1, model.lanes.length));
      model.lanes.forEach((lane, at) =>
        this.painter.lane(inner, lane, 2 + at * height, height, flat, model.makespan, colours, null),
      );
      this.mapWidth = scale.width;
      this.mapFor = colours;
    }
    context.drawImage(this.mapImage, scale.left, 0);
    const x0 = Math.max(scale.left, whole.x(scale.from)),
      x1 = Math.min(scale.left + scale.width, whole.x(scale.to));
    context.fillStyle = theme.back;
    context.globalAlpha = 0.68;
    context.fillRect(scale.left, 0, x0 - scale.left, MAP);
    context.fillRect(x1, 0, scale.left + scale.width - x1, MAP);
    context.globalAlpha = 1;
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, 0.75, Math.max(2, x1 - x0 - 1.5), MAP - 1.5);
    context.lineWidth = 1;
  }

  /** The time that the minimap shows. */
  span() {
    return this.shared.relative ? this.model.makespan : this.shared.longest;
  }

  /** The item at a place below the head, in pixels of the visible part. */
  itemAt(y) {
    const at = y + this.scroller.scrollTop;
    return this.items.find((item) => at >= item.y && at < item.y + item.height + GAP) || null;
  }

  /** {row} of an instruction, {item, time} of anything else. */
  hitAt(x, y) {
    const item = this.itemAt(y),
      scale = this.scale();
    if (!item || x < scale.left) return { item, row: -1, time: scale.time(x) };
    const when = scale.time(x),
      slack = 3 / scale.perNs;
    let row = -1,
      piece = -1;
    if (item.kind === "lane") row = item.lane.hit(when, slack);
    if (item.kind === "path") {
      piece = item.lane.hit(when, slack);
      row = piece < 0 ? -1 : this.model.tables.path.columns.instruction[piece];
    }
    return { item, row, piece, time: when };
  }

  /** Bring the lane of the selected event into sight. */
  scrollToSelected() {
    const { selected } = this.shared;
    if (!selected || selected.model !== this.model) return;
    const { model, row } = selected;
    const columns = model.inst.columns;
    if (this.hidden.delete(columns.core[row])) this.layout();
    const item = this.place.get(columns.core[row] + "/" + columns.queue.at(row));
    const { scroller } = this,
      top = scroller.scrollTop;
    this.inner.style.height = this.height + "px";
    if (item && (item.y < top || item.y + item.height > top + scroller.clientHeight)) {
      scroller.scrollTop = item.y - scroller.clientHeight / 2;
    }
  }

  announce() {
    const { selected } = this.shared;
    if (!selected || selected.model !== this.model) return;
    const { row } = selected,
      { model } = this;
    this.live.textContent = `${model.titleOf(row)} on ${model.inst.columns.queue.at(row)}, ${time(model.end[row] - model.start[row])}, starts at ${time(model.start[row])}`;
  }
}

function counterUnit(name) {
  return name.endsWith("_bytes_per_ns") ? "bytes/ns" : name.includes("bytes") || name.includes("bank") ? "bytes" : "";
}

/** A part as whole per cent; little is not nothing. */
function share(part) {
  return part > 0 && part < 0.005 ? "<1%" : Math.round(100 * part) + "%";
}
