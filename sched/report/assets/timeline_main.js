const byId = (id) => document.getElementById(id);

/** The whole page: who is shown, where the cursor is, and what is drawn when. */
class Timeline {
  constructor(run) {
    this.run = run;
    this.view = new View(run);
    this.view.changed = () => this.redraw();
    this.box = byId("timeline");
    this.cursor = null;
    this.user = null;
    this.pool = new PoolMap(run);
    this.makeLanes();
    this.rows = new RequestRows(this.box, run);
    this.crosshair = element("div", { class: "crosshair", hidden: "" });
    this.box.append(this.crosshair);
    this.table = new RequestTable(byId("requests-table"), byId("pager"), run, (request) => this.select(request));
    this.makeLegend();
    this.filter();
    this.align();
    this.recolour();
  }

  makeLanes() {
    const { max_kv_blocks: blocks } = this.run.limits;
    const lane = (name, title, height, keys) => new Lane(this.box, { name, title, height, keys });
    this.lanes = {
      overview: lane("overview", "Whole run", 44),
      axis: lane("axis", "Time", 26),
      kinds: lane("kinds", "Tokens by kind", 92, [["decodes", "decoding", true], ["chunks", "prefilling", true]]),
      users: lane("users", "Tokens by user", 92),
      queue: lane("queue", "Queue, batch", 78, [["waiting", "waiting"], ["in the batch", "accent"]]),
      pool: lane("pool", "KV pool", Math.min(Math.max(blocks, 96), 224), [[`${count(blocks)} blocks, by owner`]]),
    };
  }

  makeLegend() {
    const order = [...this.run.users.keys()].sort((a, b) => (this.run.colourOfUser[a] || 99) - (this.run.colourOfUser[b] || 99) || a - b);
    this.chips = order.map((user) => {
      const patch = swatch(`user-${this.run.colourOfUser[user]}`);
      const chip = element("button", { type: "button", "aria-pressed": "false" }, patch, this.run.users[user]);
      chip.addEventListener("click", () => this.chooseUser(user));
      byId("legend").append(chip);
      return [user, chip];
    });
  }

  chooseUser(user) {
    this.user = this.user === user ? null : user;
    for (const [one, chip] of this.chips) chip.setAttribute("aria-pressed", String(one === this.user));
    this.filter();
  }

  /** Show the requests that match what is searched for. */
  filter() {
    const text = byId("search").value;
    const found = this.run.matching(text, this.user);
    const all = this.run.requests.count;
    byId("matches").textContent = found.length < all ? `${count(found.length)} of ${count(all)}` : "";
    this.table.show(found);
    this.rows.show(found);
    this.redraw();
    return found;
  }

  /** Keep the lanes as wide as the rows, whose scrollbar takes room. */
  align() {
    const bar = this.rows.box.offsetWidth - this.rows.box.clientWidth;
    this.box.style.setProperty("--scrollbar", `${bar}px`);
    this.redraw();
  }

  recolour() {
    this.colours = readColours();
    this.pool.recolour(this.colours);
    this.redraw();
  }

  /** Draw everything once, before the next frame. */
  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  draw() {
    const { run, view, colours, lanes } = this;
    drawOverview(lanes.overview.surface, this.overview(), view, colours);
    drawAxis(lanes.axis.surface, view, colours);
    const kinds = [colours.read("decoding"), colours.read("prefilling")];
    drawTokens(lanes.kinds.surface, run, view, colours, [run.ticks.decodes, run.ticks.chunkTokens], kinds);
    drawTokens(lanes.users.surface, run, view, colours, run.tokensOfColour, colours.users);
    drawQueue(lanes.queue.surface, run, view, colours);
    this.pool.draw(lanes.pool.surface, view, colours);
    this.rows.draw(view, colours);
    this.placeCrosshair();
  }

  /** Return the columns of the whole run; they change with the width alone. */
  overview() {
    const width = this.lanes.overview.canvas.clientWidth;
    if (this.whole?.hits.length !== width) {
      const { decodes, chunkTokens } = this.run.ticks;
      this.whole = pixelColumns(this.run, { from: 0, span: this.run.end }, width, [decodes, chunkTokens]);
    }
    return this.whole;
  }

  placeCrosshair() {
    const canvas = this.lanes.axis.canvas;
    const x = this.cursor === null ? -1 : this.view.x(this.cursor, canvas.clientWidth);
    this.crosshair.hidden = x < 0 || x > canvas.clientWidth;
    this.crosshair.style.transform = `translateX(${canvas.offsetLeft + x}px)`;
  }

