const PAGE = 50;

/** The columns of the table: title, value of a request (to sort by), text, whether a number. */
function tableColumns(run) {
  const { requests } = run;
  const number = (title, column) => ({ title, number: true, value: (i) => column[i], text: (i) => count(column[i]) });
  const time = (title, value, text = duration) => ({
    title,
    number: true,
    value,
    text: (i) => (Number.isNaN(value(i)) ? "–" : text(value(i))),
  });
  const latency = (i) => requests.ended[i] - requests.submitted[i];
  const first = (i) => (requests.first_token[i] < 0 ? NaN : requests.first_token[i]);
  const reason = (i) => run.reasons[requests.reason[i]] ?? "unfinished";
  return [
    { title: "Request", value: (i) => i, text: (i) => requests.name[i] },
    { title: "User", value: (i) => run.users[requests.user[i]], text: (i) => run.users[requests.user[i]] },
    time("Submitted", (i) => requests.submitted[i], moment),
    time("TTFT", first),
    time("Latency", latency),
    number("Prompt", requests.prompt),
    number("Max tokens", requests.max_tokens),
    number("Generated", requests.generated),
    number("Preemptions", requests.preemptions),
    { title: "Finish", value: reason, text: reason },
  ];
}

/** A real table of the requests that match, sorted by a column, a page at a time. */
class RequestTable {
  constructor(table, pager, run, select) {
    this.columns = tableColumns(run);
    this.select = select;
    this.matching = [];
    this.page = 0;
    this.sorted = { column: 0, down: false };
    this.selected = null;
    this.head = element("tr");
    this.body = element("tbody");
    table.append(element("caption", { class: "hidden" }, "Requests of the run; the heads sort"));
    table.append(element("thead", {}, this.head), this.body);
    this.columns.forEach((column, n) => {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sortBy(n));
      this.head.append(element("th", { scope: "col", class: column.number ? "number" : null }, button));
    });
    this.before = element("button", { type: "button" }, "Previous");
    this.after = element("button", { type: "button" }, "Next");
    this.where = element("span", { role: "status" });
    this.before.addEventListener("click", () => this.turn(-1));
    this.after.addEventListener("click", () => this.turn(1));
    pager.append(this.before, this.after, this.where);
  }

  show(requests) {
    this.matching = [...requests];
    this.sort();
  }

  sortBy(column) {
    const again = this.sorted.column === column;
    this.sorted = { column, down: again && !this.sorted.down };
    this.sort();
  }

  /** Sort all that match; what has no value comes last either way. */
  sort() {
    const { column, down } = this.sorted;
    const { value } = this.columns[column];
    const sign = down ? -1 : 1;
    this.matching.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
      return (x < y ? -sign : x > y ? sign : 0) || a - b;
    });
    [...this.head.children].forEach((cell, n) => {
      cell.setAttribute("aria-sort", n !== column ? "none" : down ? "descending" : "ascending");
    });
    this.page = 0;
    this.draw();
  }

  turn(pages) {
    this.page += pages;
    this.draw();
  }

  draw() {
    const from = this.page * PAGE;
    const rows = this.matching.slice(from, from + PAGE).map((request) => this.row(request));
    this.body.replaceChildren(...rows);
    const to = from + rows.length;
    this.before.disabled = from === 0;
    this.after.disabled = to >= this.matching.length;
    this.where.textContent = rows.length
      ? `${count(from + 1)}–${count(to)} of ${count(this.matching.length)}`
      : "no request matches";
  }

  row(request) {
    const row = element("tr", { "aria-current": request === this.selected ? "true" : null });
    this.columns.forEach((column, n) => {
      const text = column.text(request);
      if (n > 0) {
        row.append(element("td", { class: column.number ? "number" : null }, text));
        return;
      }
      const button = element("button", { type: "button", class: "link" }, text);
      button.addEventListener("click", () => this.select(request));
      row.append(element("td", {}, button));
    });
    return row;
  }

  mark(request) {
    this.selected = request;
    this.draw();
  }
}
