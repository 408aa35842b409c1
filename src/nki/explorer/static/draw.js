"use strict";
// Draws lanes and counters of a time range: single events where there is room, otherwise a colour for each pixel.

const GAP = 2; // between lanes

/** Where times are on the screen. */
class Scale {
  constructor(view, left, width) {
    this.from = view.from;
    this.to = view.to;
    this.left = left;
    this.width = Math.max(1, width);
    this.perNs = this.width / Math.max(1e-9, view.to - view.from);
  }

  x(ns) {
    return this.left + (ns - this.from) * this.perNs;
  }

  time(x) {
    return this.from + (x - this.left) / this.perNs;
  }
}

class Painter {
  /** @type {ReturnType<typeof themeColours>} */
  theme;
  /** Red, green and blue, by number of a colour. @type {number[][]} */
  rgb;
  /** The same for a canvas, and what is readable on it. @type {string[]} */
  css;
  /** @type {string[]} */
  ink;

  constructor() {
    this.strip = document.createElement("canvas");
    this.strip.height = 1;
    /** @type {ImageData | null} */
    this.image = null;
    // for each pixel of a lane: how much of it is busy, the largest part of one colour, and that colour
    this.cover = new Float32Array(0);
    this.best = new Float32Array(0);
    this.colour = new Uint8Array(0);
  }

