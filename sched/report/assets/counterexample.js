const ABSENT = "–";

/** The rows of a run: each with its name and a text for each step; what the model says comes first. */
function rowsOf(steps) {
  const rows = new Map();
  const put = (name, summary, place, text) => {
    const key = `${summary ? "summary" : "state"} ${name}`;
    if (!rows.has(key)) rows.set(key, { name, summary, texts: steps.map(() => ABSENT) });
    rows.get(key).texts[place] = text;
  };
  steps.forEach((step, place) => {
    for (const [name, text] of Object.entries(step.summary)) put(name, true, place, text || ABSENT);
  });
  steps.forEach((step, place) => {
    for (const [name, text] of step.state) put(name, false, place, text);
  });
  const all = [...rows.values()];
  return all.filter((row) => row.texts.some((text) => text !== ABSENT));
}

/** Tell whether a row is different after a step from before it; nothing is before the first. */
function changedAt(row, place) {
  return place > 0 && row.texts[place] !== row.texts[place - 1];
}

/** Shows one run at a time, and of it one step. */
class Explorer {
  constructor(traces) {
    this.traces = traces;
    this.buttons = [...document.querySelectorAll("[data-trace]")];
    for (const button of this.buttons) {
      button.addEventListener("click", () => {
        this.show(Number(button.dataset.trace));
        byId("trace").scrollIntoView();
      });
    }
    const violated = traces.flatMap((trace, n) => (trace.outcome === "violated" ? [n] : []));
    for (const n of violated) {
      const button = element("button", { type: "button", class: "violated", "data-trace": n }, `${traces[n].subject}: ${traces[n].property}`);
      button.addEventListener("click", () => this.show(n));
      this.buttons.push(button);
      byId("traces").append(button);
    }
    if (violated.length) this.show(violated[0]);
  }

  show(n) {
    this.trace = this.traces[n];
    this.rows = rowsOf(this.trace.steps);
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(Number(button.dataset.trace) === n));
    byId("trace").hidden = false;
    const outcome = this.trace.outcome === "violated" ? "is violated" : "is shown";
    byId("subject").textContent = `${this.trace.subject}: ${this.trace.property} ${outcome}`;
    byId("claim").textContent = this.trace.claim;
    byId("ending").textContent = `${this.trace.ending}. Source: ${this.trace.source}.${this.loopText()}`;
    this.goTo(this.trace.steps.length - 1);
  }

  loopText() {
    return this.trace.loop === null ? "" : ` From step ${this.trace.loop} on, this goes round for ever.`;
  }

  goTo(place) {
    this.place = Math.min(Math.max(place, 0), this.trace.steps.length - 1);
    this.draw();
  }

  draw() {
    const last = this.trace.steps.length - 1;
    byId("position").textContent = `Step ${this.place} of ${last}`;
    byId("previous").disabled = this.place === 0;
    byId("next").disabled = this.place === last;
    this.drawStep();
    this.drawSteps();
    const current = byId("steps").querySelector("[aria-current]");
    const box = byId("side-by-side");
    box.scrollLeft = current.offsetLeft - box.clientWidth / 2;
  }

  shownRows() {
    if (!byId("only-changed").checked) return this.rows;
    return this.rows.filter((row) => row.summary || row.texts.some((_, place) => changedAt(row, place)));
  }

  drawStep() {
    const { event } = this.trace.steps[this.place];
    const first = this.place === 0;
    const heads = first ? ["Field", "The state it starts in"] : ["Field", "Before", `After: ${event}`];
    const rows = this.shownRows().map((row, n, all) => {
      const places = first ? [0] : [this.place - 1, this.place];
      return this.row(row, places, this.place, all[n + 1]);
    });
    byId("step").replaceChildren(
      element("caption", { class: "hidden" }, "The state before and after the step"),
      element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...rows),
    );
  }

  drawSteps() {
    const { steps, loop } = this.trace;
    const heads = steps.map((step, place) => {
      const button = element("button", { type: "button" }, `${place}`, element("small", {}, step.event));
      button.addEventListener("click", () => this.goTo(place));
      const here = place === this.place;
      const css = [here ? "current" : "", loop !== null && place >= loop ? "looping" : ""].join(" ");
      return element("th", { scope: "col", class: css, "aria-current": here ? "step" : null }, button);
    });
    const places = [...steps.keys()];
    const rows = this.shownRows().map((row, n, all) => this.row(row, places, null, all[n + 1]));
    byId("steps").replaceChildren(
      element("caption", { class: "hidden" }, "Every step, a column each"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Field"), ...heads)),
      element("tbody", {}, ...rows),
    );
  }

  /** Return a row with a cell for each of `places`; only at `marked`, or at all if null, changes are marked. */
  row(row, places, marked, next) {
    const cells = places.map((place) => {
      const changed = changedAt(row, place) && (marked === null || place === marked);
      const css = [changed ? "changed" : "", row.texts[place] === ABSENT ? "none" : "", marked === null && place === this.place ? "current" : ""];
      const cell = element("td", { class: css.join(" ").trim() || null }, row.texts[place]);
      if (changed) cell.append(element("span", { class: "hidden" }, " (changed)"));
      return cell;
    });
    const css = row.summary ? (next?.summary ? "summary" : "summary last") : null;
    return element("tr", { class: css }, element("th", { scope: "row" }, row.name), ...cells);
  }
}

function listen(explorer) {
  byId("previous").addEventListener("click", () => explorer.goTo(explorer.place - 1));
  byId("next").addEventListener("click", () => explorer.goTo(explorer.place + 1));
  byId("only-changed").addEventListener("change", () => explorer.draw());
  const keys = {
    ArrowLeft: () => explorer.place - 1,
    ArrowRight: () => explorer.place + 1,
    Home: () => 0,
    End: () => explorer.trace.steps.length - 1,
  };
  document.addEventListener("keydown", (event) => {
    const place = keys[event.key];
    if (!place || !explorer.trace || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    explorer.goTo(place());
  });
}

listen(new Explorer(await pageData()));
document.documentElement.dataset.readyMs = String(Math.round(performance.now()));
