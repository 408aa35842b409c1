"use strict";
// Tensors as rectangles of addresses and time, in the time range of the timeline.

const REGIONS = { sbuf: "SBUF", psum: "PSUM", private_hbm: "HBM, private", shared_hbm: "HBM, shared" };

class MemoryView {
  /** Rows of tensors that have an address. @type {number[]} */
  placed;
  /** The end of the highest of them; of the memory; and of what is shown. */
  high = 0;
  capacity = 0;
  span = 0;
  pending = 0;
  /** Addresses that were zoomed to. @type {{from: number, to: number} | null} */
  zoomed = null;
  /** The colour of a tensor, by row. @type {(row: number) => number} */
  colourOf;

  /**
   * @param {Shared} shared
   * @param {Model} model
   * @param {Tip} tip
   */
  constructor(shared, model, tip) {
    this.shared = shared;
    this.model = model;
    this.tip = tip;
    this.core = 0;
    this.region = "sbuf";
    const present = new Set(model.tables.memory.columns.region.values);
    if (!present.has("sbuf")) this.region = [...present][0] || "sbuf";
    this.canvas = el("canvas", {
      class: "mem",
      tabindex: 0,
      role: "img",
      "aria-label": "Tensors by address and time; the table below has the same",
    });
    this.table = el("div");
    this.legend = el("ul", { class: "legend" });
    this.about = el("span", { class: "soft" });
    this.node = el(
      "div",
      { class: "view" },
      el(
        "div",
        { class: "tools" },
        select(
          "Memory",
          Object.entries(REGIONS).filter(([name]) => present.has(name)),
          this.region,
          (value) => {
            this.region = value;
            this.refresh();
          },
        ),
        model.about.cores > 1
          ? select(
              "Core",
              model.about.totals.map((_, at) => [String(at), "core " + at]),
              "0",
              (value) => {
                this.core = Number(value);
                this.refresh();
              },
            )
          : null,
        this.about,
        el("span", { class: "soft" }, "Ctrl + wheel zooms addresses."),
      ),
      this.legend,
      this.canvas,
      this.table,
    );
    shared.on("view theme select layout", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const row = this.at(event);
      if (row >= 0) this.choose(row);
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.0025)));
        if (event.ctrlKey || event.altKey) this.zoomAddresses(factor, event.offsetY);
        else if (event.shiftKey) shared.pan(event.deltaY / this.scale().width);
        else shared.zoom(factor, this.scale().time(event.offsetX) / shared.part(model));
      },
      { passive: false },
    );
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.refresh();
  }

  refresh() {
    const columns = this.model.tables.memory.columns,
      rows = [];
    this.high = 0;
    this.zoomed = null;
    for (let row = 0; row < this.model.tables.memory.rows; row++) {
      if (columns.core[row] !== this.core || columns.region.at(row) !== this.region) continue;
      rows.push(row);
      if (columns.address[row] >= 0) this.high = Math.max(this.high, columns.address[row] + columns.nbytes[row]);
    }
    this.placed = rows.filter((row) => columns.address[row] >= 0);
    this.capacity = this.model.about.hardware[this.region + "_bytes_per_partition"] || this.high;
    const without = rows.length - this.placed.length;
    this.about.textContent = plural(rows.length, "tensor") + (without ? `, ${count(without)} without an address` : "");
    this.canvas.hidden = !this.placed.length;
    this.table.replaceChildren(this.grid(rows).node);
    this.colour();
    this.draw();
  }

  /** Colours by the line that made a tensor, so that they mean something; if that is one, by name. */
  colour() {
    const { name, source } = this.model.tables.memory.columns,
      { key, name: lineOf } = this.model.kinds("line"),
      here = new Map(),
      all = new Map();
    for (const row of this.placed) {
      const one = here.get(key(source[row]));
      if (one) one.tensors++;
      else here.set(key(source[row]), { tensors: 1, line: lineOf(source[row]) });
    }
    for (const model of this.model.shown) {
      const { key: same } = model.kinds("line"),
        { region, source: made } = model.tables.memory.columns;
      for (let row = 0; row < model.tables.memory.rows; row++)
        if (region.at(row) === this.region) all.set(same(made[row]), (all.get(same(made[row])) || 0) + 1);
    }
    const ranked = [...all.keys()].sort((a, b) => all.get(b) - all.get(a)),
      rank = new Map(ranked.map((line, at) => [line, Math.min(at, REST)]));
    this.colourOf = ranked.length > 1 ? (row) => rank.get(key(source[row])) ?? REST : (row) => name.codes[row] % REST;
    const named = ranked
      .slice(0, REST)
      .flatMap((line, at) => (here.has(line) ? [[at, `${here.get(line).line} (${count(here.get(line).tensors)})`]] : []));
    if (ranked.length > REST) named.push([REST, "other lines"]);
    this.legend.hidden = ranked.length < 2;
    this.legend.replaceChildren(
      ...named.map(([at, text]) => el("li", {}, swatch(at), el("span", { class: "cut", title: text }, text))),
    );
  }

  grid(rows) {
    const columns = this.model.tables.memory.columns,
      on = this.region === "sbuf" || this.region === "psum";
    const number = (title, name, show) => ({ title, numeric: true, value: (row) => columns[name][row], show });
    return new Grid(
      [
        { title: "tensor", value: (row) => columns.name.at(row) },
        { title: "shape", value: (row) => columns.shape.at(row) },
        { title: "dtype", value: (row) => columns.dtype.at(row) },
        {
          title: "partitions",
          numeric: true,
          value: (row) => columns.partition[row],
          show: (v, row) => (!on ? "–" : v < 0 ? "no place" : `${v}:${v + columns.partitions[row]}`),
        },
        number("address", "address", (v) => (v < 0 ? "–" : count(v))),
        { ...number("bytes", "nbytes", bytes), bar: true },
        number("from", "first_ns", time),
        number("until", "last_ns", time),
        {
          title: "lives",
          numeric: true,
          bar: true,
          value: (row) => columns.last_ns[row] - columns.first_ns[row],
          show: time,
        },
        ...(on
          ? []
          : [
              { title: "moved", numeric: true, value: (row) => this.moved(row), show: bytes },
              {
                title: "times",
                numeric: true,
                help: "bytes moved over its size",
                value: (row) => this.moved(row) / columns.nbytes[row],
                show: (v) => trim(v) + "×",
              },
            ]),
        { title: "line", value: (row) => this.model.line(columns.source[row]) },
      ],
      rows,
      {
        filter: "Filter tensors",
        csv: `tensors-${this.region}.csv`,
        sort: 5,
        label: "Tensors",
        onRow: (row) => this.choose(row),
      },
    );
  }

  /** Bytes of all transfers of a tensor in HBM. */
  moved(row) {
    if (!this.transfers) {
      const { core, variable, nbytes, instruction } = this.model.tables.dma.columns,
        runs = this.model.inst.columns.runs;
      this.transfers = new Map();
      for (let at = 0; at < nbytes.length; at++) {
        const key = core[at] + "/" + variable.at(at);
        this.transfers.set(key, (this.transfers.get(key) || 0) + nbytes[at] * runs[instruction[at]]);
      }
    }
    const columns = this.model.tables.memory.columns;
    return this.transfers.get(columns.core[row] + "/" + columns.name.at(row)) || 0;
  }

  scale() {
    const left = this.canvas.clientWidth < 600 ? 74 : 112;
    return new Scale(this.shared.viewOf(this.model), left, this.canvas.clientWidth - left - 4);
  }

  /** Addresses from below to above; all of them, or those that were zoomed to. */
  get shownAddresses() {
    return this.zoomed || { from: 0, to: Math.max(1, this.span) };
  }

  y(address) {
    const { from, to } = this.shownAddresses;
    return (this.canvas.clientHeight - 24) * (1 - (address - from) / (to - from)) + 4;
  }

  zoomAddresses(factor, y) {
    const { from, to } = this.shownAddresses,
      centre = from + (1 - (y - 4) / (this.canvas.clientHeight - 24)) * (to - from);
    const low = Math.max(0, centre - (centre - from) * factor),
      high = Math.min(this.span, centre + (to - centre) * factor);
    this.zoomed = high - low < this.span * 0.98 ? { from: low, to: Math.max(high, low + 64) } : null;
    this.draw();
  }

  draw() {
    if (!this.canvas.clientWidth || this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  paint() {
    const { context, width, height } = fit(this.canvas),
      theme = themeColours(),
      scale = this.scale(),
      columns = this.model.tables.memory.columns;
    this.span = this.high > this.capacity / 3 ? Math.max(this.capacity, this.high) : this.high * 1.1;
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = theme.lane;
    context.fillRect(scale.left, 4, scale.width, height - 24);
    context.fillStyle = theme.soft;
    const { from: low, to: high } = this.shownAddresses,
      step = 2 ** Math.ceil(Math.log2(((high - low) * 36) / height));
    for (let at = Math.ceil(low / step) * step; at < high; at += step) context.fillText(bytes(at), 8, this.y(at), 70);
    context.save();
    context.beginPath();
    context.rect(scale.left, 4, scale.width, height - 24);
    context.clip();
    const source = this.selectedSource();
    const seen = new Uint8Array(Math.ceil(scale.width + 2) * Math.ceil(height)); // what is below a pixel is drawn once
    for (const row of this.placed) {
      const x0 = scale.x(columns.first_ns[row]),
        x1 = scale.x(columns.last_ns[row]);
      if (x1 < scale.left || x0 > scale.left + scale.width) continue;
      if (x1 - x0 < 1.5) {
        const cell =
          Math.floor(Math.max(0, x0 - scale.left)) * Math.ceil(height) + Math.floor(this.y(columns.address[row]));
        if (seen[cell]) continue;
        seen[cell] = 1;
      }
      this.box(context, row, x0, x1, source, theme);
    }
    if (this.span > this.capacity * 0.99) {
      context.fillStyle = theme.warn;
      context.fillRect(scale.left, this.y(this.capacity), scale.width, 1);
    }
    context.restore();
    const painter = new Painter();
    painter.use(theme);
    painter.axis(context, height - 20, 20, scale);
  }

  box(context, row, x0, x1, source, theme) {
    const columns = this.model.tables.memory.columns,
      colour = this.colourOf(row);
    const y1 = this.y(columns.address[row]),
      y0 = this.y(columns.address[row] + columns.nbytes[row]),
      wide = Math.max(0.8, x1 - x0),
      high = Math.max(1, y1 - y0);
    const part = this.model.about.hardware.partitions
      ? columns.partitions[row] / this.model.about.hardware.partitions
      : 1;
    context.fillStyle = PALETTE[colour];
    context.globalAlpha = 0.45 + 0.4 * Math.min(1, part);
    context.fillRect(x0, y0, wide, high);
    context.globalAlpha = 1;
    if (columns.source[row] === source && source >= 0) {
      context.strokeStyle = theme.strong;
      context.lineWidth = 2;
      context.strokeRect(x0, y0, wide, high);
      context.lineWidth = 1;
    } else if (wide > 5 && high > 4) {
      context.strokeStyle = theme.panel;
      context.strokeRect(x0 + 0.5, y0 + 0.5, wide - 1, high - 1);
    }
    if (wide > 40 && high > 12) {
      const room = Math.floor((wide - 6) / 6.2),
        name = columns.name.at(row);
      context.fillStyle = theme.text;
      context.fillText(name.length > room ? name.slice(0, room - 1) + "…" : name, Math.max(x0, 0) + 4, (y0 + y1) / 2);
    }
  }

  selectedSource() {
    const { selected } = this.shared;
    return selected && selected.model === this.model ? this.model.inst.columns.source[selected.row] : -1;
  }

  at(event) {
    const scale = this.scale(),
      when = scale.time(event.offsetX),
      slack = 2 / scale.perNs,
      columns = this.model.tables.memory.columns;
    for (let at = this.placed.length - 1; at >= 0; at--) {
      const row = this.placed[at];
      if (when < columns.first_ns[row] - slack || when > columns.last_ns[row] + slack) continue;
      if (
        event.offsetY <= this.y(columns.address[row]) &&
        event.offsetY >= this.y(columns.address[row] + columns.nbytes[row])
      )
        return row;
    }
    return -1;
  }

  hover(event) {
    const row = this.at(event),
      columns = this.model.tables.memory.columns;
    if (row < 0) {
      this.tip.hide();
      return;
    }
    const first = columns.partition[row],
      address = columns.address[row],
      [from, to] = [columns.first_ns[row], columns.last_ns[row]];
    this.tip.show(event, [
      columns.name.at(row),
      `${columns.dtype.at(row)} ${columns.shape.at(row)}`,
      ...(first < 0 ? [] : [`partitions ${first}:${first + columns.partitions[row]}`]),
      `bytes ${count(address)}:${count(address + columns.nbytes[row])}`,
      `${time(to - from)} from ${time(from)} to ${time(to)}`,
      this.model.line(columns.source[row]),
    ]);
  }

  /** Highlight the instructions with the tensor among their operands. */
  choose(row) {
    const { model } = this,
      columns = model.tables.memory.columns,
      name = columns.name.at(row),
      { operands, core } = model.inst.columns;
    const fits = operands.values.map((text) => text.split(/[=\s(]/).some((part) => part.startsWith(name + ":")));
    const rows = [];
    for (let at = 0; at < model.rows; at++)
      if (fits[operands.codes[at]] && core[at] === columns.core[row]) rows.push(at);
    this.shared.highlight(model, rows, name);
    this.shared.show(model, columns.first_ns[row], columns.last_ns[row], 0.3);
  }
}