  /** @param {ReturnType<typeof themeColours>} colours */
  use(colours) {
    this.theme = colours;
    const dim = colours.laneRGB.map((value) => (value > 128 ? value - 26 : value + 26));
    this.rgb = [...RGB, dim, colours.softRGB];
    this.css = this.rgb.map(([r, g, b]) => `rgb(${r},${g},${b})`);
    this.ink = this.rgb.map(([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111111" : "#ffffff"));
    this.ink[DIMMED] = colours.soft;
  }

  lane(context, lane, y, height, scale, makespan, colours, label) {
    const [first, after] = lane.range(scale.from, scale.to);
    context.fillStyle = this.theme.lane;
    context.fillRect(scale.left, y, scale.width, height);
    if (after - first <= Math.max(200, scale.width / 2)) {
      this.events(context, lane, first, after, y, height, scale, colours, label);
    } else {
      this.pixels(context, lane, first, after, y, height, scale, makespan, colours);
    }
  }

  events(context, lane, first, after, y, height, scale, colours, label) {
    const right = scale.left + scale.width;
    let last = -1;
    for (let at = first; at < after; at++) {
      if (lane.end[at] < scale.from) continue;
      const row = lane.rows[at],
        colour = colours[row];
      const x0 = Math.max(scale.left, scale.x(lane.start[at])),
        x1 = Math.min(right, scale.x(lane.end[at]));
      if (colour !== last) {
        context.fillStyle = this.css[colour];
        last = colour;
      }
      const wide = x1 - x0;
      context.fillRect(x0, y, wide > 3 ? wide - 0.7 : Math.max(wide, 0.8), height);
      if (label && wide > 34 && height >= 12) {
        const text = label(row),
          room = Math.floor((wide - 8) / 6.2);
        context.fillStyle = this.ink[colour];
        last = -1;
        const shownText = text.length > room ? text.slice(0, Math.max(1, room - 1)) + "…" : text;
        context.fillText(shownText, x0 + 4, y + height / 2 + 0.5, wide - 7);
      }
    }
  }

  /** One row of pixels, stretched to the lane's height; how much of a pixel's time is busy is how strong its colour is. */
  pixels(context, lane, first, after, y, height, scale, makespan, colours) {
    const width = Math.ceil(scale.width);
    const strip = contextOf(this.strip);
    if (!this.image || this.image.width !== width) {
      this.strip.width = width;
      this.image = strip.createImageData(width, 1);
      this.cover = new Float32Array(width);
      this.best = new Float32Array(width);
      this.colour = new Uint8Array(width);
    }
    const perPixel = 1 / scale.perNs;
    if (makespan / BINS <= perPixel && after - first > 4 * width)
      this.fromBins(lane, scale, makespan, colours, width, perPixel);
    else this.fromEvents(lane, first, after, scale, colours, width);
    this.blend(this.image.data, width);
    strip.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.strip, 0, 0, width, 1, scale.left, y, scale.width, height);
  }

  fromBins(lane, scale, makespan, colours, width, perPixel) {
    const levels = lane.pyramid(makespan, colours);
    let level = 0;
    while (level + 1 < levels.length && makespan / levels[level + 1].ns.length <= perPixel) level++;
    const { ns, colour } = levels[level],
      size = makespan / ns.length;
    for (let x = 0; x < width; x++) {
      const from = (scale.from + x * perPixel) / size;
      const low = Math.max(0, Math.floor(from)),
        high = Math.min(ns.length, Math.max(low + 1, Math.floor(from + perPixel / size)));
      let sum = 0,
        most = 0,
        mine = 0;
      for (let bin = low; bin < high; bin++) {
        sum += ns[bin];
        const weight = colour[bin] === DIMMED ? ns[bin] : 1000 * ns[bin];
        if (weight > most) {
          most = weight;
          mine = colour[bin];
        }
      }
      this.cover[x] = high > low ? sum / (high - low) : 0;
      this.colour[x] = mine;
    }
  }

  fromEvents(lane, first, after, scale, colours, width) {
    const { cover, best, colour } = this;
    cover.fill(0);
    best.fill(0);
    for (let at = first; at < after; at++) {
      const from = Math.max(0, (lane.start[at] - scale.from) * scale.perNs);
      const to = Math.min(width, (lane.end[at] - scale.from) * scale.perNs),
        mine = colours[lane.rows[at]];
      for (let x = Math.floor(from); x < to; x++) {
        const part = Math.min(to, x + 1) - Math.max(from, x);
        cover[x] += part;
        const weight = mine === DIMMED ? part : 1000 * part;
        if (weight > best[x]) {
          best[x] = weight;
          colour[x] = mine;
        }
      }
    }
  }

  blend(data, width) {
    const [r, g, b] = this.theme.laneRGB;
    for (let x = 0; x < width; x++) {
      const cover = this.cover[x],
        part = cover <= 0 ? 0 : Math.min(1, 0.25 + 0.75 * cover),
        [cr, cg, cb] = this.rgb[this.colour[x]];
      data[4 * x] = r + (cr - r) * part;
      data[4 * x + 1] = g + (cg - g) * part;
      data[4 * x + 2] = b + (cb - b) * part;
      data[4 * x + 3] = 255;
    }
  }

  /** A counter as steps: the largest value within each pixel. */
  counter(context, counter, y, height, scale, peak) {
    const { times, values } = counter;
    context.fillStyle = this.theme.lane;
    context.fillRect(scale.left, y, scale.width, height);
    let at = Math.max(0, bisect(times, scale.from) - 1);
    context.beginPath();
    context.moveTo(scale.left, y + height);
    const perNs = scale.perNs;
    let value = times.length && times[at] <= scale.from ? values[at] : 0;
    let x = 0,
      most = value;
    const put = (from, until, level) => {
      const top = y + height - (Math.min(level, peak) / peak) * (height - 3);
      context.lineTo(scale.left + from, top);
      context.lineTo(scale.left + until, top);
    };
    for (; at < times.length && times[at] <= scale.to; at++) {
      const here = (times[at] - scale.from) * perNs;
      if (here >= x + 1) {
        put(x, here, most);
        x = here;
        most = values[at];
      }
      value = values[at];
      if (here < x + 1) most = Math.max(most, value);
    }
    put(x, scale.width, value);
    context.lineTo(scale.left + scale.width, y + height);
    context.closePath();
    context.fillStyle = this.theme.soft;
    context.globalAlpha = 0.35;
    context.fill();
    context.globalAlpha = 1;
  }

  /** Axis with times; returns nothing. */
  axis(context, y, height, scale) {
    context.fillStyle = this.theme.soft;
    context.strokeStyle = this.theme.line;
    const found = ticks(scale.from, scale.to, scale.width, 90);
    context.beginPath();
    for (const at of found) {
      const x = Math.round(scale.x(at)) + 0.5;
      context.moveTo(x, y + height - 5);
      context.lineTo(x, y + height);
      if (x + 50 < scale.left + scale.width) context.fillText(time(at), x + 3, y + height / 2);
    }
    context.stroke();
  }
}
