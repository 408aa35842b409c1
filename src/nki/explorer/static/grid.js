"use strict";
// A table that sorts by a click on a heading, filters by text, and shows more rows when asked.

const PAGE = 200;

/**
 * columns: [{title, value(row), show(value, row), numeric, bar, help}]; options: {onRow(row), filter, csv, sort, down, empty}.
 * `bar` draws the part of the largest value behind a number.
 */
class Grid {
  constructor(columns, rows, options = {}) {
    this.columns = columns;
    this.rows = rows;
    this.options = options;
    this.sort = options.sort ?? -1;
    this.down = options.down ?? true;
    this.shownRows = PAGE;
    this.text = "";
    this.body = el("tbody");
    this.heads = columns.map((column, at) =>
      el(
        "th",
        { scope: "col", class: column.numeric ? "num" : "", title: column.help },
        button(column.title, () => this.by(at)),
      ),
    );
    this.status = el("span", { class: "soft", role: "status" });
    this.more = button("Show more", () => {
      this.shownRows += 5 * PAGE;
      this.draw();
    });
    this.largest = columns.map((column) =>
      column.bar ? rows.reduce((most, row) => Math.max(most, Math.abs(column.value(row))), 0) : 0,
    );
    this.node = el(
      "div",
      { class: "grid" },
      this.tools(),
      el(
        "div",
        { class: "grid-scroll", tabindex: 0, role: "region", "aria-label": options.label || "Table" },
        el("table", {}, el("thead", {}, el("tr", {}, this.heads)), this.body),
      ),
      this.more,
    );
    this.draw();
  }

  tools() {
    const { options } = this,
      parts = [];
    if (options.filter) {
      parts.push(
        el("input", {
          type: "search",
          placeholder: options.filter,
          "aria-label": options.filter,
          on: {
            input: (event) => {
              this.text = event.target.value.toLowerCase();
              this.shownRows = PAGE;
              this.draw();
            },
          },
        }),
      );
    }
    parts.push(...(options.tools || []), this.status);
    if (options.csv)
      parts.push(
        button(
          "CSV",
          () =>
            download(
              options.csv,
              csv([
                this.columns.map((c) => c.title),
                ...this.found().map((row) => this.columns.map((c) => c.value(row))),
              ]),
            ),
          { class: "quiet", title: "Download these rows" },
        ),
      );
    return el("div", { class: "tools" }, parts);
  }

  by(at) {
    if (this.sort === at) this.down = !this.down;
    else {
      this.sort = at;
      this.down = Boolean(this.columns[at].numeric);
    }
    this.draw();
  }

  found() {
    let rows = this.rows;
    if (this.text)
      rows = rows.filter((row) =>
        this.columns.some((column) => !column.numeric && String(column.value(row)).toLowerCase().includes(this.text)),
      );
    if (this.sort >= 0) {
      const { value } = this.columns[this.sort],
        sign = this.down ? -1 : 1;
      rows = [...rows].sort((a, b) => {
        const x = value(a),
          y = value(b);
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
    }
    return rows;
  }

  draw() {
    const rows = this.found();
    this.heads.forEach((head, at) =>
      head.setAttribute("aria-sort", at !== this.sort ? "none" : this.down ? "descending" : "ascending"),
    );
    this.body.replaceChildren(...rows.slice(0, this.shownRows).map((row) => this.line(row)));
    this.more.hidden = rows.length <= this.shownRows;
    const of = this.options.of > rows.length ? ` of ${count(this.options.of)}` : "";
    this.status.textContent = rows.length
      ? `${count(rows.length)}${of} ${of || rows.length !== 1 ? "rows" : "row"}`
      : this.options.empty || "nothing found";
  }

  line(row) {
    const { onRow } = this.options;
    const cells = this.columns.map((column, at) => {
      const value = column.value(row),
        text = column.show ? column.show(value, row) : value;
      const cell = el(
        "td",
        { class: (column.numeric ? "num " : "") + (column.tone ? column.tone(value, row) : "") },
        text,
      );
      if (column.bar && this.largest[at]) {
        cell.classList.add("bar");
        cell.style.setProperty("--part", (100 * Math.abs(value)) / this.largest[at] + "%");
      }
      return cell;
    });
    const line = el("tr", onRow ? { tabindex: 0, class: "click" } : {}, cells);
    if (onRow) {
      line.addEventListener("click", () => onRow(row));
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter") onRow(row);
      });
    }
    return line;
  }
}
