"use strict";
// Sums over instructions: of all, and of what is visible or measured.

/**
 * Counts and busy time of what is visible, or in the measured range.
 *
 * @param {Shared} shared
 * @param {Model} model
 */
function rangeView(shared, model) {
  const node = el("div", { class: "view" });
  const draw = () => {
    const range = shared.rangeOf(model, shared.range || shared.view),
      length = range.to - range.from;
    const lanes = model.lanes.map((lane) => {
      let busy = 0,
        events = 0;
      const [first, after] = lane.range(range.from, range.to);
      for (let at = first; at < after; at++) {
        const part = Math.min(lane.end[at], range.to) - Math.max(lane.start[at], range.from);
        if (part > 0) {
          busy += part;
          events++;
        }
      }
      return { core: lane.core, title: lane.title, busy, events };
    });
    const inside = [];
    for (let row = 0; row < model.rows; row++)
      if (model.end[row] > range.from && model.start[row] < range.to) inside.push(row);
    node.replaceChildren(
      el("h2", {}, `${shared.range ? "Measured" : "Visible"}: ${time(length)} from ${time(Math.max(0, range.from))}`),
      el(
        "p",
        { class: "soft" },
        `${count(inside.length)} instructions. Shift and drag in the timeline measures another range.`,
      ),
      new Grid(
        [
          ...(model.about.cores > 1 ? [{ title: "core", numeric: true, value: (row) => row.core }] : []),
          { title: "queue", value: (row) => row.title },
          { title: "events", numeric: true, value: (row) => row.events, show: count },
          { title: "busy", numeric: true, bar: true, value: (row) => row.busy, show: time },
          { title: "of the range", numeric: true, value: (row) => row.busy / length, show: (part) => percent(part, 1) },
        ],
        lanes,
        { label: "Queues in the range" },
      ).node,
      operatorGrid(shared, model, "opcode", inside).node,
    );
  };
  let waiting = 0;
  shared.on("view range", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (node.isConnected) draw();
    }, 150);
  });
  draw();
  return node;
}

/**
 * @param {Shared} shared
 * @param {Model} model
 * @param {string} by
 * @param {number[]} [rows] default: all
 */
function operatorGrid(shared, model, by, rows) {
  const columns = model.inst.columns,
    makers = {
      opcode: (row) => columns.opcode.at(row),
      line: (row) => columns.source[row],
      name: (row) => columns.name.at(row) || "–",
      engine: (row) => columns.engine.at(row),
      wait: (row) => columns.wait_kind.at(row) || "did not wait",
      module: (row) => model.kernelOf(row)?.module || "no module",
      kernel: (row) => model.kernelOf(row)?.name || "no kernel",
    };
  const keyOf = makers[by],
    found = model.operators(keyOf, rows),
    most = model.makespan;
  const titles = { opcode: "instruction", wait: "waited for" },
    title = titles[by] || by;
  const text = (row) => (by === "line" ? model.line(row.key) : row.key);
  const grid = [{ title, value: text }];
  if (by === "line")
    grid.push({ title: "text", value: (row) => (row.key < 0 ? "" : model.tables.sources.columns.text.at(row.key)) });
  grid.push(
    { title: "count", numeric: true, value: (row) => row.count, show: count },
    { title: "runs", numeric: true, value: (row) => row.runs, show: count },
    { title: "busy", numeric: true, bar: true, value: (row) => row.busy, show: time, help: "all runs" },
    { title: "of the time", numeric: true, value: (row) => row.busy / most, show: (part) => percent(part, 1) },
    { title: "waited", numeric: true, value: (row) => row.wait, show: time },
    { title: "critical", numeric: true, value: (row) => row.critical, show: time, help: "on the critical path" },
    { title: "HBM", numeric: true, value: (row) => row.hbm, show: bytes },
    { title: "FLOP", numeric: true, value: (row) => row.flops, show: big },
  );
  return new Grid(grid, found, {
    filter: "Filter",
    csv: `operators-by-${by}.csv`,
    sort: by === "line" ? 4 : 3,
    label: "Operators by " + title,
    onRow: (one) => {
      const hits = [];
      for (let row = 0; row < model.rows; row++) if (keyOf(row) === one.key) hits.push(row);
      shared.highlight(model, hits, text(one));
    },
  });
}

/**
 * @param {Shared} shared
 * @param {Model} model
 */
function operatorsView(shared, model) {
  const node = el("div", { class: "view" });
  const draw = (by) => {
    const picker = select(
      "Group by",
      [
        ["opcode", "by instruction"],
        ["line", "by source line"],
        ["name", "by name"],
        ["engine", "by engine"],
        ["wait", "by what it waited for"],
        ...(model.kernels.size
          ? [
              ["module", "by the module with most of the kernel"],
              ["kernel", "by kernel"],
            ]
          : []),
      ],
      by,
      draw,
    );
    node.replaceChildren(
      el("div", { class: "tools" }, picker, el("span", { class: "soft" }, "A click on a row highlights its events.")),
      operatorGrid(shared, model, by).node,
    );
  };
  draw("opcode");
  return node;
}
