"use strict";
// Source lines with their time per engine, linked both ways with the timeline.

/**
 * @typedef {{file: string, line: number, text: string, name: string, own: number[], all: number[]}} SourceLine rows of
 *   the table of sources: its own, and with what it calls
 */

class SourceView {
  /** By row of the table of sources. @type {SourceLine[]} */
  lineOf;
  /** Where lines are shown. @type {Map<SourceLine, HTMLElement>} */
  rowsOf;

  /**
   * @param {Shared} shared
   * @param {Model} model
   */
  constructor(shared, model) {
    this.shared = shared;
    this.model = model;
    this.inclusive = true;
    this.chosen = new Set();
    this.files = this.collect();
    this.list = el("div");
    this.node = el(
      "div",
      { class: "view source" },
      el(
        "div",
        { class: "tools" },
        select(
          "Time of a line",
          [
            ["all", "with what it calls"],
            ["own", "its own instructions"],
          ],
          "all",
          (value) => {
            this.inclusive = value === "all";
            this.draw();
          },
        ),
        button(
          "Clear",
          () => {
            this.chosen.clear();
            shared.highlight(null, null, "");
            this.draw();
          },
          { class: "quiet" },
        ),
        el(
          "span",
          { class: "soft" },
          "A click highlights the events of a line, with Ctrl or Shift of several lines; Enter shows them.",
        ),
      ),
      this.legend(),
      this.list,
    );
    shared.on("select", () => this.mark());
    shared.on("highlight", () => {
      if (!shared.masks.size && this.chosen.size) {
        this.chosen.clear();
        this.mark();
      }
    });
    this.draw();
  }

  /** What the colours of the bars mean: those of engines, whatever colours the timeline has. */
  legend() {
    const present = new Set(this.model.inst.columns.engine.values);
    return el(
      "ul",
      { class: "legend" },
      Object.entries(ENGINE_COLOURS)
        .filter(([engine]) => present.has(engine))
        .map(([engine, colour]) => el("li", {}, swatch(colour), ENGINE_TITLES[engine] || engine.toUpperCase())),
    );
  }

  /** Lines by file and number; the same line that is reached by several calls is one. */
  collect() {
    const { model } = this,
      sources = model.tables.sources,
      { file, line, text, function: names, parent } = sources.columns,
      files = new Map();
    this.lineOf = new Array(sources.rows);
    for (let at = 0; at < sources.rows; at++) {
      if (!files.has(file.at(at))) files.set(file.at(at), new Map());
      const lines = files.get(file.at(at));
      if (!lines.has(line[at]))
        lines.set(line[at], {
          file: file.at(at),
          line: line[at],
          text: text.at(at),
          name: names.at(at),
          own: [],
          all: [],
        });
      this.lineOf[at] = lines.get(line[at]);
      this.lineOf[at].own.push(at);
    }
    for (let at = 0; at < sources.rows; at++) {
      const seen = new Set();
      for (let up = at; up >= 0; up = parent[up]) {
        const one = this.lineOf[up];
        if (!seen.has(one)) {
          seen.add(one);
          one.all.push(at);
        } // recursion counts once
      }
    }
    return files;
  }

  instructions(one, inclusive = this.inclusive) {
    return (inclusive ? one.all : one.own).flatMap((at) => Array.from(this.model.bySource.of(at)));
  }

  draw() {
    const { model } = this;
    this.rowsOf = new Map();
    const most = { value: 0 },
      data = [];
    for (const [file, lines] of this.files) {
      const ordered = [...lines.values()]
        .sort((a, b) => a.line - b.line)
        .map((one) => {
          const parts = {},
            sums = { busy: 0, critical: 0, count: 0 };
          for (const row of this.instructions(one)) {
            const engine = model.engineOf(row);
            parts[engine] = (parts[engine] || 0) + model.busy[row];
            sums.busy += model.busy[row];
            sums.critical += model.critical[row];
            sums.count++;
          }
          most.value = Math.max(most.value, sums.busy);
          return { one, parts, ...sums };
        });
      data.push([file, ordered]);
    }
    this.list.replaceChildren(
      ...data.map(([file, lines]) =>
        el("section", {}, el("h3", { title: file }, baseName(file)), this.table(lines, most.value)),
      ),
    );
    if (!data.length) this.list.replaceChildren(el("p", { class: "soft" }, "The profile has no source lines."));
    this.mark();
  }

