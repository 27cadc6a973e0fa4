const NARROWEST = 200; // microseconds on the whole width

/** The part of the run that is shown. Whoever draws it listens. */
class View {
  constructor(run) {
    this.run = run;
    this.from = 0;
    this.to = run.end;
    this.changed = () => {};
  }

  get span() {
    return this.to - this.from;
  }

  show(from, to) {
    const span = Math.min(Math.max(to - from, NARROWEST), this.run.end);
    this.from = Math.min(Math.max(from + (to - from - span) / 2, 0), this.run.end - span);
    this.to = this.from + span;
    this.changed();
  }

  fit() {
    this.show(0, this.run.end);
  }

  pan(time) {
    const to = Math.min(Math.max(this.to + time, this.span), this.run.end);
    this.show(to - this.span, to);
  }

  /** Make the span `factor` times as long, with what is at `time` staying where it is. */
  zoom(factor, time = (this.from + this.to) / 2) {
    const span = Math.min(Math.max(this.span * factor, NARROWEST), this.run.end);
    const from = time - ((time - this.from) / this.span) * span;
    const inside = Math.min(Math.max(from, 0), this.run.end - span);
    this.show(inside, inside + span);
  }

  /** Move, if need be, so that a tick is inside. */
  reveal(tick) {
    const start = this.run.ticks.start[tick];
    if (start < this.from) this.pan(start - this.from - this.span / 4);
    if (this.run.ticks.end[tick] > this.to) this.pan(start - this.to + this.span / 4);
  }

  /** Return the place of a time on a canvas of `width`. */
  x(time, width) {
    return ((time - this.from) / this.span) * width;
  }

  time(x, width) {
    return this.from + (x / width) * this.span;
  }
}

/** The colours of the page, by name, as they are on a light or a dark screen. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const known = new Map();
  const read = (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
  return {
    read,
    users: Array.from({ length: USER_COLOURS + 1 }, (_, n) => read(`user-${n}`)),
  };
}

/** A canvas that is as fine as the screen; `begin` clears it and scales to CSS pixels. */
class Surface {
  constructor(canvas, height) {
    this.canvas = canvas;
    if (height) canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d");
  }

  begin() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const [wide, high] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== wide) this.canvas.width = wide;
    if (this.canvas.height !== high) this.canvas.height = high;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    return this.context;
  }
}

/** Return a round step in time for lines about `pixels` apart. */
function timeStep(view, width, pixels) {
  const rough = (view.span / width) * pixels;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
}

/** Call `line(x, time)` for each round time that is shown. */
function forTimes(view, width, line) {
  const step = timeStep(view, width, 110);
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    line(Math.round(view.x(time, width)) + 0.5, time, step);
  }
}

function timeLabel(time, step) {
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / 1e6) - 1e-9));
  return `${(time / 1e6).toFixed(Math.min(decimals, 6))} s`;
}
