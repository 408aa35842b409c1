"use strict";
// Tables of the profile by SQL (in the app) or by conditions (in the report).

const EXAMPLES = [
  [
    "Longest waits",
    "SELECT id, opcode, queue, wait_ns, wait_kind, wait_text FROM instructions ORDER BY wait_ns DESC LIMIT 50",
  ],
  [
    "Time by instruction",
    "SELECT opcode, engine, COUNT(*) AS n, SUM((end_ns - move_ns) * runs) AS ns FROM instructions GROUP BY opcode, engine ORDER BY ns DESC",
  ],
  [
    "Small transfers",
    "SELECT variable, COUNT(*) AS n, AVG(nbytes) AS mean_bytes, AVG(bytes_per_ns) AS gb_per_s FROM dma WHERE nbytes < 4096 * descriptors GROUP BY variable ORDER BY n DESC",
  ],
  [
    "Lines on the critical path",
    "SELECT s.file, s.line, s.text, SUM(i.critical_ns) AS ns FROM instructions i JOIN sources s ON s.id = i.source GROUP BY s.file, s.line ORDER BY ns DESC",
  ],
  [
    "What set starts",
    "SELECT kind, COUNT(*) AS n, SUM(binding) AS binding FROM edges GROUP BY kind ORDER BY binding DESC",
  ],
  ["Critical path by kind", "SELECT kind, SUM(end_ns - start_ns) AS ns FROM path GROUP BY kind ORDER BY ns DESC"],
];
const MOST_ROWS = 5000;
const CONDITIONS = [
  ["Long waits", "instructions", "wait_ns > 1000"],
  ["On the critical path", "instructions", "critical_ns > 0 and engine != dma"],
  ["Binding overwrites", "edges", "kind = anti and binding = true"],
  ["Small transfers", "dma", "nbytes < 65536"],
];

/**
 * A choice between profiles where there are two.
 *
 * @param {Model[]} models
 */
function profilePicker(models, choose) {
  if (models.length < 2) return null;
  const choices = models.map((model, at) => [String(at), model.label]);
  return select("Profile", choices, "0", (value) => choose(Number(value)));
}

/**
 * @param {Shared} shared
 * @param {Model[]} models
 */
function queryView(shared, models, app) {
  return app ? sqlView(shared, models) : conditionView(shared, models);
}

/**
 * @param {Shared} shared
 * @param {Model[]} models
 */
function sqlView(shared, models) {
  const area = el("textarea", { rows: 4, spellcheck: "false", "aria-label": "SQL", maxlength: 20000 }, EXAMPLES[0][1]),
    out = el("div"),
    state = el("span", { class: "soft", role: "status" });
  let which = 0;
  const run = async () => {
    state.textContent = "running …";
    try {
      const answer = await fetch("api/sql", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ profile: which, sql: area.value }),
      });
      const result = await answer.json();
      if (result.error) {
        state.textContent = "";
        out.replaceChildren(el("p", { class: "error", role: "alert" }, result.error));
        return;
      }
      state.textContent = `${result.seconds.toFixed(2)} s${result.truncated ? `; only the first ${count(result.rows.length)} rows` : ""}`;
      out.replaceChildren(resultGrid(shared, models[which], result.columns, result.rows).node);
    } catch (problem) {
      state.textContent = "";
      out.replaceChildren(el("p", { class: "error", role: "alert" }, "The server did not answer: " + problem.message));
    }
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  return el(
    "div",
    { class: "view" },
    el(
      "div",
      { class: "tools" },
      EXAMPLES.map(([title, sql]) =>
        button(
          title,
          () => {
            area.value = sql;
            run();
          },
          { class: "quiet" },
        ),
      ),
    ),
    area,
    el(
      "div",
      { class: "tools" },
      profilePicker(models, (at) => {
        which = at;
      }),
      button("Run", run, { class: "main", title: "Ctrl+Enter" }),
      state,
    ),
    schema(models[0]),
    out,
  );
}

