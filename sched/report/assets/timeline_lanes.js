/** Return, for each pixel, the mean (or the most) of each series over the ticks that fall on it. */
function pixelColumns(run, view, width, series, { most = false } = {}) {
  const { start, end, count: ticks } = run.ticks;
  const columns = series.map(() => new Float32Array(width));
  const hits = new Uint32Array(width);
  const { from, span } = view;
  for (let i = run.tickAt(from); i < ticks && start[i] < from + span; i += 1) {
    if (end[i] < from) continue;
    const left = ((start[i] - from) / span) * width;
    const right = ((end[i] - from) / span) * width;
    const x0 = Math.max(0, Math.floor(left));
    // Ticks that are wide enough stand apart.
    const x1 = Math.min(width, Math.max(x0 + 1, Math.floor(right) - (right - left > 5 ? 1 : 0)));
    for (let x = x0; x < x1; x += 1) {
      hits[x] += 1;
      for (let s = 0; s < series.length; s += 1) {
        const value = series[s][i];
        if (!most) columns[s][x] += value;
        else if (value > columns[s][x]) columns[s][x] = value;
      }
    }
  }
  if (!most) {
    for (const column of columns) {
      for (let x = 0; x < width; x += 1) if (hits[x] > 1) column[x] /= hits[x];
    }
  }
  return { columns, hits };
}

/** Fill stacked columns, the first series at the bottom; `top` is the value of the whole height. */
function drawStack(context, { columns }, colours, height, top) {
  const width = columns[0].length;
  const base = new Float32Array(width).fill(height);
  columns.forEach((column, s) => {
    context.fillStyle = colours[s];
    for (let x = 0; x < width; x += 1) {
      if (!column[x]) continue;
      const tall = (column[x] / top) * height;
      base[x] -= tall;
      context.fillRect(x, base[x], 1, tall);
    }
  });
}

/** Draw a line through the columns, broken where there was no tick. */
function drawLine(context, column, hits, colour, height, top) {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  let drawing = false;
  for (let x = 0; x < column.length; x += 1) {
    if (!hits[x]) continue;
    const y = height - 1 - (column[x] / top) * (height - 4);
    if (drawing) context.lineTo(x + 0.5, y);
    else context.moveTo(x + 0.5, y);
    drawing = true;
  }
  context.stroke();
}

/** Draw the round times as lines. */
function drawGrid(context, view, width, height, colours) {
  context.strokeStyle = colours.read("sunken");
  context.lineWidth = 1;
  context.beginPath();
  forTimes(view, width, (x) => { context.moveTo(x, 0); context.lineTo(x, height); });
  context.stroke();
}

/** Write a remark into the upper left corner. */
function drawLabel(context, colours, label) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.read("surface");
  context.globalAlpha = 0.75;
  context.fillRect(2, 3, context.measureText(label).width + 8, 15);
  context.globalAlpha = 1;
  context.fillStyle = colours.read("muted");
  context.fillText(label, 6, 14);
}

/** Draw a dashed line at the height of a limit. */
function drawLimit(context, width, y, colours) {
  context.strokeStyle = colours.read("alarm");
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(0, Math.round(y) + 0.5);
  context.lineTo(width, Math.round(y) + 0.5);
  context.stroke();
  context.setLineDash([]);
}

function largest(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

/** Return a patch of one of the page's colours, for keys. */
function swatch(colour, box = true) {
  const patch = element("i", { class: box ? "box" : null });
  patch.style.background = `var(--${colour})`;
  return patch;
}

/** One strip of the timeline: a label with its key, and a canvas. */
class Lane {
  constructor(parent, { name, title, keys = [], height }) {
    this.name = name;
    const label = element("div", { class: "lane-label" }, element("b", {}, title));
    for (const [text, colour, box] of keys) {
      const line = element("span", {}, text);
      if (colour) line.prepend(swatch(colour, box));
      label.append(line);
    }
    this.canvas = element("canvas", { "aria-hidden": "true", "data-lane": name });
    parent.append(element("div", { class: `lane ${name}` }, label, this.canvas));
    this.surface = new Surface(this.canvas, height);
  }
}

/** Draw the times along the top. */
function drawAxis(surface, view, colours) {
  const context = surface.begin();
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colours.read("muted");
  context.strokeStyle = colours.read("line");
  context.beginPath();
  forTimes(view, surface.width, (x, time, step) => {
    context.moveTo(x, surface.height - 6);
    context.lineTo(x, surface.height);
    context.fillText(timeLabel(time, step), x + 4, surface.height - 8);
  });
  context.stroke();
}

/** Draw the whole run, small, with the part that is shown in a frame. */
function drawOverview(surface, columns, view, colours) {
  const context = surface.begin();
  const { width, height } = surface;
  const scale = width / view.run.end;
  drawStack(context, columns, [colours.read("decoding"), colours.read("prefilling")], height, tallest(columns));
  const left = view.from * scale;
  const right = Math.max(left + 3, view.to * scale);
  context.fillStyle = colours.read("surface");
  context.globalAlpha = 0.72;
  context.fillRect(0, 0, left, height);
  context.fillRect(right, 0, width - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = colours.read("accent");
  context.lineWidth = 2;
  context.strokeRect(left + 1, 1, right - left - 2, height - 2);
}

/** Return the height of the tallest stack, at least 1. */
function tallest({ columns }) {
  return Math.max(1, largest(columns[0].map((_, x) => columns.reduce((sum, column) => sum + column[x], 0))));
}

/** Return the most of a series over the ticks that are shown. */
function mostInSight(run, view, values) {
  const first = run.tickAt(view.from);
  return largest(values.subarray(first, placeAfter(run.ticks.start, view.to)));
}

/** Draw the tokens of each tick, by kind or by user; the budget too where it is near. */
function drawTokens(surface, run, view, colours, series, seriesColours) {
  const context = surface.begin();
  const { width, height } = surface;
  const pixels = pixelColumns(run, view, width, series);
  const most = tallest(pixels);
  const budget = run.limits.token_budget;
  const top = most * 1.3 > budget ? budget * 1.12 : Math.max(most * 1.3, 1);
  drawGrid(context, view, width, height, colours);
  drawStack(context, pixels, seriesColours, height, top);
  if (top > budget) drawLimit(context, width, height - (budget / top) * height, colours);
  const label = `most ${count(mostInSight(run, view, run.ticks.tokens))} of a budget of ${count(budget)}`;
  drawLabel(context, colours, label);
}

/** Draw how many wait and how many are in the batch; of several ticks on a pixel, the most. */
function drawQueue(surface, run, view, colours) {
  const context = surface.begin();
  const { width, height } = surface;
  const { columns, hits } = pixelColumns(run, view, width, [run.ticks.waiting, run.ticks.sequences], { most: true });
  const top = Math.max(1, largest(columns[0]), largest(columns[1]));
  drawGrid(context, view, width, height, colours);
  drawLine(context, columns[1], hits, colours.read("accent"), height, top);
  drawLine(context, columns[0], hits, colours.read("waiting"), height, top);
  drawLabel(context, colours, `most ${count(largest(columns[0]))} waiting, ${count(largest(columns[1]))} in a batch`);
}
