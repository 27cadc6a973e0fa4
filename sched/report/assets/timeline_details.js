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
