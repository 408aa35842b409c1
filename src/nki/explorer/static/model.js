"use strict";
// What the views ask a profile: lanes in the order of time, neighbours, instructions of a line, totals.

const ENGINES = ["tensor", "vector", "scalar", "gpsimd", "sync"];
const ENGINE_TITLES = { tensor: "Tensor", vector: "Vector", scalar: "Scalar", gpsimd: "GpSimd", sync: "Sync" };
const COUNTER_ORDER = [
  "sbuf_bytes",
  "psum_bytes",
  "dma_bytes_per_ns",
  "hbm_read_bytes_per_ns",
  "hbm_write_bytes_per_ns",
  "dma_in_flight",
];

/** Rows by a number from 0: `of(number)` is a slice of row numbers. */
class Groups {
  constructor(keys, size) {
    this.starts = new Int32Array(size + 1);
    for (let row = 0; row < keys.length; row++) if (keys[row] >= 0) this.starts[keys[row] + 1]++;
    for (let at = 0; at < size; at++) this.starts[at + 1] += this.starts[at];
    this.rows = new Int32Array(this.starts[size]);
    const next = this.starts.slice();
    for (let row = 0; row < keys.length; row++) if (keys[row] >= 0) this.rows[next[keys[row]]++] = row;
  }

  of(number) {
    return this.rows.subarray(this.starts[number], this.starts[number + 1]);
  }
}

class Model {
  constructor({ document: about, tables }, label) {
    this.about = about;
    this.tables = tables;
    this.label = label;
    const inst = tables.instructions,
      columns = inst.columns;
    this.inst = inst;
    this.rows = inst.rows;
    this.start = columns.start_ns;
    this.move = columns.move_ns;
    this.end = columns.end_ns;
    this.turn = columns.turn_ns;
    this.visible = columns.visible_ns;
    this.wait = columns.wait_ns;
    this.critical = columns.critical_ns;
    this.cost = columns.cost_ns;
    this.makespan = Math.max(about.makespan_ns, 1e-3);
    this.busy = new Float64Array(this.rows); // all runs
    for (let row = 0; row < this.rows; row++) this.busy[row] = (this.end[row] - this.move[row]) * columns.runs[row];
    this.lanes = this.makeLanes();
    this.paths = this.makePaths();
    this.into = new Groups(tables.edges.columns.consumer, this.rows);
    this.out = new Groups(tables.edges.columns.producer, this.rows);
    this.bySource = new Groups(columns.source, tables.sources.rows);
    this.colourings = new Map();
    this.shown = [this]; // all profiles of the page, which share their colours
    this.counters = this.makeCounters();
  }

  /** A lane for each queue; the starts of transfers occupy the queue of the engine that triggers them, too. */
  makeLanes() {
    const { core, queue } = this.inst.columns,
      dma = this.tables.dma.columns,
      groups = new Map();
    const put = (number, name, row, start, end) => {
      const key = number + "/" + name;
      let group = groups.get(key);
      if (!group) groups.set(key, (group = { core: number, queue: name, rows: [], starts: [], ends: [] }));
      group.rows.push(row);
      group.starts.push(start);
      group.ends.push(end);
    };
    for (let row = 0; row < this.rows; row++) put(core[row], queue.at(row), row, this.move[row], this.end[row]);
    for (let at = 0; at < dma.core.length; at++) {
      const trigger = dma.trigger.at(at);
      if (trigger && dma.issued_ns[at] > dma.trigger_ns[at])
        put(dma.core[at], trigger, dma.instruction[at], dma.trigger_ns[at], dma.issued_ns[at]);
    }
    const lanes = [...groups.values()].map(
      (group) => new Lane(group.core, group.queue, ENGINE_TITLES[group.queue] || group.queue, group),
    );
    const times = this.tables.time.columns,
      busy = new Map();
    for (let at = 0; at < times.ns.length; at++)
      if (times.category.at(at) === "busy") busy.set(times.core[at] + "/" + times.track.at(at), times.ns[at]);
    for (const lane of lanes) lane.busy = (busy.get(lane.core + "/" + lane.queue) || 0) / this.makespan;
    const rank = ({ queue }) => (queue.startsWith("dma") ? 100 + Number(queue.slice(3)) : ENGINES.indexOf(queue));
    return lanes.sort((a, b) => a.core - b.core || rank(a) - rank(b));
  }

