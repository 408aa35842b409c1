"use strict";
// Two profiles side by side: totals, instructions and lines, with what changed.

function change(a, b) {
  if (minus(b, a) === 0) return "";
  return a ? (b >= a ? "+" : "−") + trim(Math.abs((100 * (b - a)) / a)) + " %" : "new";
}

/** The difference; what only rounding makes is none. */
function minus(b, a) {
  return Math.abs(b - a) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b)) ? 0 : b - a;
}

function tone(better) {
  return (value) => (value === 0 ? "" : value < 0 === better ? "good" : "bad");
}

/**
 * @param {Shared} shared
 * @param {Model[]} models
 */
function compareView(shared, models) {
  const [a, b] = models;
  const node = el("div", { class: "view" });
  const zoom = select(
    "Time axes",
    [
      ["absolute", "same time scale"],
      ["relative", "both fill the width"],
    ],
    shared.relative ? "relative" : "absolute",
    (value) => {
      shared.relative = value === "relative";
      shared.emit("view");
    },
  );
  node.append(
    el(
      "div",
      { class: "tools" },
      zoom,
      el(
        "span",
        { class: "soft" },
        `${a.label} and ${b.label}: differences are B − A, `,
        el("span", { class: "good" }, "− B needs less"),
        ", ",
        el("span", { class: "bad" }, "+ B needs more"),
        ". What has one colour in the timelines is the same in both.",
      ),
    ),
    el("h2", {}, "Totals"),
    totalsGrid(a, b).node,
    el("h2", {}, "By instruction"),
    differences(shared, a, b, "opcode").node,
    el("h2", {}, "By source line"),
    el("p", { class: "soft" }, "Lines are the same if file, function and text are; their numbers may differ."),
    differences(shared, a, b, "line").node,
  );
  return node;
}

function totalsGrid(a, b) {
  const max = (model, name) => Math.max(...model.about.totals.map((core) => core[name]));
  /** @type {[string, string, (model: Model) => number, boolean][]} */
  const figures = [
    ["time on the device", "ns", (m) => m.about.makespan_ns, true],
    ["launch", "ns", (m) => m.about.launch_ns, true],
    ["instructions", "", (m) => m.total("instructions"), true],
    ["transfers", "", (m) => m.total("transfers"), true],
    ["bytes moved", "bytes", (m) => m.total("dma_bytes"), true],
    ["HBM reads", "bytes", (m) => m.total("hbm_read_bytes"), true],
    ["HBM writes", "bytes", (m) => m.total("hbm_write_bytes"), true],
    ["operations", "flop", (m) => m.total("flops"), true],
    ["SBUF peak", "bytes", (m) => max(m, "sbuf_peak_bytes"), true],
    ["PSUM peak", "bytes", (m) => max(m, "psum_peak_bytes"), true],
    ...[...new Set([...a.about.totals, ...b.about.totals].flatMap((core) => Object.keys(core.units)))].map(
      (unit) =>
        /** @type {[string, string, (model: Model) => number, boolean]} */ ([
          `${unit} busy`,
          "ns",
          (m) => m.about.totals.reduce((sum, core) => sum + (core.units[unit] || 0), 0),
          true,
        ]),
    ),
  ];
  const rows = figures.map(([name, unit, of]) => ({ name, unit, a: of(a), b: of(b) }));
  const show = (value, row) => (row.unit === "flop" ? big(value) : shown(value, row.unit));
  return new Grid(
    [
      { title: "", value: (row) => row.name },
      { title: "A", numeric: true, value: (row) => row.a, show },
      { title: "B", numeric: true, value: (row) => row.b, show },
      {
        title: "difference",
        numeric: true,
        value: (row) => minus(row.b, row.a),
        show: (value, row) => (value > 0 ? "+" : "") + show(value, row),
        tone: tone(true),
      },
      {
        title: "change",
        numeric: true,
        value: (row) => (row.a ? minus(row.b, row.a) / row.a : 0),
        show: (_, row) => change(row.a, row.b),
        tone: tone(true),
      },
    ],
    rows,
    { label: "Totals of both", csv: "compare-totals.csv" },
  );
}

/**
 * Sums of both profiles by the same key.
 *
 * @param {Shared} shared
 */
function differences(shared, a, b, by) {
  const keyOf = (model) => {
    const { opcode, source } = model.inst.columns,
      { file, function: names, text } = model.tables.sources.columns;
    if (by === "opcode") return (row) => opcode.at(row);
    const keys = Array.from({ length: model.tables.sources.rows }, (_, at) =>
      [baseName(file.at(at)), names.at(at), text.at(at)].join("\u0000"),
    );
    return (row) => (source[row] < 0 ? "" : keys[source[row]]);
  };
  const keys = [keyOf(a), keyOf(b)],
    sums = [a, b].map((model, at) => new Map(model.operators(keys[at]).map((one) => [one.key, one])));
  const none = { count: 0, busy: 0, wait: 0, critical: 0 };
  const rows = [...new Set([...sums[0].keys(), ...sums[1].keys()])].map((key) => ({
    key,
    a: sums[0].get(key) || none,
    b: sums[1].get(key) || none,
  }));
  const line = (model, one) => (one === none ? "" : model.line(model.inst.columns.source[one.first]));
  const first =
    by === "opcode"
      ? [{ title: "instruction", value: (row) => row.key }]
      : [
          { title: "line in A", value: (row) => line(a, row.a) },
          { title: "in B", value: (row) => line(b, row.b) },
          { title: "text", value: (row) => row.key.split("\u0000")[2] || "–" },
        ];
  const difference = (name, title) => ({
    title,
    numeric: true,
    value: (row) => minus(row.b[name], row.a[name]),
    show: (value) => (value > 0 ? "+" : "") + time(value),
    tone: tone(true),
  });
  return new Grid(
    [
      ...first,
      { title: "count A", numeric: true, value: (row) => row.a.count, show: count },
      { title: "count B", numeric: true, value: (row) => row.b.count, show: count },
      { title: "busy A", numeric: true, value: (row) => row.a.busy, show: time },
      { title: "busy B", numeric: true, value: (row) => row.b.busy, show: time },
      { ...difference("busy", "busy, difference"), bar: true },
      difference("wait", "waited, difference"),
      difference("critical", "critical, difference"),
    ],
    rows,
    {
      filter: "Filter",
      csv: `compare-by-${by}.csv`,
      label: "Differences by " + by,
      sort: -1,
      onRow: (one) =>
        shared.highlightMasks(
          new Map(
            [a, b].map((model, at) => [
              model,
              Uint8Array.from({ length: model.rows }, (_, row) => (keys[at](row) === one.key ? 1 : 0)),
            ]),
          ),
          by === "opcode" ? one.key : one.key.split("\u0000")[2],
        ),
    },
  );
}
