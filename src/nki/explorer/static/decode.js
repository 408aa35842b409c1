"use strict";
// Reads the block that payload.py writes: tables as typed arrays, texts as numbers of a list of texts.

/** A column of texts. */
class Texts {
  constructor(codes, values) {
    this.codes = codes;
    this.values = values;
    this.length = codes.length;
  }

  at(row) {
    return this.values[this.codes[row]];
  }
}

class Table {
  constructor(name, rows) {
    this.name = name;
    this.rows = rows;
    this.columns = {};
    this.meta = [];
  }

  /** A value for people and filters: text, number or boolean. */
  value(meta, row) {
    const values = this.columns[meta.name];
    if (meta.kind === "text") return values.at(row);
    return meta.kind === "bool" ? values[row] !== 0 : values[row];
  }
}

async function inflate(data) {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text),
    data = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) data[at] = raw.charCodeAt(at);
  return data;
}

/** {document, tables} of an inflated block. */
function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (header.version !== 1) throw new Error("this page cannot show block version " + header.version);
  if (header.step) return { step: header.step, label: header.label };
  const start = 4 + length,
    tables = {};
  for (const [name, described] of Object.entries(header.tables)) {
    const table = new Table(name, described.rows);
    const whole = {}; // times as whole numbers of ps
    for (const meta of described.columns) {
      const values = numbers(buffer, start + meta.at, meta, described.rows);
      if (meta.base) {
        const base = whole[meta.base];
        for (let row = 0; row < values.length; row++) values[row] += base[row];
      }
      if (meta.scale) {
        whole[meta.name] = values;
        const scaled = new Float64Array(values.length);
        for (let row = 0; row < values.length; row++) scaled[row] = values[row] / meta.scale;
        table.columns[meta.name] = scaled;
      } else {
        table.columns[meta.name] = meta.values ? new Texts(values, meta.values) : values;
      }
      table.meta.push({ name: meta.name, kind: meta.kind, unit: meta.unit, text: meta.text });
    }
    tables[name] = table;
  }
  return { document: header.document, label: header.label, tables };
}

/** A column as it is stored, or as sums where differences are; sums and times are wide enough for all 53 bits. */
function numbers(buffer, at, meta, rows) {
  const kinds = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array };
  const values = new kinds[meta.type](buffer, at, rows);
  if (!meta.delta) return meta.scale ? Float64Array.from(values) : values;
  const sums = new (meta.values ? Int32Array : Float64Array)(rows);
  for (let row = 0, sum = 0; row < rows; row++) {
    sum += values[row];
    sums[row] = sum;
  }
  return sums;
}
