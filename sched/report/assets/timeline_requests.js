const ROW = 16;

/** A bar for each request, from submission to done; only the rows in sight are drawn. */
class RequestRows {
  constructor(parent, run) {
    this.run = run;
    this.shown = [];
    this.selected = null;
    this.inner = element("div");
    this.names = element("canvas", { class: "names", "aria-hidden": "true" });
    this.bars = element("canvas", { class: "bars", "aria-hidden": "true", "data-lane": "requests" });
    this.box = element("div", { class: "rows", tabindex: "-1" }, this.inner);
    const keys = run.phases.slice(0, -1).map((phase) => [phase, phase]);
    const key = element("div", { class: "rows-key" }, element("b", {}, "Requests"));
    for (const [text, colour] of [...keys, ["preempted", "alarm"]]) {
      key.append(element("span", {}, swatch(colour), text));
    }
    parent.append(key);
    this.inner.append(element("div", { class: "rows-view" }, this.names, this.bars));
    parent.append(this.box);
    this.nameSurface = new Surface(this.names);
    this.barSurface = new Surface(this.bars);
  }

  /** Show these requests, a row each. */
  show(requests) {
    this.shown = requests;
    const tall = Math.max(requests.length * ROW + 8, this.box.clientHeight);
    this.inner.style.height = `${tall}px`;
    this.inner.firstChild.style.height = `${this.box.clientHeight}px`;
  }

  reveal(request) {
    const row = this.shown.indexOf(request);
    if (row >= 0) this.box.scrollTop = row * ROW - this.box.clientHeight / 2;
  }

  /** Scroll so that what lives at `time` is in sight. */
  revealTime(time) {
    const { ended } = this.run.requests;
    const row = this.shown.findIndex((request) => !(ended[request] < time));
    if (row >= 0) this.box.scrollTop = row * ROW - 40;
  }

  /** Return the request whose row is at `y` of the canvas, or null. */
  at(y) {
    return this.shown[Math.floor((y + this.box.scrollTop - 4) / ROW)] ?? null;
  }

  draw(view, colours) {
    const names = this.nameSurface.begin();
    const bars = this.barSurface.begin();
    const { width, height } = this.barSurface;
    const top = this.box.scrollTop - 4;
    const phases = this.run.phases.map((phase) => colours.read(phase));
    drawGrid(bars, view, width, height, colours);
    names.font = "11px ui-monospace, monospace";
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(this.shown.length, Math.ceil((top + height) / ROW));
    for (let row = first; row < last; row += 1) {
      const request = this.shown[row];
      const y = row * ROW - top;
      if (request === this.selected) this.drawSelected(names, bars, y, colours);
      names.fillStyle = colours.users[this.run.colourOfUser[this.run.requests.user[request]]];
      names.fillRect(8, y + 4, 3, ROW - 7);
      names.fillStyle = colours.read(request === this.selected ? "text" : "muted");
      names.fillText(this.run.requests.name[request], 17, y + 12, this.nameSurface.width - 22);
      this.drawBar(bars, view, request, y, phases, colours.read("alarm"));
    }
  }

  drawSelected(names, bars, y, colours) {
    for (const context of [names, bars]) {
      context.globalAlpha = 0.18;
      context.fillStyle = colours.read("accent");
      context.fillRect(0, y, context.canvas.width, ROW);
      context.globalAlpha = 1;
    }
  }

  drawBar(context, view, request, y, phases, alarm) {
    const { width } = this.barSurface;
    const preemptions = [];
    this.run.forStays(request, (phase, start, end) => {
      if (phase === 0 && start > this.run.requests.submitted[request]) preemptions.push(start);
      if (end < view.from || start > view.to) return;
      const x0 = Math.max(-2, view.x(start, width));
      const x1 = Math.min(width + 2, view.x(end, width));
      context.fillStyle = phases[phase];
      const thin = phase === 0;
      context.fillRect(x0, y + (thin ? 6 : 3), Math.max(x1 - x0, 1), thin ? 4 : ROW - 6);
    });
    context.fillStyle = alarm;
    for (const time of preemptions) {
      const x = view.x(time, width);
      if (x < -4 || x > width + 4) continue;
      context.beginPath();
      context.moveTo(x - 4, y + 1);
      context.lineTo(x + 4, y + 1);
      context.lineTo(x, y + 8);
      context.fill();
    }
  }
}
