"use strict";
// What the whole profile says: totals, advice, where time went, bounds.

const MOST_ADVISED = 100;

function card(title, value, more) {
  return el(
    "div",
    { class: "card" },
    el("div", { class: "soft" }, title),
    el("div", { class: "big" }, value),
    more ? el("div", { class: "soft small" }, more) : null,
  );
}

/**
 * Peak of matmuls for the dtype that the profile gives first.
 *
 * @param {Model} model
 */
function peakFlops(model) {
  const peaks = model.about.hardware.peak_tflops || {};
  return Number(peaks.bfloat16 || 0) * 1000; // per ns
}

/**
 * @param {Shared} shared
 * @param {Model} model
 */
function summaryView(shared, model) {
  const { about } = model,
    flops = model.total("flops"),
    matmuls = model.total("matmul_flops"),
    moved = model.total("dma_bytes"),
    transfers = model.total("transfers");
  const peak = peakFlops(model) * about.cores,
    rate = matmuls / model.makespan,
    hardware = about.hardware;
  const dmaPeak = Number(hardware.dma_bytes_per_ns || 0) * about.cores,
    transposed = model.total("transpose_flops");
  const cards = [
    card("Time on the device", time(about.makespan_ns), `and ${time(about.launch_ns)} for the launch`),
    card("Bound by", [...new Set(about.totals.map((core) => core.bound_by))].join(", "), "the busiest unit"),
    card("Instructions", count(model.total("instructions")), plural(about.cores, "core")),
    card(
      "Operations",
      big(flops) + "FLOP",
      peak ? `${percent(rate, peak)} of the bfloat16 peak by matmuls` : `${big(rate * 1e9)}FLOP/s by matmuls`,
    ),
    card(
      "DMA",
      bytes(moved),
      dmaPeak
        ? `${percent(moved / model.makespan, dmaPeak)} of the DMA's rate`
        : trim(moved / model.makespan) + " GB/s",
    ),
    card("Average transfer", transfers ? bytes(moved / transfers) : "–", plural(transfers, "transfer")),
    card("Intensity", moved ? trim(flops / moved) + " FLOP/B" : "–", "operations for each byte moved"),
    card("Transposes", percent(transposed, transposed + matmuls), "of Tensor's operations"),
    card(
      "SBUF peak",
      bytes(Math.max(...about.totals.map((core) => core.sbuf_peak_bytes))),
      ofSize(about.totals, "sbuf", hardware),
    ),
    card(
      "PSUM peak",
      bytes(Math.max(...about.totals.map((core) => core.psum_peak_bytes))),
      ofSize(about.totals, "psum", hardware),
    ),
  ];
  const told = about.is_simulation ? `Simulated: ${about.accuracy.text}.` : `Not simulated: ${about.accuracy.text}.`;
  const notes = [el("p", { class: "note" }, told)];
  const assumed = about.totals.reduce((sum, core) => sum + core.assumed_loops.length, 0);
  if (assumed)
    notes.push(
      el(
        "p",
        { class: "note" },
        `Nothing tells how many trips ${plural(assumed, "loop")} will make; each counts as one trip.`,
      ),
    );
  return el(
    "div",
    { class: "view" },
    notes,
    el("div", { class: "cards" }, cards),
    adviceView(shared, model),
    timeView(model),
    boundsView(model),
  );
}

function ofSize(totals, name, hardware) {
  const size = hardware[name + "_bytes_per_partition"],
    used = Math.max(...totals.map((core) => core[name + "_peak_bytes"]));
  return size ? `${percent(used, size)} of each partition` : "of each partition";
}

/**
 * What an advice is expected to save, and whether the model may be off by more.
 *
 * @param {any} one
 */
function expected(one) {
  const about = ` · about ${time(one.expected_ns)}`;
  return one.within_error ? `${about}, less than the model may be off` : about;
}

/**
 * @param {Shared} shared
 * @param {Model} model
 */
function adviceView(shared, model) {
  const items = model.about.advice.map((one) =>
    el(
      "li",
      {},
      el(
        "div",
        { class: "advice-head" },
        el("span", { class: "saving" }, `saves up to ${time(one.saving_ns)}`),
        el("span", { class: "soft" }, ` ${percent(one.share, 1)}${expected(one)} · ${one.engine} · ${one.rule}`),
      ),
      el("div", {}, one.message),
      el("div", { class: "fix" }, one.fix),
      el(
        "div",
        { class: "tools" },
        one.instructions.length
          ? button(showsOf(one.instructions), () => {
              shared.highlight(model, one.instructions, one.rule);
              shared.reveal(model, one.instructions[0]);
            })
          : null,
        one.sources
          .slice(0, 4)
          .map((source) => button(model.line(source), () => shared.emitSource(model, source), { class: "link" })),
      ),
    ),
  );
  return el(
    "section",
    {},
    el("h2", {}, "What costs most"),
    items.length
      ? el("ol", { class: "advice" }, items)
      : el("p", { class: "soft" }, "Nothing that a change of the kernel would save more than a little."),
  );
}