  /** Return what a tick held, as lines of [colour, text]. */
  tickLines(tick) {
    const { ticks, users, limits, colourOfUser } = this.run;
    const lines = [];
    for (let s = ticks.shareFrom[tick]; s < ticks.shareFrom[tick + 1]; s += 1) {
      const user = ticks.share_user[s];
      const parts = [];
      if (ticks.share_decodes[s]) parts.push(plural(ticks.share_decodes[s], "decode"));
      if (ticks.share_chunks[s]) parts.push(`${plural(ticks.share_chunks[s], "chunk")} of ${plural(ticks.share_chunk_tokens[s], "token")}`);
      lines.push([`user-${colourOfUser[user]}`, `${users[user]}: ${parts.join(", ")}`]);
    }
    lines.push([null, `${plural(ticks.tokens[tick], "token")} of ${count(limits.token_budget)}, ${plural(ticks.sequences[tick], "sequence")}`]);
    lines.push([null, `${count(ticks.waiting[tick])} waiting, ${count(ticks.held[tick])} of ${count(limits.max_kv_blocks)} blocks held after it`]);
    if (ticks.preempted[tick]) lines.push(["alarm", plural(ticks.preempted[tick], "preemption")]);
    return lines;
  }

  tickTitle(tick) {
    const { start, end } = this.run.ticks;
    return `Tick ${count(tick)}, ${moment(start[tick])}, ${duration(end[tick] - start[tick])}`;
  }

  /** Put the cursor on a tick and say what it held. */
  read(tick) {
    if (!this.run.ticks.count) return;
    this.tick = Math.min(Math.max(tick, 0), this.run.ticks.count - 1);
    this.cursor = this.run.ticks.start[this.tick];
    this.view.reveal(this.tick);
    const title = element("b", {}, this.tickTitle(this.tick));
    byId("readout").replaceChildren(title, ` – ${this.tickLines(this.tick).map(([, text]) => text).join(" · ")}`);
    this.placeCrosshair();
  }

  select(request) {
    this.rows.selected = request;
    this.table.mark(request);
    this.rows.reveal(request);
    showDetails(this, request);
    this.redraw();
  }

  /** Show the life of a request, with a margin, and the rows around it. */
  zoomTo(request) {
    const { submitted, ended } = this.run.requests;
    const end = Number.isNaN(ended[request]) ? this.run.end : ended[request];
    const margin = (end - submitted[request]) * 0.15;
    this.view.show(submitted[request] - margin, end + margin);
    this.rows.reveal(request);
  }
}

function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Describe a request: its figures, and its phases in order with their times. */
function showDetails(timeline, request) {
  const { run } = timeline;
  const { requests } = run;
  const box = byId("details");
  const steps = element("ol");
  run.forStays(request, (phase, start, end) => {
    const step = element("li", {}, `${run.phases[phase]} ${duration(end - start)}`);
    step.style.setProperty("--phase", `var(--${run.phases[phase]})`);
    step.title = `from ${moment(start)} to ${moment(end)}`;
    steps.append(step);
  });
  steps.append(element("li", {}, run.reasons[requests.reason[request]] ?? "unfinished"));
  const show = element("button", { type: "button" }, "Show on the timeline");
  show.addEventListener("click", () => {
    timeline.zoomTo(request);
    timeline.box.scrollIntoView({ block: "nearest" });
  });
  const close = element("button", { type: "button" }, "Close");
  close.addEventListener("click", () => {
    box.hidden = true;
    timeline.rows.selected = null;
    timeline.table.mark(null);
    timeline.redraw();
  });
  box.replaceChildren(
    element("h3", {}, `${requests.name[request]} of ${run.users[requests.user[request]]}`),
    element("div", {}, `prompt of ${plural(requests.prompt[request], "token")}, ${count(requests.generated[request])} of at most ${plural(requests.max_tokens[request], "output token")}, submitted at ${moment(requests.submitted[request])}`),
    steps,
    element("div", { class: "tools" }, show, close),
  );
  box.hidden = false;
}

