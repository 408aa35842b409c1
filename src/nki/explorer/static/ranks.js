"use strict";
// The page of a step: rows of ranks, what is selected, and tables of ranks, collectives and the critical path.

const STEP_LEGEND = [
  ["work", "works"],
  ["hidden", "a collective behind work"],
  ["exposed", "a collective, and no work"],
  ["waiting", "ready, and another rank is not"],
  ["path", "critical path"],
];

class StepPage {
  /** There is no search on this page. */
  searchInput = null;

  constructor(step) {
    this.step = step;
    this.showPath = true;
    /** A communication of a row. @type {{row: number, number: number} | null} */
    this.selected = null;
    this.rowOf = new Map(step.rows.map((row, at) => [row.rank, at]));
    this.meetings = step.meetings.map(([collective, start, last, members]) => {
      const rows = members.map(([rank]) => this.rowOf.get(rank));
      return { collective, start, last, members, first: Math.min(...rows), final: Math.max(...rows) };
    });
    this.byCall = new Map();
    for (const meeting of this.meetings)
      for (const [rank, number] of meeting.members) this.byCall.set(this.rowOf.get(rank) + "/" + number, meeting);
    this.shared = new Shared(/** @type {any} */ ([{ makespan: step.makespan_ns }]));
    this.tip = new Tip();
    this.rows = new RankRows(this);
    this.details = el("aside", { class: "details", "aria-label": "Selection", tabindex: 0 });
    this.tabs = new Tabs(
      [
        ["ranks", "Ranks", () => this.ranksView()],
        ["collectives", "Collectives", () => this.collectivesView()],
        ["path", "Critical path", () => this.pathView()],
      ],
      () => {},
    );
    this.loadTime = 0; // ms
    this.node = el(
      "div",
      { class: "page" },
      this.header(),
      this.legend(),
      el("div", { class: "lanes" }, this.rows.node),
      el("div", { class: "splitter", role: "separator", "aria-orientation": "horizontal" }),
      el("div", { class: "lower" }, el("div", { class: "drawer" }, this.tabs.bar, this.tabs.panel), this.details),
    );
    this.node.style.setProperty("--split", "66%");
    this.shared.on("select", () => this.describe());
    this.listen();
    this.describe();
  }

  header() {
    const { step } = this,
      some = step.rows.length < step.ranks;
    return el(
      "header",
      {},
      el("h1", {}, step.name),
      el("span", { class: "chip" }, plural(step.ranks, "rank") + (some ? `, ${count(step.rows.length)} shown` : "")),
      el("span", { class: "chip" }, step.instance),
      el("span", { class: "chip" }, time(step.makespan_ns)),
      el("span", { class: "chip warn" }, "simulated, not measured"),
      el("span", { class: "grow" }),
      button("Theme", () => this.theme(), { class: "quiet", "aria-label": "Switch between light and dark" }),
    );
  }

  legend() {
    const swatch = (kind) => {
      const box = el("span", { class: "swatch" });
      box.style.background = PALETTE[STEP_COLOURS[kind]];
      return box;
    };
    const box = el("input", { type: "checkbox", checked: true, on: { change: () => this.togglePath() } });
    return el(
      "div",
      { class: "strip" },
      el(
        "ul",
        { class: "legend" },
        STEP_LEGEND.map(([kind, text]) => el("li", {}, swatch(kind), text)),
      ),
      el("span", { class: "grow" }),
      el("label", { class: "small" }, box, " critical path"),
    );
  }

  togglePath() {
    this.showPath = !this.showPath;
    this.shared.emit("layout");
  }

  theme() {
    const root = document.documentElement,
      dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.shared.emit("theme");
  }

  restore() {
    this.tabs.open("ranks");
    this.shared.setView(0, this.shared.longest);
  }

  classOf(row) {
    return this.step.classes[this.step.rows[row].class];
  }

  meetingOf(row, number) {
    return this.byCall.get(row + "/" + number);
  }

