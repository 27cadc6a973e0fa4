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