/**
 * Rows of an answer; a column `id` or `instruction` leads to the event.
 *
 * @param {Shared} shared
 * @param {Model} model
 * @param {string[]} names
 * @param {any[][]} rows
 * @param {number} [of] how many rows there were to choose from
 */
function resultGrid(shared, model, names, rows, of) {
  const at = names.findIndex((name) => ["id", "instruction", "consumer", "producer", "wait_for"].includes(name));
  const columns = names.map((name, number) => {
    const numeric = rows.length > 0 && rows.every((row) => row[number] === null || typeof row[number] === "number");
    return {
      title: name,
      numeric,
      value: (row) => row[number] ?? (numeric ? NaN : ""),
      show: (value) =>
        Number.isNaN(value)
          ? ""
          : numeric && !Number.isInteger(value)
            ? String(Math.round(value * 1e6) / 1e6)
            : String(value),
    };
  });
  return new Grid(columns, rows, {
    csv: "query.csv",
    label: "Result",
    empty: "no rows",
    of,
    onRow:
      at < 0
        ? null
        : (row) => {
            if (Number.isInteger(row[at]) && row[at] >= 0 && row[at] < model.rows) shared.reveal(model, row[at]);
          },
  });
}

/**
 * @param {Shared} shared
 * @param {Model[]} models
 */
function conditionView(shared, models) {
  const input = el("input", {
      type: "text",
      "aria-label": "Conditions",
      spellcheck: "false",
      maxlength: 2000,
      value: CONDITIONS[0][2],
    }),
    out = el("div");
  let name = "instructions",
    which = 0;
  const picker = select(
    "Table",
    Object.keys(models[0].tables).map((table) => [table, table]),
    name,
    (value) => {
      name = value;
    },
  );
  const run = () => {
    const model = models[which],
      table = model.tables[name];
    try {
      const rows = input.value.trim()
        ? filterRows(input.value, table)
        : Array.from({ length: table.rows }, (_, row) => row);
      const values = rows.slice(0, MOST_ROWS).map((row) => table.meta.map((meta) => table.value(meta, row)));
      out.replaceChildren(
        ...(rows.length > MOST_ROWS
          ? [
              el(
                "p",
                { class: "soft", role: "status" },
                `${count(rows.length)} rows fit; the first ${count(MOST_ROWS)} are below.`,
              ),
            ]
          : []),
        resultGrid(
          shared,
          model,
          table.meta.map((meta) => meta.name),
          values,
          table.rows,
        ).node,
      );
    } catch (problem) {
      if (!(problem instanceof FilterError)) throw problem;
      out.replaceChildren(el("p", { class: "error", role: "alert" }, problem.message));
    }
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") run();
  });
  run();
  return el(
    "div",
    { class: "view" },
    el(
      "div",
      { class: "tools" },
      CONDITIONS.map(([title, table, text]) =>
        button(
          title,
          () => {
            name = picker.value = table;
            input.value = text;
            run();
          },
          { class: "quiet" },
        ),
      ),
    ),
    el(
      "div",
      { class: "tools" },
      profilePicker(models, (at) => {
        which = at;
      }),
      picker,
      input,
      button("Find", run, { class: "main" }),
    ),
    el(
      "p",
      { class: "soft small" },
      "Conditions: column, one of = != < <= > >= ~ (pattern) : (contains), value; and, or, not, brackets. SQL needs the app: nki explorer FOLDER.",
    ),
    schema(models[0]),
    out,
  );
}

/** @param {Model} model */
function schema(model) {
  return el(
    "details",
    {},
    el("summary", {}, "Tables and columns"),
    Object.values(model.tables).map((table) =>
      el(
        "p",
        { class: "small" },
        el("b", {}, table.name),
        ` (${count(table.rows)}): `,
        table.meta.map((meta, at) => [
          at ? ", " : "",
          el("span", { title: `${meta.text}${meta.unit ? " · " + meta.unit : ""}` }, meta.name),
        ]),
      ),
    ),
  );
}
