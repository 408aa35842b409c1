"use strict";
// Puts the page together: header, timelines, tabs, details; keeps the address up to date.

class Page {
  /** What the search found, and at which of it the page is. @type {{model: Model, row: number}[] | null} */
  hits = null;
  hitAt = -1;
  /** @type {HTMLInputElement} */
  searchInput;
  /** How much was found, and what is highlighted. @type {HTMLElement} */
  found;
  /** @type {HTMLElement} */
  marked;

  /** @param {Model[]} models */
  constructor(models, app) {
    this.app = app;
    this.models = models;
    for (const model of models) model.shown = models;
    this.shared = new Shared(models);
    this.tip = new Tip();
    this.current = models[0];
    this.timelines = models.map((model) => new Timeline(this.shared, model, this.tip));
    this.details = new Details(this.shared);
    this.legend = el("ul", { class: "legend" });
    this.tabs = new Tabs(this.views(), (key) => {
      this.remember();
      if (key === "source") this.sources().mark();
      this.shared.emit("layout");
    });
    this.sourceViews = new Map(); // by profile, when they are first shown
    this.loadTime = 0; // ms
    this.shared.emitSource = (model, source) => this.goToSource(model, source);
    this.node = el(
      "div",
      { class: "page" },
      this.header(),
      this.bar(),
      el(
        "div",
        { class: "lanes" + (models.length > 1 ? " two" : "") },
        this.timelines.map((timeline) => timeline.node),
      ),
      this.splitter(),
      el("div", { class: "lower" }, el("div", { class: "drawer" }, this.tabs.bar, this.tabs.panel), this.details.node),
    );
    if (models.length > 1) this.node.style.setProperty("--split", "66%");
    this.shared.on("colour", () => this.drawLegend());
    this.shared.on("highlight", () => this.drawHighlight());
    this.shared.on("view select", () => this.remember());
    this.shared.on("select", () => this.follow());
    this.drawLegend();
    this.drawHighlight();
  }

  views() {
    const { shared, models } = this,
      views = [
        ["summary", "Summary", () => summaryView(shared, this.current)],
        ["source", "Source", () => this.sources().node],
        ["operators", "Operators", () => operatorsView(shared, this.current)],
        ["memory", "Memory", () => new MemoryView(shared, this.current, this.tip).node],
        ["range", "In view", () => rangeView(shared, this.current)],
        ["roofline", "Roofline", () => rooflineView(shared, this.current)],
        ["query", this.app ? "SQL" : "Tables", () => queryView(shared, models, this.app)],
      ];
    if (models.length > 1) views.push(["compare", "Compare", () => compareView(shared, models)]);
    return views;
  }

  sources() {
    if (!this.sourceViews.has(this.current))
      this.sourceViews.set(this.current, new SourceView(this.shared, this.current));
    return this.sourceViews.get(this.current);
  }

  header() {
    const { about } = this.models[0];
    return el(
      "header",
      {},
      el(
        "h1",
        {},
        this.models
          .map((model) => model.about.kernel)
          .filter((name, at, all) => all.indexOf(name) === at)
          .join(" · "),
      ),
      el(
        "span",
        { class: "chip" },
        [...new Set(this.models.map((model) => model.about.hardware.title || model.about.target))].join(", "),
      ),
      el("span", { class: "chip" }, time(about.makespan_ns)),
      el(
        "span",
        {
          class: "chip warn",
          title: about.accuracy.text,
        },
        this.origin(),
      ),
      el("span", { class: "grow" }),
      this.searchBox(),
      button("Theme", () => this.theme(), { class: "quiet", "aria-label": "Switch between light and dark" }),
    );
  }

  // Whether the times come from a model, from a device, or both.
  origin() {
    const measured = this.models.filter((model) => !model.about.is_simulation).length;
    if (measured) return measured === this.models.length ? "measured" : "measured next to predicted";
    return this.models.every((model) => model.about.validated) ? "simulated, not measured" : "estimated, never validated";
  }

