"use strict";
// Elements whose text is always text, numbers for people, and colours.

/**
 * An element; `attributes` may have on: {event: function}, everything else is an attribute; children are nodes or text.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Object<string, any>} [attributes]
 * @param {...any} children nothing for null and undefined
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") {
      for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

/**
 * @param {string} text
 * @param {(event: MouseEvent) => void} call
 * @param {Object<string, any>} [attributes]
 */
function button(text, call, attributes) {
  return el("button", { type: "button", ...attributes, on: { click: call } }, text);
}

/**
 * @param {string} label for screen readers
 * @param {string[][]} options keys and texts
 * @param {string} value the key that is chosen first
 * @param {(value: string) => void} call
 * @returns {HTMLSelectElement}
 */
function select(label, options, value, call) {
  /** @type {HTMLSelectElement} */
  const chosen = el("select", { "aria-label": label, on: { change: () => call(chosen.value) } });
  for (const [key, text] of options) chosen.append(el("option", { value: key, selected: key === value }, text));
  return chosen;
}

/**
 * Times: three or four digits that count, in the unit that fits.
 *
 * @param {number} ns
 */
function time(ns) {
  const size = Math.abs(ns);
  if (!Number.isFinite(ns)) return "–";
  if (size >= 1e9) return trim(ns / 1e9) + " s";
  if (size >= 1e6) return trim(ns / 1e6) + " ms";
  if (size >= 1e3) return trim(ns / 1e3) + " µs";
  return trim(ns) + " ns";
}

/** @param {number} value */
function trim(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3).replace(/\.?0+$/, "");
}

/** @param {number} value */
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return trim(value) + " " + units[at];
}

/** @param {number} value */
function count(value) {
  return Number.isInteger(value) ? value.toLocaleString("en-US") : trim(value);
}

/**
 * @param {number} number
 * @param {string} word in the singular
 */
function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** @param {number} value */
function big(value) {
  for (const { size, name } of [
    { size: 1e15, name: "P" },
    { size: 1e12, name: "T" },
    { size: 1e9, name: "G" },
    { size: 1e6, name: "M" },
    { size: 1e3, name: "k" },
  ]) {
    if (Math.abs(value) >= size) return trim(value / size) + " " + name;
  }
  return trim(value) + " ";
}

/**
 * @param {number} part
 * @param {number} whole
 */
function percent(part, whole) {
  return whole > 0 ? trim(Math.round((1000 * part) / whole) / 10) + " %" : "–";
}

/**
 * A value of a table as people read it.
 *
 * @param {string | boolean | number} value
 * @param {string} unit of a number
 */
function shown(value, unit) {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (unit === "ns") return time(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "bytes/ns") return trim(value) + " GB/s";
  return Math.abs(value) >= 1e7 ? big(value) : count(value);
}

/**
 * @param {string} file
 * @returns {string}
 */
function baseName(file) {
  return file.split(/[\\/]/).pop() ?? "";
}

// Okabe and Ito's colours, told apart with every kind of colour blindness; the last one is for all the rest.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7a5195", "#8c8c8c"];
const REST = PALETTE.length - 1;
const ENGINE_COLOURS = { tensor: 0, vector: 1, scalar: 2, gpsimd: 3, sync: 7, dma: 4 };
const CATEGORY_COLOURS = {
  busy: 2,
  run: 2,
  signal: 5,
  operand: 1,
  unit: 3,
  port: 6,
  table: 7,
  core: 4,
  trigger: 0,
  queue: 4,
  barrier: 7,
  repeat: 8,
  latency: 6,
  idle: 8,
};

const RGB = PALETTE.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

/** Colours of the page as the style sheet sets them; canvases read them again after a change of theme. */
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const named = {};
  for (const name of ["back", "panel", "lane", "line", "text", "soft", "accent", "strong", "warn"]) {
    named[name] = style.getPropertyValue("--" + name).trim();
  }
  for (const name of ["lane", "soft"])
    named[name + "RGB"] = [1, 3, 5].map((at) => parseInt(named[name].slice(at, at + 2), 16));
  return named;
}

/**
 * What a canvas is drawn with. The only way to none is another kind of context before, which no canvas here has.
 *
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
function contextOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * Fits a canvas to its box in device pixels; the context is in CSS pixels.
 *
 * @param {HTMLCanvasElement} canvas
 */
function fit(canvas) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth,
    height = canvas.clientHeight;
  const w = Math.max(1, Math.round(width * ratio)),
    h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = contextOf(canvas);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

/**
 * Ticks of an axis: round numbers, about one each `gap` of `room`.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} room pixels
 * @param {number} gap pixels
 */
function ticks(from, to, room, gap) {
  const rough = ((to - from) * gap) / Math.max(1, room);
  const power = Math.pow(10, Math.floor(Math.log10(Math.max(rough, 1e-9))));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || power;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length < 500; at += step) found.push(at);
  return found;
}

/**
 * Hands a text file to the browser's downloads.
 *
 * @param {string} name
 * @param {string} text
 */
function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * CSV; what a spreadsheet would take for a formula gets a quote before it.
 *
 * @param {any[][]} rows
 */
function csv(rows) {
  const cell = (value) => {
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