  /** The critical path of each core as a lane; its rows are those of the table `path`. */
  makePaths() {
    const { core, start_ns: start, end_ns: end } = this.tables.path.columns,
      groups = new Map();
    for (let row = 0; row < start.length; row++) {
      if (!groups.has(core[row])) groups.set(core[row], { rows: [], starts: [], ends: [] });
      const group = groups.get(core[row]);
      group.rows.push(row);
      group.starts.push(start[row]);
      group.ends.push(end[row]);
    }
    return [...groups].map(([number, group]) => new Lane(number, "path", "Critical path", group));
  }

  makeCounters() {
    const { core, counter, time_ns: times, value: values } = this.tables.counters.columns,
      found = new Map();
    for (let row = 0; row < times.length; row++) {
      const key = core[row] + "/" + counter.codes[row];
      let one = found.get(key);
      if (!one) found.set(key, (one = { core: core[row], name: counter.at(row), first: row, after: row, peak: 0 }));
      one.after = row + 1;
      one.peak = Math.max(one.peak, values[row]);
    }
    const rank = ({ name }) => (COUNTER_ORDER.indexOf(name) + COUNTER_ORDER.length + 1) % (COUNTER_ORDER.length + 1);
    return [...found.values()]
      .sort((a, b) => rank(a) - rank(b))
      .map((one) => ({
        ...one,
        times: times.slice(one.first, one.after),
        values: values.slice(one.first, one.after),
      }));
  }

  /** Instructions by code, and for each code a key that is the same in every profile, and its name. */
  kinds(mode) {
    const { source, opcode } = this.inst.columns;
    if (mode === "opcode") return { codes: opcode.codes, key: (at) => opcode.values[at], name: (at) => opcode.values[at] };
    const { file, function: names, text } = this.tables.sources.columns,
      one = (at) => [baseName(file.at(at)), names.at(at), text.at(at)].join("\u0000");
    const key = (at) => (at < 0 ? "" : this.shown.length > 1 ? one(at) : this.line(at));
    return { codes: source, key, name: (at) => this.line(at) };
  }

  /** Busy time and names by the keys of `kinds`. */
  busyByKind(mode) {
    const { codes, key, name } = this.kinds(mode),
      sums = new Map(),
      found = new Map();
    for (let row = 0; row < this.rows; row++) sums.set(codes[row], (sums.get(codes[row]) || 0) + this.busy[row]);
    for (const [code, ns] of sums) {
      const one = found.get(key(code));
      if (one) one.ns += ns;
      else found.set(key(code), { ns, name: name(code) });
    }
    return found;
  }

  /** Keys of `kinds` in all profiles of the page, those with most busy time first: [key, name]. */
  rankedKinds(mode) {
    const sums = new Map();
    for (const model of this.shown)
      for (const [key, { ns, name }] of model.busyByKind(mode)) {
        const one = sums.get(key);
        if (one) one.ns += ns;
        else sums.set(key, { ns, name });
      }
    return [...sums].sort((a, b) => b[1].ns - a[1].ns).map(([key, { name }]) => [key, name]);
  }

  /** Numbers of colours by instruction, and what each number means; the same in all profiles of the page. */
  colouring(mode) {
    if (this.colourings.has(mode)) return this.colourings.get(mode);
    const colours = new Uint8Array(this.rows),
      columns = this.inst.columns;
    /** @type {[number, string][]} */
    let legend;
    if (mode === "engine" || mode === "wait") {
      const texts = mode === "engine" ? columns.engine : columns.wait_kind;
      const table = mode === "engine" ? ENGINE_COLOURS : CATEGORY_COLOURS;
      const codes = texts.values.map((value) => (value in table ? table[value] : REST));
      for (let row = 0; row < this.rows; row++) colours[row] = codes[texts.codes[row]];
      const values = new Set(
        this.shown.flatMap(({ inst }) => (mode === "engine" ? inst.columns.engine : inst.columns.wait_kind).values),
      );
      legend = [...values].map((value) => [value in table ? table[value] : REST, value || "did not wait"]);
    } else if (mode === "critical") {
      for (let row = 0; row < this.rows; row++) colours[row] = this.critical[row] > 0 ? 5 : REST;
      legend = [
        [5, "on the critical path"],
        [REST, "not on it"],
      ];
    } else {
      const { codes, key } = this.kinds(mode),
        ranked = this.rankedKinds(mode),
        of = new Map(ranked.map(([each], at) => [each, Math.min(at, REST)])),
        byCode = new Map();
      for (let row = 0; row < this.rows; row++) {
        const code = codes[row];
        if (!byCode.has(code)) byCode.set(code, of.get(key(code)));
        colours[row] = byCode.get(code);
      }
      legend = ranked.slice(0, REST).map(([, name], at) => [at, name]);
      if (ranked.length > REST) legend.push([REST, "the rest"]);
    }
    this.colourings.set(mode, { colours, legend });
    return this.colourings.get(mode);
  }

