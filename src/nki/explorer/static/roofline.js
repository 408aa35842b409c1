"use strict";
// Operations for each byte against operations per second, with the roofs of the target.

/**
 * @param {Shared} shared
 * @param {Model} model
 */
function rooflineView(shared, model) {
  const canvas = el("canvas", {
    class: "roof",
    role: "img",
    "aria-label": "Roofline; the table below has the same numbers",
  });
  const { hardware } = model.about,
    cores = model.about.cores,
    moved = model.total("dma_bytes"),
    flops = model.total("matmul_flops");
  const peaks = Object.entries(hardware.peak_tflops || {}).filter(([, value]) => value > 0);
  const roofs = peaks.map(([name, tflops]) => ({ name, flops: tflops * 1000 * cores }));
  const slopes = [
    ["DMA", hardware.dma_bytes_per_ns],
    ["HBM", hardware.hbm_bytes_per_ns],
  ]
    .filter(([, rate]) => rate > 0)
    .map(([name, rate]) => ({ name, rate: rate * cores }));
  const points = [
    {
      name: "all of it",
      intensity: moved ? flops / moved : Infinity,
      rate: flops / model.makespan,
      flops,
      moved,
      main: true,
    },
  ];
  const note = el(
    "p",
    { class: "soft" },
    moved && flops
      ? "Intensity is operations of matmuls for each byte that the DMA moves; rates are over the time on the device."
      : "The kernel does not both multiply matrices and move data, so there is no point to draw.",
  );
  const table = new Grid(
    [
      { title: "roof", value: (row) => row.name },
      {
        title: "at this intensity",
        numeric: true,
        bar: true,
        value: (row) => row.limit,
        show: (v) => big(v * 1e9) + "FLOP/s",
      },
      { title: "reached", numeric: true, value: (row) => row.part, show: (v) => percent(v, 1) },
    ],
    [
      ...roofs.map((roof) => ({ name: roof.name + " peak", limit: roof.flops })),
      ...slopes.map((slope) => ({ name: slope.name + " bandwidth", limit: slope.rate * (moved ? flops / moved : 0) })),
    ].map((row) => ({ ...row, part: row.limit ? points[0].rate / row.limit : 0 })),
    { label: "Roofs", empty: "the profile does not say what its target can do" },
  );
  const draw = () => {
    if (canvas.clientWidth) paintRoof(canvas, roofs, slopes, points);
  };
  shared.on("theme layout", draw);
  new ResizeObserver(draw).observe(canvas);
  return el("div", { class: "view" }, note, canvas, table.node);
}

function paintRoof(canvas, roofs, slopes, points) {
  const { context, width, height } = fit(canvas),
    theme = themeColours(),
    box = { left: 88, top: 12, right: width - 16, bottom: height - 34 };
  const shownPoints = points.filter((one) => Number.isFinite(one.intensity) && one.intensity > 0 && one.rate > 0);
  const top = Math.max(1, ...roofs.map((roof) => roof.flops), ...shownPoints.map((one) => one.rate)) * 2;
  const low = Math.min(top / 1e4, ...shownPoints.map((one) => one.rate / 3));
  const knees = slopes.flatMap((slope) => roofs.map((roof) => roof.flops / slope.rate)),
    xs = [...knees, ...shownPoints.map((one) => one.intensity), 1];
  const x0 = Math.log10(Math.min(...xs) / 5),
    x1 = Math.log10(Math.max(...xs) * 5),
    y0 = Math.log10(low),
    y1 = Math.log10(top);
  const x = (value) => box.left + ((Math.log10(value) - x0) / (x1 - x0)) * (box.right - box.left);
  const y = (value) => box.bottom - ((Math.log10(value) - y0) / (y1 - y0)) * (box.bottom - box.top);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.strokeStyle = theme.line;
  context.fillStyle = theme.soft;
  for (let power = Math.ceil(x0); power <= x1; power++) {
    line(context, x(10 ** power), box.top, x(10 ** power), box.bottom);
    context.fillText(String(10 ** power), x(10 ** power) + 3, box.bottom + 9);
  }
  for (let power = Math.ceil(y0); power <= y1; power++) {
    line(context, box.left, y(10 ** power), box.right, y(10 ** power));
    context.textAlign = "right";
    context.fillText(big(10 ** (power + 9)) + "FLOP/s", box.left - 6, y(10 ** power), box.left - 8);
    context.textAlign = "left";
  }
  context.fillText("FLOP per byte", (box.left + box.right) / 2 - 30, height - 9);
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  context.clip();
  const best = Math.max(0, ...roofs.map((roof) => roof.flops)),
    rates = slopes.map((slope) => slope.rate);
  context.lineWidth = 2;
  for (const [at, slope] of slopes.entries()) {
    context.strokeStyle = PALETTE[at ? 4 : 0];
    const from = 10 ** x0,
      until = best ? best / slope.rate : 10 ** x1,
      text = `${slope.name} ${trim(slope.rate)} GB/s`;
    line(context, x(from), y(from * slope.rate), x(until), y(until * slope.rate));
    const above = slope.rate >= Math.max(...rates),
      where = box.left + (box.right - box.left) * 0.3,
      level = y(10 ** (x0 + 0.3 * (x1 - x0)) * slope.rate);
    const left = above ? where - context.measureText(text).width - 12 : where + 14;
    haloed(context, theme, text, left, level + (above ? -4 : 6));
  }
  for (const [at, roof] of roofs.entries()) {
    context.strokeStyle = PALETTE[[5, 1, 3][at % 3]];
    line(
      context,
      x(rates.length ? roof.flops / Math.max(...rates) : 10 ** x0),
      y(roof.flops),
      box.right,
      y(roof.flops),
    );
    const text = `${roof.name} ${big(roof.flops * 1e9)}FLOP/s`;
    haloed(context, theme, text, box.right - context.measureText(text).width - 6, y(roof.flops) - 8);
  }
  context.lineWidth = 1;
  for (const one of shownPoints) {
    context.fillStyle = PALETTE[2];
    context.beginPath();
    context.arc(x(one.intensity), y(one.rate), 6, 0, 7);
    context.fill();
    const text = `${one.name}: ${big(one.rate * 1e9)}FLOP/s, ${trim(one.intensity)} FLOP/B`,
      wide = context.measureText(text).width;
    haloed(context, theme, text, Math.min(x(one.intensity) + 10, box.right - wide - 4), y(one.rate) + 14);
  }
  context.restore();
}

/**
 * A text that can be read where lines cross it.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {ReturnType<typeof themeColours>} theme
 */
function haloed(context, theme, text, x, y) {
  context.save();
  context.strokeStyle = theme.panel;
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.fillStyle = theme.text;
  context.fillText(text, x, y);
  context.restore();
}

/** @param {CanvasRenderingContext2D} context */
function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