  /** @param {{row: number, number: number} | null} selected */
  select(selected) {
    this.selected = selected;
    document.body.classList.toggle("selected", Boolean(selected));
    this.shared.emit("select");
  }

  /** The communication of a row at a time, or -1; of several the one that began last. */
  numberAt(row, ns) {
    let found = -1;
    this.classOf(row).communications.forEach(([, ready, , end], at) => {
      if (ready <= ns && ns <= end) found = at;
    });
    return found;
  }

  /** What a row does at a time, in words. */
  doing(row, ns) {
    const found = this.classOf(row),
      number = this.numberAt(row, ns),
      run = found.runs.find(([, start, end]) => start <= ns && ns <= end),
      works = found.work.some(([start, end]) => start <= ns && ns <= end);
    const lines = [works ? "works" : "does not work"];
    if (run) lines.push("in " + run[0]);
    if (number >= 0) {
      const [collective, , start] = found.communications[number],
        { name, nbytes } = this.step.collectives[collective];
      lines.push(`${ns < start ? "waits for others in" : "moves data of"} ${name}, ${bytes(nbytes)}`);
    }
    return [`rank ${count(this.step.rows[row].rank)} at ${time(ns)}`, ...lines];
  }

  describe() {
    this.details.replaceChildren(...(this.selected ? this.facts(this.selected) : this.overview()));
  }

  overview() {
    const { step } = this;
    return [
      el("h2", {}, "Step"),
      factList([
        ["work of a rank", time(step.work_ns)],
        ["of that, behind it", time(step.hidden_ns) + " of collectives"],
        ["exposed", `${time(step.exposed_ns)} (${percent(step.exposed_ns, step.makespan_ns)})`],
        ["waiting", time(step.waiting_ns)],
        ["idle", time(step.idle_ns)],
      ]),
      el("p", { class: "soft small" }, "Means of all ranks. A click on a collective says more of it."),
      step.notes.map((note) => el("p", { class: "note" }, note)),
    ];
  }

  facts({ row, number }) {
    const made = this.classOf(row).communications[number],
      [collective, ready, start, end, exposed] = made,
      about = this.step.collectives[collective],
      meeting = this.meetingOf(row, number);
    return [
      el("h2", {}, about.name + " ", el("small", {}, `rank ${count(this.step.rows[row].rank)}`)),
      factList([
        ["where", about.where],
        ["bytes", bytes(about.nbytes)],
        ["ranks that meet", count(about.group)],
        ["algorithm", about.how || "–"],
        ["ready", time(ready)],
        ["waits", `${time(start - ready)}${meeting ? `, rank ${count(meeting.last)} comes last` : ""}`],
        ["moves data", `${time(start)} to ${time(end)}`],
        ["exposed", `${time(exposed)} of ${time(end - start)}`],
      ]),
    ];
  }

  ranksView() {
    const { step } = this,
      spent = (name) => ({ numeric: true, bar: true, value: (row) => row[name + "_ns"], show: (value) => time(value) });
    const grid = new Grid(
      [
        { title: "ranks", value: (row) => row.ranks },
        { title: "number", numeric: true, value: (row) => row.count },
        { title: "program of rank", numeric: true, value: (row) => row.program },
        { title: "slowdown", numeric: true, value: (row) => row.slowdown },
        ...["work", "exposed", "waiting", "idle", "hidden", "end"].map((name) => ({ title: name, ...spent(name) })),
      ],
      step.classes,
      { label: "Ranks with equal times", sort: 9, csv: "ranks.csv", onRow: (row) => this.reveal(row) },
    );
    return el("div", { class: "view" }, grid.node);
  }

  /** Select the first communication of a class. */
  reveal(found) {
    const row = this.step.rows.findIndex((each) => this.step.classes[each.class] === found);
    if (row >= 0 && found.communications.length) this.select({ row, number: 0 });
  }

