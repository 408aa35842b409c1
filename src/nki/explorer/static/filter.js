"use strict";
// Search: words, /patterns/, or conditions on columns such as `engine = vector and wait_ns > 100`.

class FilterError extends Error {}

const TOKEN = /\s*(?:(\()|(\))|(!=|<=|>=|=|<|>|~|:)|"((?:[^"\\]|\\.)*)"|([^\s()=<>!~:"]+))/y;
const VALUE = /\s*(?:(\()|(\))|($^)|"((?:[^"\\]|\\.)*)"|([^\s()"]+))/y; // after an operator: kernels.py:24
const SEARCHED = ["opcode", "name", "engine", "queue", "operands"];

function tokens(text) {
  const found = [];
  let at = 0;
  while (text.slice(at).trim()) {
    const kind = found.length && found[found.length - 1].kind === "operator" ? VALUE : TOKEN;
    kind.lastIndex = at;
    const match = kind.exec(text);
    if (!match) throw new FilterError(`cannot read the filter at “${text.slice(at, at + 12)}”`);
    at = kind.lastIndex;
    const [, open, close, operator, quoted, word] = match;
    if (open) found.push({ kind: "(" });
    else if (close) found.push({ kind: ")" });
    else if (operator) found.push({ kind: "operator", text: operator });
    else if (quoted !== undefined) found.push({ kind: "value", text: quoted.replace(/\\(.)/g, "$1"), quoted: true });
    else found.push({ kind: "value", text: word });
  }
  return found;
}

/** Conditions with and, or, not and brackets; `table` says which columns there are. Makes row => boolean. */
class Parser {
  constructor(text, table, extra) {
    this.tokens = tokens(text);
    this.at = 0;
    this.table = table;
    this.extra = extra || {};
  }

  parse() {
    const made = this.either();
    if (this.at < this.tokens.length)
      throw new FilterError(`“${this.tokens[this.at].text || this.tokens[this.at].kind}” was not expected`);
    return made;
  }

  word(name) {
    const token = this.tokens[this.at];
    if (!token || token.quoted || token.kind !== "value" || token.text.toLowerCase() !== name) return false;
    this.at++;
    return true;
  }

  either() {
    const parts = [this.both()];
    while (this.word("or")) parts.push(this.both());
    return parts.length === 1 ? parts[0] : (row) => parts.some((part) => part(row));
  }

  both() {
    const parts = [this.one()];
    while (this.word("and")) parts.push(this.one());
    return parts.length === 1 ? parts[0] : (row) => parts.every((part) => part(row));
  }

  one() {
    if (this.word("not")) {
      const inner = this.one();
      return (row) => !inner(row);
    }
    const token = this.tokens[this.at];
    if (token && token.kind === "(") {
      this.at++;
      const inner = this.either();
      if (!this.tokens[this.at] || this.tokens[this.at].kind !== ")") throw new FilterError("a bracket is not closed");
      this.at++;
      return inner;
    }
    return this.condition();
  }

  condition() {
    const [column, operator, value] = this.tokens.slice(this.at, this.at + 3);
    if (!column || column.kind !== "value") throw new FilterError("a column name was expected");
    if (!operator || operator.kind !== "operator")
      throw new FilterError(`after “${column.text}” one of = != < <= > >= ~ : was expected`);
    if (!value || value.kind !== "value")
      throw new FilterError(`after “${column.text} ${operator.text}” a value was expected`);
    this.at += 3;
    return this.compare(column.text, operator.text, value.text);
  }

  compare(name, operator, text) {
    const meta = this.table.meta.find((one) => one.name === name),
      extra = this.extra[name];
    if (!meta && !extra)
      throw new FilterError(
        `there is no column “${name}”; there are ${[...this.table.meta.map((m) => m.name), ...Object.keys(this.extra)].join(", ")}`,
      );
    const get = extra || ((row) => this.table.value(meta, row)),
      kind = extra ? "text" : meta.kind;
    if (operator === "~") {
      const wanted = pattern(text);
      return (row) => wanted.test(String(get(row)));
    }
    if (operator === ":") {
      const wanted = text.toLowerCase();
      return (row) => String(get(row)).toLowerCase().includes(wanted);
    }
    if (kind === "bool") {
      if (!/^(true|false|yes|no)$/.test(text) || !/^!?=$/.test(operator))
        throw new FilterError(`${name} is true or false`);
      const wanted = (text === "true" || text === "yes") === (operator === "=");
      return (row) => get(row) === wanted;
    }
    const wanted = kind === "text" ? text : Number(text);
    if (kind !== "text" && (Number.isNaN(wanted) || text === ""))
      throw new FilterError(`${name} is a number, “${text}” is none`);
    const orders = {
      "=": (v) => v === wanted,
      "!=": (v) => v !== wanted,
      "<": (v) => v < wanted,
      "<=": (v) => v <= wanted,
      ">": (v) => v > wanted,
      ">=": (v) => v >= wanted,
    };
    const order = orders[operator];
    return (row) => order(get(row));
  }
}

function pattern(text) {
  if (text.length > 300) throw new FilterError("the pattern is too long");
  try {
    return new RegExp(text, "i");
  } catch (problem) {
    throw new FilterError(`the pattern is not valid: ${problem.message}`);
  }
}

/** Whether a search is conditions, not words: it begins with a column and an operator. */
function isCondition(text, table, extra) {
  const match = /^[\s(]*(?:not\s+[\s(]*)?([a-z_]+)\s*(?:!=|<=|>=|=|<|>|~|:)/i.exec(text);
  if (!match) return false;
  return table.meta.some((meta) => meta.name === match[1]) || match[1] in (extra || {}) || / (and|or) /.test(text);
}

/** Rows of a table that satisfy conditions. */
function filterRows(text, table, extra) {
  const test = new Parser(text, table, extra).parse(),
    found = [];
  for (let row = 0; row < table.rows; row++) if (test(row)) found.push(row);
  return found;
}

/**
 * Instructions that a search finds; the source line counts as text, too.
 *
 * @param {Model} model
 */
function search(model, text) {
  const extra = { line: (row) => model.line(model.inst.columns.source[row]) };
  if (isCondition(text, model.inst, extra)) return filterRows(text, model.inst, extra);
  const regular = /^\/(.+)\/$/.exec(text.trim());
  const wanted = regular ? pattern(regular[1]) : null,
    plain = text.trim().toLowerCase();
  const fits = (value) => (wanted ? wanted.test(value) : value.toLowerCase().includes(plain));
  // each different text is looked at once
  const hits = SEARCHED.map((name) => {
    const column = model.inst.columns[name];
    return { codes: column.codes, good: Uint8Array.from(column.values, fits) };
  });
  const sources = model.tables.sources,
    lines = new Uint8Array(sources.rows + 1);
  for (let row = 0; row < sources.rows; row++)
    lines[row + 1] =
      fits(model.line(row)) || fits(sources.columns.text.at(row)) || fits(sources.columns.function.at(row)) ? 1 : 0;
  const found = [],
    source = model.inst.columns.source;
  for (let row = 0; row < model.rows; row++) {
    if (lines[source[row] + 1] || hits.some(({ codes, good }) => good[codes[row]])) found.push(row);
  }
  return found;
}
