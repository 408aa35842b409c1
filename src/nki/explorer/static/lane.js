"use strict";
// Events of one queue in the order of time, with sums for drawing from far away and a search by time.

const BINS = 1 << 14;
const DIMMED = PALETTE.length; // the colour number of what is not highlighted

/** Intervals of one queue, or of a path, in the order of their start, with sums for drawing from far away. */
class Lane {
  constructor(core, queue, title, { rows, starts, ends }) {
    this.core = core;
    this.queue = queue;
    this.title = title;
    const order = inOrder(starts);
    this.rows = Int32Array.from(order, (at) => rows[at]);
    this.start = Float64Array.from(order, (at) => starts[at]);
    this.end = Float64Array.from(order, (at) => ends[at]);
    this.longest = this.end.reduce((most, end, at) => Math.max(most, end - this.start[at]), 0);
    this.busy = 0; // part of the makespan, all runs
    this.levels = null;
  }

  /** First event that may end after `when`, first that starts after `until`. */
  range(when, until) {
    return [bisect(this.start, when - this.longest), bisect(this.start, until)];
  }

  /** The pyramid: level 0 has BINS bins of the makespan, each with busy time and the colour that most of it has. */
  pyramid(makespan, colours) {
    if (this.levels && this.levelsFor === colours) return this.levels;
    const ns = new Float32Array(BINS),
      most = new Float32Array(BINS),
      colour = new Uint8Array(BINS);
    const scale = BINS / makespan;
    for (let at = 0; at < this.rows.length; at++) {
      const from = this.start[at] * scale,
        to = this.end[at] * scale,
        mine = colours[this.rows[at]];
      for (let bin = Math.floor(from); bin <= Math.min(BINS - 1, Math.floor(to)); bin++) {
        const part = Math.min(to, bin + 1) - Math.max(from, bin);
        ns[bin] += part;
        const weight = mine === DIMMED ? part : part * 1000; // what is highlighted is seen from afar
        if (weight >= most[bin]) {
          most[bin] = weight;
          colour[bin] = mine;
        }
      }
    }
    const levels = [{ ns, colour }];
    for (let size = BINS / 2; size >= 256; size /= 2) {
      const last = levels[levels.length - 1],
        up = { ns: new Float32Array(size), colour: new Uint8Array(size) };
      for (let bin = 0; bin < size; bin++) {
        const a = last.ns[2 * bin],
          b = last.ns[2 * bin + 1];
        up.ns[bin] = (a + b) / 2;
        up.colour[bin] = a >= b ? last.colour[2 * bin] : last.colour[2 * bin + 1];
      }
      levels.push(up);
    }
    this.levels = levels;
    this.levelsFor = colours;
    return levels;
  }

  /** The event at a time, the one that started last if several overlap; -1 if there is none within `slack`. */
  hit(when, slack) {
    const [first, after] = this.range(when - slack, when + slack);
    let best = -1,
      distance = Infinity;
    for (let at = after - 1; at >= first; at--) {
      const away = when < this.start[at] ? this.start[at] - when : when > this.end[at] ? when - this.end[at] : 0;
      if (away <= slack && away < distance) {
        best = at;
        distance = away;
        if (!away) break;
      }
    }
    return best < 0 ? -1 : this.rows[best];
  }
}

/** Numbers of values by size; mostly they are in order already. */
function inOrder(values) {
  const order = Uint32Array.from(values, (_, at) => at);
  for (let at = 1; at < values.length; at++)
    if (values[at] < values[at - 1]) return order.sort((a, b) => values[a] - values[b] || a - b);
  return order;
}

/** Number of values below `value` in an ascending array. */
function bisect(values, value) {
  let low = 0,
    high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