  searchBox() {
    this.found = el("span", { class: "soft", role: "status" });
    const input = el("input", {
      type: "search",
      id: "search",
      maxlength: 500,
      spellcheck: "false",
      placeholder: "Search: words, /regex/, wait_ns > 500",
      "aria-label": "Search instructions by words, /regular expression/ or conditions",
    });
    let waiting = 0;
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.search(input.value), 120);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        input.value = "";
        this.search("");
      }
      if (event.key === "Enter") {
        clearTimeout(waiting);
        this.search(input.value);
        this.step(event.shiftKey ? -1 : 1);
      }
    });
    this.searchInput = input;
    return el(
      "div",
      { class: "search" },
      input,
      button("‹", () => this.step(-1), { class: "quiet", "aria-label": "Previous hit" }),
      button("›", () => this.step(1), { class: "quiet", "aria-label": "Next hit" }),
      this.found,
    );
  }

  search(text) {
    this.hits = null;
    if (!text.trim()) {
      this.found.textContent = "";
      this.shared.highlight(null, null, "");
      return;
    }
    try {
      const found = this.models.map((model) => search(model, text));
      const masks = new Map(
        this.models.map((model, at) => {
          const mask = new Uint8Array(model.rows);
          for (const row of found[at]) mask[row] = 1;
          return [model, mask];
        }),
      );
      const hits = this.models.flatMap((model, at) => found[at].map((row) => ({ model, row })));
      this.hits = hits;
      this.hitAt = -1;
      this.shared.highlightMasks(masks, text);
      this.found.textContent = hits.length === 1 ? "1 hit" : `${count(hits.length)} hits`;
    } catch (problem) {
      if (!(problem instanceof FilterError)) throw problem;
      this.found.textContent = problem.message;
    }
  }

  step(by) {
    const { hits } = this;
    if (!hits || !hits.length) return;
    this.hitAt = this.hitAt < 0 && by < 0 ? hits.length - 1 : (this.hitAt + by + hits.length) % hits.length;
    const { model, row } = hits[this.hitAt];
    this.shared.reveal(model, row);
    this.found.textContent = `${count(this.hitAt + 1)} of ${count(hits.length)}`;
  }

  bar() {
    const { shared } = this;
    this.marked = el("span", { class: "marked", hidden: true });
    return el(
      "div",
      { class: "strip" },
      select(
        "Colour by",
        [
          ["opcode", "colour: instruction"],
          ["engine", "colour: engine"],
          ["line", "colour: source line"],
          ["wait", "colour: waited for"],
          ["critical", "colour: critical path"],
        ],
        shared.colour,
        (value) => {
          shared.colour = value;
          shared.emit("colour");
        },
      ),
      this.legend,
      this.marked,
      el("span", { class: "grow" }),
      this.models.length > 1
        ? select(
            "Profile of the tables",
            this.models.map((model, at) => [String(at), "tables: " + model.label]),
            "0",
            (value) => this.show(this.models[Number(value)]),
          )
        : null,
      el(
        "span",
        { class: "group" },
        button("−", () => shared.zoom(1.6), { class: "quiet", "aria-label": "Zoom out" }),
        button("+", () => shared.zoom(1 / 1.6), { class: "quiet", "aria-label": "Zoom in" }),
        button("All", () => shared.setView(0, shared.longest), { class: "quiet", title: "Show everything (0)" }),
      ),
    );
  }

  show(model) {
    this.current = model;
    this.tabs.scope = this.models.indexOf(model);
    this.drawLegend();
    this.tabs.open(this.tabs.current);
  }

  drawLegend() {
    const { legend } = this.current.colouring(this.shared.colour),
      seen = new Map();
    for (const [colour, text] of legend)
      if (!seen.has(colour)) seen.set(colour, text);
      else seen.set(colour, seen.get(colour) + ", " + text);
    this.legend.replaceChildren(
      ...[...seen].map(([colour, text]) =>
        el("li", {}, swatch(colour), el("span", { class: "cut", title: text }, text.replace(/^nisa\./, ""))),
      ),
    );
  }

  drawHighlight() {
    const { shared } = this;
    this.marked.hidden = !shared.masks.size;
    if (!shared.masks.size) return;
    let sum = 0;
    for (const mask of shared.masks.values()) for (const one of mask) sum += one;
    this.marked.replaceChildren(
      el("span", { class: "cut", title: shared.maskText }, `${count(sum)} × ${shared.maskText}`),
      button(
        "×",
        () => {
          if (this.searchInput.value) {
            this.searchInput.value = "";
            this.search("");
          } else shared.highlight(null, null, "");
        },
        { class: "quiet", "aria-label": "Clear the highlight" },
      ),
    );
  }

  /** On narrow screens the details are there only if there is something to show. */
  follow() {
    document.body.classList.toggle("selected", Boolean(this.shared.selected));
  }

  goToSource(model, source) {
    if (model !== this.current) this.show(model);
    this.tabs.open("source");
    this.sources().go(source);
  }

  splitter() {
    const bar = el("div", {
      class: "splitter",
      role: "separator",
      tabindex: 0,
      "aria-orientation": "horizontal",
      "aria-label": "Height of the timeline",
      "aria-valuemin": 15,
      "aria-valuemax": 85,
      "aria-valuenow": this.models.length > 1 ? 66 : 52,
    });
    const set = (part) => {
      const value = Math.max(15, Math.min(85, part));
      this.node.style.setProperty("--split", value + "%");
      bar.setAttribute("aria-valuenow", String(Math.round(value)));
    };
    bar.addEventListener("pointerdown", (event) => bar.setPointerCapture(event.pointerId));
    bar.addEventListener("pointermove", (event) => {
      if (!event.buttons) return;
      const box = this.node.getBoundingClientRect();
      set((100 * (event.clientY - box.top)) / box.height);
    });
    bar.addEventListener("keydown", (event) => {
      const by = { ArrowUp: -4, ArrowDown: 4 }[event.key];
      if (by) {
        event.preventDefault();
        set(Number(bar.getAttribute("aria-valuenow")) + by);
      }
    });
    return bar;
  }

  theme() {
    const root = document.documentElement,
      dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.shared.emit("theme");
  }

  /** Range, selection and tab in the address, so that it can be passed on. */
  remember() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      const { view, selected } = this.shared,
        parts = [`view=${view.from.toFixed(1)},${view.to.toFixed(1)}`, `tab=${this.tabs.current}`];
      if (selected) parts.push(`event=${this.models.indexOf(selected.model)},${selected.row}`);
      history.replaceState(null, "", "#" + parts.join("&"));
    }, 300);
  }

  restore() {
    const values = new URLSearchParams(location.hash.slice(1));
    const pair = (name) => (values.get(name) || "").split(",").map(Number);
    const [from, to] = pair("view"),
      [profile, row] = pair("event");
    this.tabs.open(values.get("tab") || (this.models.length > 1 ? "compare" : "summary"));
    if (to > from) this.shared.setView(from, to);
    else this.shared.setView(0, this.shared.longest);
    if (this.models[profile] && Number.isInteger(row) && row >= 0 && row < this.models[profile].rows)
      this.shared.select(this.models[profile], row);
  }
}