/** Advice comes with the instructions that cost most; if they are as many as it ever has, there may be more. */
function showsOf(instructions) {
  const all = instructions.length !== MOST_ADVISED;
  return all ? `Show ${plural(instructions.length, "instruction")}` : `Show the ${count(instructions.length)} costliest`;
}

/**
 * Stacked bars: the time of each engine and DMA queue by category.
 *
 * @param {Model} model
 */
function timeView(model) {
  const { core, track, category, ns } = model.tables.time.columns,
    tracks = new Map(),
    used = new Set();
  for (let row = 0; row < ns.length; row++) {
    const key = core[row] + "/" + track.at(row);
    if (!tracks.has(key)) tracks.set(key, { core: core[row], track: track.at(row), parts: [], total: 0 });
    const one = tracks.get(key);
    one.parts.push([category.at(row), ns[row]]);
    one.total += ns[row];
    if (ns[row] > 0) used.add(category.at(row));
  }
  const all = [...tracks.values()],
    engines = all.filter((one) => !/^dma\d/.test(one.track)),
    queues = all.filter((one) => /^dma\d/.test(one.track));
  const legend = el(
    "ul",
    { class: "legend" },
    [...used].map((name) => el("li", {}, swatch(name === "idle" ? null : (CATEGORY_COLOURS[name] ?? REST)), name)),
  );
  const bars = (list) => list.map((one) => stack(model, one));
  return el(
    "section",
    {},
    el("h2", {}, "Where the time of each engine went"),
    legend,
    bars(engines),
    queues.length ? el("details", {}, el("summary", {}, plural(queues.length, "DMA queue")), bars(queues)) : null,
  );
}

function swatch(colour) {
  const made = el("span", { class: "swatch" + (colour === null ? " empty" : "") });
  if (colour !== null) made.style.background = PALETTE[colour];
  return made;
}

function stack(model, { core, track, parts, total }) {
  const ordered = [...parts].sort((a, b) => rankOf(a[0]) - rankOf(b[0]));
  const name =
    (model.about.cores > 1 ? `core ${core} ` : "") + (track === "dma" ? "DMA, all" : ENGINE_TITLES[track] || track);
  const busy = (parts.find(([kind]) => kind === "busy") || ["", 0])[1];
  const bar = el(
    "div",
    {
      class: "stack",
      role: "img",
      "aria-label": ordered.map(([kind, ns]) => `${kind} ${percent(ns, total)}`).join(", "),
    },
    ordered
      .filter(([, ns]) => ns > 0)
      .map(([kind, ns]) => {
        const part = el("span", { title: `${kind}: ${time(ns)}, ${percent(ns, total)}` });
        part.style.width = (100 * ns) / total + "%";
        if (kind !== "idle") part.style.background = PALETTE[CATEGORY_COLOURS[kind] ?? REST];
        return part;
      }),
  );
  return el(
    "div",
    { class: "stack-row" },
    el("span", {}, name),
    bar,
    el("span", { class: "num" }, percent(busy, total)),
  );
}

function rankOf(kind) {
  return kind === "busy" ? 0 : kind === "idle" ? 9 : 1;
}

/** @param {Model} model */
function boundsView(model) {
  const rows = model.about.totals.flatMap((core, number) =>
    Object.entries(core.bounds).map(([name, ns]) => ({ core: number, name, ns })),
  );
  const grid = new Grid(
    [
      ...(model.about.cores > 1 ? [{ title: "core", numeric: true, value: (row) => row.core }] : []),
      { title: "lower bound", value: (row) => row.name },
      { title: "time", numeric: true, bar: true, value: (row) => row.ns, show: time },
      {
        title: "of the time on the device",
        numeric: true,
        value: (row) => row.ns / model.makespan,
        show: (part) => percent(part, 1),
      },
    ],
    rows,
    { sort: model.about.cores > 1 ? 2 : 1, label: "Lower bounds" },
  );
  return el(
    "section",
    {},
    el("h2", {}, "What could be reached"),
    el("p", { class: "soft" }, "No order of the same work takes less than any of these."),
    grid.node,
  );
}
