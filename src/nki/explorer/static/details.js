"use strict";
// The selected event: what it is, why it waited, who came before and after it, its line, all its columns.

const MOST_NEIGHBOURS = 60;
const WAIT_TEXTS = {
  signal: "a signal of another queue",
  unit: "its unit was busy for another queue",
  port: "a port to SBUF or PSUM was held by another engine",
  operand: "an earlier result of its queue was not in memory yet",
  table: "an activation table was loaded",
  core: "the other core",
  trigger: "the transfer was being started",
  queue: "the transfer before it was moving",
};

class Details {
  /** @param {Shared} shared */
  constructor(shared) {
    this.shared = shared;
    this.node = el("section", { class: "details", "aria-label": "Event details" });
    shared.on("select highlight", () => this.draw());
    this.draw();
  }

  draw() {
    const { selected } = this.shared;
    this.node.replaceChildren(...(selected ? this.event(selected.model, selected.row) : this.help()));
  }

  help() {
    const keys = [
      ["wheel, W S", "zoom"],
      ["drag, A D", "pan"],
      ["click", "select an event"],
      [", .", "previous, next event"],
      ["N P", "successor, predecessor"],
      ["F", "show the selection"],
      ["shift + drag", "measure a range"],
      ["M, right click", "marker"],
      ["0", "everything"],
      ["Esc", "clear"],
    ];
    return [
      el("h2", {}, "Nothing selected"),
      el("p", { class: "soft" }, "Click an event to see what it waited for and what waited for it."),
      el(
        "dl",
        { class: "keys" },
        keys.map(([key, text]) => [el("dt", {}, key), el("dd", {}, text)]),
      ),
    ];
  }

  event(model, row) {
    const columns = model.inst.columns,
      { shared } = this;
    /** @type {HTMLElement[]} */
    const parts = [
      el("h2", {}, model.titleOf(row), this.shared.models.length > 1 ? el("small", {}, " in " + model.label) : null),
      el(
        "div",
        { class: "tools" },
        button("Show", () => showSelected(shared), { title: "Zoom to it (F)" }),
        button("Same instruction", () => this.same(model, row)),
        button("Close", () => shared.select(null, null), { class: "quiet" }),
      ),
      el("dl", { class: "facts" }, this.facts(model, row)),
    ];
    if (model.wait[row] > 0) parts.push(this.waited(model, row));
    parts.push(
      this.neighbours("Comes after", "predecessors", model, row),
      this.neighbours("Comes before", "successors", model, row),
    );
    parts.push(this.source(model, columns.source[row]));
    parts.push(
      el(
        "details",
        {},
        el("summary", {}, "All columns"),
        el(
          "dl",
          { class: "facts" },
          model.inst.meta.flatMap((meta) => {
            const value = model.inst.value(meta, row);
            return [
              el("dt", { title: meta.text }, meta.name),
              el(
                "dd",
                { title: typeof value === "number" ? String(value) : "" },
                meta.unit ? shown(value, meta.unit) : String(value) || "–",
              ),
            ];
          }),
        ),
      ),
    );
    return parts;
  }

  same(model, row) {
    const codes = model.inst.columns.opcode.codes,
      rows = [];
    for (let at = 0; at < model.rows; at++) if (codes[at] === codes[row]) rows.push(at);
    this.shared.highlight(model, rows, model.inst.columns.opcode.at(row));
  }

  facts(model, row) {
    const columns = model.inst.columns,
      facts = [
        [
          "engine",
          columns.engine.at(row) +
            (columns.queue.at(row) !== columns.engine.at(row) ? " · " + columns.queue.at(row) : "") +
            (model.about.cores > 1 ? ` · core ${columns.core[row]}` : ""),
        ],
        ["time", `${time(model.end[row] - model.move[row])} from ${time(model.move[row])} to ${time(model.end[row])}`],
      ];
    const kernel = model.kernelOf(row);
    if (kernel) facts.push(["module", `${kernel.module}, kernel ${kernel.name}`]);
    if (columns.slow_ns[row] > 0) facts.push(["of it slowed down", time(columns.slow_ns[row])]);
    if (columns.runs[row] !== 1) facts.push(["runs", count(columns.runs[row]) + " (times are of the first)"]);
    facts.push(["critical path", model.critical[row] > 0 ? time(model.critical[row]) : "not on it"]);
    if (columns.flops[row] > 0) facts.push(["operations", big(columns.flops[row]) + "FLOP"]);
    for (const memory of ["hbm", "sbuf", "psum"]) {
      const read = columns[memory + "_read_bytes"][row],
        write = columns[memory + "_write_bytes"][row];
      if (read || write)
        facts.push([
          memory.toUpperCase(),
          [read ? "reads " + bytes(read) : "", write ? "writes " + bytes(write) : ""].filter(Boolean).join(", "),
        ]);
    }
    const made = facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
      operands = columns.operands.at(row);
    // a line for each: in the column beside the names shapes would be torn apart
    if (operands) {
      const lines = operands.replace(/ (?=\w+=)/g, "\n");
      made.push(el("dt", {}, "operands"), el("dd", { class: "lines" }, lines));
    }
    return made;
  }

  waited(model, row) {
    const columns = model.inst.columns,
      kind = columns.wait_kind.at(row),
      other = columns.wait_for[row],
      text = columns.wait_text.at(row);
    const made = el(
      "p",
      { class: "waited" },
      el("b", {}, "Waited " + time(model.wait[row])),
      ": ",
      (WAIT_TEXTS[kind] || kind || "unknown") + (text ? `, ${text}. ` : ". "),
    );
    if (other >= 0) made.append(this.link(model, other));
    return made;
  }

  link(model, row) {
    return button(
      `${model.titleOf(row)} on ${model.inst.columns.queue.at(row)}`,
      () => this.shared.reveal(model, row),
      { class: "link" },
    );
  }

  neighbours(title, which, model, row) {
    const all = model[which](row),
      edges = model.tables.edges.columns;
    const items = all
      .slice(0, MOST_NEIGHBOURS)
      .map(({ edge, row: other }) =>
        el(
          "li",
          { class: edges.binding[edge] ? "binding" : "" },
          el(
            "span",
            { class: "badge " + edges.kind.at(edge), title: edges.binding[edge] ? "set the start" : "" },
            edges.kind.at(edge),
          ),
          " ",
          this.link(model, other),
          el("span", { class: "soft" }, ` ${time(edges.gap_ns[edge])} gap`),
          edges.what.at(edge) ? el("div", { class: "soft small" }, edges.what.at(edge)) : null,
        ),
      );
    if (all.length > items.length)
      items.push(el("li", { class: "soft" }, `and ${count(all.length - items.length)} more`));
    return el(
      "div",
      {},
      el("h3", {}, `${title} (${count(all.length)})`),
      all.length ? el("ul", { class: "edges" }, items) : el("p", { class: "soft" }, "nothing"),
    );
  }

  source(model, source) {
    if (source < 0) return el("p", { class: "soft" }, "Its source line is not known.");
    const columns = model.tables.sources.columns;
    return el(
      "div",
      {},
      el("h3", {}, "Source"),
      el(
        "ol",
        { class: "chain" },
        model.chain(source).map((at) =>
          el(
            "li",
            {},
            button(model.line(at), () => this.shared.emitSource(model, at), { class: "link" }),
            ` in ${columns.function.at(at)}`,
            el("code", {}, columns.text.at(at)),
          ),
        ),
      ),
    );
  }
}
