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

const timeline = new Timeline(new Run(await pageData()));
listenToPointer(timeline);
listenToKeys(timeline);
listenToTools(timeline);
requestAnimationFrame(() => requestAnimationFrame(() => {
  // What tests and bookmarks wait for: the page has been drawn.
  document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
}));