  /** Colours of the critical path: work has that of its instruction, everything else is waiting of some kind. */
  pathColours(colours) {
    if (this.pathFor === colours) return this.pathColoured;
    const { kind, instruction } = this.tables.path.columns,
      work = new Set(["run", "trigger"]);
    this.pathColoured = Uint8Array.from(instruction, (row, at) =>
      row >= 0 && work.has(kind.at(at)) ? colours[row] : DIMMED + 1,
    );
    this.pathFor = colours;
    return this.pathColoured;
  }

  /** `kernels.py:41`, or – if it is not known. */
  line(source) {
    if (source < 0) return "–";
    const { file, line } = this.tables.sources.columns;
    return baseName(file.at(source)) + ":" + line[source];
  }

  /** What led to a line: it, its caller, ... */
  chain(source) {
    const found = [],
      parent = this.tables.sources.columns.parent;
    for (let at = source; at >= 0; at = parent[at]) found.push(at);
    return found;
  }

  engineOf(row) {
    return this.inst.columns.engine.at(row);
  }

  titleOf(row) {
    const name = this.inst.columns.name.at(row),
      opcode = this.inst.columns.opcode.at(row).replace(/^nisa\./, "");
    return name ? opcode + " · " + name : opcode;
  }

  /** Edges of an instruction: [{edge, row}], those that set its start first. */
  predecessors(row) {
    return this.neighbours(this.into.of(row), this.tables.edges.columns.producer);
  }

  successors(row) {
    return this.neighbours(this.out.of(row), this.tables.edges.columns.consumer);
  }

  neighbours(edges, column) {
    const binding = this.tables.edges.columns.binding;
    return Array.from(edges, (edge) => ({ edge, row: column[edge] })).sort((a, b) => binding[b.edge] - binding[a.edge]);
  }

  /** Sums over instructions by a key; the largest first. */
  operators(keyOf, rows) {
    const found = new Map(),
      columns = this.inst.columns;
    const add = (row) => {
      const key = keyOf(row);
      let one = found.get(key);
      if (!one)
        found.set(key, (one = { key, count: 0, runs: 0, busy: 0, wait: 0, critical: 0, hbm: 0, flops: 0, first: row }));
      const runs = columns.runs[row];
      one.count++;
      one.runs += runs;
      one.busy += this.busy[row];
      one.wait += this.wait[row] * runs;
      one.critical += this.critical[row];
      one.hbm += (columns.hbm_read_bytes[row] + columns.hbm_write_bytes[row]) * runs;
      one.flops += columns.flops[row] * runs;
    };
    if (rows) for (const row of rows) add(row);
    else for (let row = 0; row < this.rows; row++) add(row);
    return [...found.values()].sort((a, b) => b.busy - a.busy);
  }

  /** The name of each kernel of a model, and the module that has most of it, by number; empty for a kernel. */
  get kernels() {
    if (this.named) return this.named;
    const { kernel, name, module, share } = this.tables.kernels.columns,
      { path, class: kinds } = this.tables.modules.columns;
    this.named = new Map();
    const shares = new Map();
    for (let at = 0; at < this.tables.kernels.rows; at++) {
      const of = module[at],
        key = `${kernel[at]}/${of}`,
        all = (shares.get(key) || 0) + share[at];
      shares.set(key, all);
      const one = this.named.get(kernel[at]);
      if (one && one.share >= all) continue;
      const kind = of < 0 ? "" : kinds.at(of);
      const text = of < 0 ? "no module" : [path.at(of), kind && `(${kind})`].filter(Boolean).join(" ");
      this.named.set(kernel[at], { name: name.at(at), module: text, share: all });
    }
    return this.named;
  }

  kernelOf(row) {
    return this.kernels.get(this.inst.columns.kernel[row]);
  }

  total(name) {
    return this.about.totals.reduce((sum, core) => sum + (core[name] || 0), 0);
  }
}