  collectivesView() {
    const timed = (title, name) => ({ title, numeric: true, bar: true, value: (row) => row[name], show: (value) => time(value) });
    const grid = new Grid(
      [
        { title: "collective", value: (row) => row.name },
        { title: "bytes", numeric: true, value: (row) => row.nbytes, show: (value) => bytes(value) },
        { title: "ranks", numeric: true, value: (row) => row.group },
        { title: "times", numeric: true, value: (row) => row.count, show: (value) => count(value) },
        timed("one", "ns"),
        timed("exposed", "exposed_ns"),
        timed("waiting", "waiting_ns"),
        timed("on the path", "critical_ns"),
        { title: "algorithm", value: (row) => row.how },
        { title: "where", value: (row) => row.where },
      ],
      this.step.collectives,
      { label: "Collectives, means of all ranks", sort: 7, csv: "collectives.csv" },
    );
    return el("div", { class: "view" }, grid.node);
  }

  pathView() {
    const { step } = this;
    const grid = new Grid(
      [
        { title: "from", numeric: true, value: (row) => row[0], show: (value) => time(value) },
        { title: "length", numeric: true, bar: true, value: (row) => row[1] - row[0], show: (value) => time(value) },
        { title: "rank", numeric: true, value: (row) => row[2] },
        { title: "what", value: (row) => (row[3] < 0 ? "work" : step.collectives[row[3]].name) },
      ],
      step.path,
      {
        label: "Critical path",
        sort: 0,
        down: false,
        csv: "path.csv",
        onRow: ([from, to]) => this.shared.show(this.shared.models[0], from, to),
      },
    );
    return el("div", { class: "view" }, grid.node);
  }

  listen() {
    const { canvas } = this.rows,
      { shared } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const scale = this.rows.scale(),
          unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
          shared.pan(((event.deltaX || event.deltaY) * unit) / scale.width);
        else shared.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * unit * 0.0025))), scale.time(event.offsetX));
      },
      { passive: false },
    );
    let start = /** @type {{x: number, view: {from: number, to: number}} | null} */ (null),
      moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      start = { x: event.offsetX, view: { ...shared.view } };
      moved = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!start) return this.hover(event);
      moved = moved || Math.abs(event.offsetX - start.x) > 4;
      if (!moved) return;
      const by = ((start.x - event.offsetX) * (start.view.to - start.view.from)) / this.rows.scale().width;
      shared.setView(start.view.from + by, start.view.to + by);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (start && !moved) this.click(event);
      start = null;
    });
    canvas.addEventListener("pointerleave", () => this.tip.hide());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  hover(event) {
    const row = this.rows.rowAt(event.offsetY),
      ns = this.rows.scale().time(event.offsetX);
    if (row < 0 || ns < 0 || ns > this.step.makespan_ns) this.tip.hide();
    else this.tip.show(event, this.doing(row, ns));
  }

  click(event) {
    const row = this.rows.rowAt(event.offsetY),
      number = row < 0 ? -1 : this.numberAt(row, this.rows.scale().time(event.offsetX));
    this.select(number < 0 ? null : { row, number });
  }

  key(event) {
    const { shared } = this,
      acts = {
        w: () => shared.zoom(0.7),
        s: () => shared.zoom(1 / 0.7),
        a: () => shared.pan(-0.2),
        d: () => shared.pan(0.2),
        0: () => shared.setView(0, shared.longest),
        ",": () => this.move(0, -1),
        ".": () => this.move(0, 1),
        j: () => this.move(1, 0),
        k: () => this.move(-1, 0),
        Escape: () => this.select(null),
      };
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  /** Select another rank's communication of the same number, or another one of the rank. */
  move(rows, numbers) {
    const row = Math.max(0, Math.min(this.step.rows.length - 1, (this.selected?.row ?? 0) + rows)),
      made = this.classOf(row).communications.length,
      number = Math.max(0, Math.min(made - 1, (this.selected ? this.selected.number : -1) + numbers));
    if (made) this.select({ row, number });
  }
}

/** @param {string[][]} rows names and texts */
function factList(rows) {
  return el(
    "dl",
    { class: "facts" },
    rows.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]),
  );
}