  table(lines, most) {
    let previous = 0;
    const rows = lines.flatMap((entry) => {
      const gap =
        previous && entry.one.line > previous + 1
          ? [el("tr", { class: "gap", "aria-hidden": "true" }, el("td", { colspan: 5 }, "⋯"))]
          : [];
      previous = entry.one.line;
      return [...gap, this.line(entry, most)];
    });
    return el(
      "div",
      { class: "grid-scroll" },
      el(
        "table",
        { class: "code" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col", class: "num" }, "line"),
            el("th", { scope: "col" }, "time by engine"),
            el("th", { scope: "col", class: "num" }, "busy"),
            el("th", { scope: "col", class: "num" }, "critical"),
            el("th", { scope: "col" }, "source"),
          ),
        ),
        el("tbody", {}, rows),
      ),
    );
  }

  line({ one, parts, busy, critical }, most) {
    const bar = el(
      "div",
      {
        class: "stack thin",
        role: "img",
        "aria-label":
          Object.entries(parts)
            .map(([engine, ns]) => `${engine} ${time(ns)}`)
            .join(", ") || "no time",
      },
      Object.entries(parts)
        .filter(([, ns]) => ns > 0)
        .map(([engine, ns]) => {
          const part = el("span", { title: `${engine}: ${time(ns)}` });
          part.style.width = (100 * ns) / most + "%";
          part.style.background = PALETTE[ENGINE_COLOURS[engine] ?? REST];
          return part;
        }),
    );
    const row = el(
      "tr",
      { class: "click", tabindex: 0 },
      el("td", { class: "num soft" }, one.line),
      el("td", {}, bar),
      el("td", { class: "num" }, busy ? time(busy) : ""),
      el("td", { class: "num" }, critical ? time(critical) : ""),
      el("td", {}, el("code", { title: `in ${one.name}` }, one.text || "…")),
    );
    row.addEventListener("click", (event) => this.choose(one, event.ctrlKey || event.metaKey || event.shiftKey));
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.choose(one, event.shiftKey);
      if (event.key === "Enter") this.zoom(one);
    });
    this.rowsOf.set(one, row);
    return row;
  }

  choose(one, more) {
    const had = this.chosen.has(one);
    if (!more) this.chosen.clear();
    if (had) this.chosen.delete(one);
    else this.chosen.add(one);
    const rows = new Set([...this.chosen].flatMap((each) => this.instructions(each)));
    const text = [...this.chosen].map((each) => `${baseName(each.file)}:${each.line}`).join(", ");
    const kept = this.chosen;
    this.shared.highlight(this.model, kept.size ? rows : null, text);
    this.mark();
  }

  zoom(one) {
    const rows = this.instructions(one);
    if (!rows.length) return;
    let from = Infinity,
      to = -Infinity;
    for (const row of rows) {
      from = Math.min(from, this.model.start[row]);
      to = Math.max(to, this.model.end[row]);
    }
    this.shared.show(this.model, from, to, 0.05);
  }

  /** Mark chosen lines and the line of the selected event. */
  mark() {
    const { selected } = this.shared;
    const source = selected && selected.model === this.model ? this.model.inst.columns.source[selected.row] : -1;
    const chain = source < 0 ? [] : this.model.chain(source).map((at) => this.lineOf[at]);
    for (const [one, row] of this.rowsOf) {
      row.classList.toggle("chosen", this.chosen.has(one));
      row.classList.toggle("here", chain[0] === one);
      row.classList.toggle("caller", chain.indexOf(one) > 0);
      row.setAttribute("aria-selected", String(this.chosen.has(one)));
    }
    const row = chain.length && this.node.isConnected ? this.rowsOf.get(chain[0]) : null;
    if (row) this.bring(row);
  }

  /** Scroll the panel, and nothing but the panel, to a line. */
  bring(row) {
    const panel = this.node.parentElement;
    if (!panel) return;
    const frame = panel.getBoundingClientRect(),
      box = row.getBoundingClientRect();
    if (box.top < frame.top) panel.scrollTop -= frame.top - box.top + 40;
    else if (box.bottom > frame.bottom) panel.scrollTop += box.bottom - frame.bottom + 40;
  }

  /** Come to a line from elsewhere. */
  go(source) {
    const one = this.lineOf[source];
    if (!this.chosen.has(one)) this.choose(one, false);
    this.rowsOf.get(one)?.scrollIntoView({ block: "center" });
  }
}