/** Say what is under the pointer. */
function showTooltip(timeline, event, lane, time) {
  const { run } = timeline;
  const tip = byId("tooltip");
  if (!run.ticks.count) return;
  const tick = run.tickAt(time);
  let title = timeline.tickTitle(tick);
  let lines = timeline.tickLines(tick);
  const request = requestUnder(timeline, event, lane, tick);
  if (request !== null) {
    title = `${run.requests.name[request]} of ${run.users[run.requests.user[request]]}`;
    lines = requestLines(run, request, time);
    if (lane === "pool") lines.unshift([null, `block ${timeline.pool.blockAt(event.offsetY, event.target.clientHeight)} in tick ${count(tick)}`]);
  }
  tip.replaceChildren(element("b", {}, title), ...lines.map(([colour, text]) => {
    const line = element("div", {}, text);
    if (colour) line.prepend(swatch(colour));
    return line;
  }));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8))}px`;
}

function requestUnder(timeline, event, lane, tick) {
  if (lane === "requests") return timeline.rows.at(event.offsetY);
  if (lane !== "pool") return null;
  return timeline.pool.ownerOf(timeline.pool.blockAt(event.offsetY, event.target.clientHeight), tick);
}

function requestLines(run, request, time) {
  const { requests } = run;
  const lines = [];
  run.forStays(request, (phase, start, end) => {
    if (start <= time && time < end) lines.push([run.phases[phase], `${run.phases[phase]} here, for ${duration(end - start)}`]);
  });
  lines.push([null, `prompt ${count(requests.prompt[request])}, generated ${count(requests.generated[request])} of at most ${count(requests.max_tokens[request])}`]);
  if (!Number.isNaN(requests.ended[request])) lines.push([null, `latency ${duration(requests.ended[request] - requests.submitted[request])}`]);
  if (requests.preemptions[request]) lines.push(["alarm", plural(requests.preemptions[request], "preemption")]);
  return lines;
}

function listenToPointer(timeline) {
  const { box, view } = timeline;
  let drag = null;
  const timeOf = (event) => view.time(event.offsetX, event.target.clientWidth);
  const laneOf = (event) => (event.target instanceof HTMLCanvasElement ? event.target.dataset.lane ?? null : null);
  box.addEventListener("pointerdown", (event) => {
    const lane = laneOf(event);
    if (lane === null || event.button !== 0) return;
    event.target.setPointerCapture(event.pointerId);
    drag = { lane, x: event.clientX, moved: false };
    if (lane === "overview") moveOverview(timeline, event);
  });
  box.addEventListener("pointermove", (event) => {
    const lane = laneOf(event);
    if (drag) {
      const dx = event.clientX - drag.x;
      if (drag.lane === "overview") moveOverview(timeline, event);
      else if (drag.moved || Math.abs(dx) > 3) {
        drag.moved = true;
        drag.x = event.clientX;
        box.classList.add("dragging");
        view.pan((-dx / event.target.clientWidth) * view.span);
      }
      return;
    }
    if (lane === null || lane === "overview") {
      hidePointer(timeline);
      return;
    }
    timeline.cursor = timeOf(event);
    timeline.tick = timeline.run.tickAt(timeline.cursor);
    timeline.placeCrosshair();
    showTooltip(timeline, event, lane, timeline.cursor);
  });
  box.addEventListener("pointerup", (event) => {
    const click = drag && !drag.moved;
    const lane = drag?.lane;
    drag = null;
    box.classList.remove("dragging");
    if (!click || lane === "overview") return;
    const request = requestUnder(timeline, event, lane, timeline.run.tickAt(timeOf(event)));
    if (request !== null) timeline.select(request);
  });
  box.addEventListener("pointerleave", () => hidePointer(timeline));
  box.addEventListener("dblclick", (event) => { if (laneOf(event)) view.zoom(0.4, timeOf(event)); });
  box.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!laneOf(event) || !(event.ctrlKey || event.metaKey || sideways)) return;
    event.preventDefault();
    if (sideways) view.pan((event.deltaX / event.target.clientWidth) * view.span);
    else view.zoom(Math.exp(event.deltaY * 0.0022), timeOf(event));
  }, { passive: false });
}

function hidePointer(timeline) {
  byId("tooltip").hidden = true;
  timeline.cursor = null;
  timeline.placeCrosshair();
}

function moveOverview(timeline, event) {
  const { view, run } = timeline;
  const time = (event.offsetX / event.target.clientWidth) * run.end;
  view.pan(time - view.span / 2 - view.from);
  timeline.rows.revealTime(view.from);
}

function listenToKeys(timeline) {
  const { view } = timeline;
  const keys = {
    ArrowLeft: (event) => (event.shiftKey ? view.pan(-view.span / 8) : timeline.read((timeline.tick ?? 1) - 1)),
    ArrowRight: (event) => (event.shiftKey ? view.pan(view.span / 8) : timeline.read((timeline.tick ?? -1) + 1)),
    "+": () => view.zoom(0.6, timeline.cursor ?? undefined),
    "=": () => view.zoom(0.6, timeline.cursor ?? undefined),
    "-": () => view.zoom(1 / 0.6, timeline.cursor ?? undefined),
    0: () => view.fit(),
    Home: () => timeline.read(0),
    End: () => timeline.read(timeline.run.ticks.count - 1),
  };
  timeline.box.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action(event);
  });
}

function listenToTools(timeline) {
  const { view } = timeline;
  byId("zoom-in").addEventListener("click", () => view.zoom(0.5));
  byId("zoom-out").addEventListener("click", () => view.zoom(2));
  byId("fit").addEventListener("click", () => view.fit());
  byId("search").addEventListener("input", () => timeline.filter());
  byId("search").addEventListener("keydown", (event) => {
    const found = event.key === "Enter" ? timeline.filter() : [];
    if (found.length) {
      timeline.select(found[0]);
      timeline.zoomTo(found[0]);
    }
  });
  timeline.rows.box.addEventListener("scroll", () => timeline.rows.draw(view, timeline.colours), { passive: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.recolour());
  new ResizeObserver(() => timeline.align()).observe(timeline.box);
}

const timeline = new Timeline(new Run(await pageData()));
listenToPointer(timeline);
listenToKeys(timeline);
listenToTools(timeline);
requestAnimationFrame(() => requestAnimationFrame(() => {
  // What tests and bookmarks wait for: the page has been drawn.
  document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
}));
