const OTHERS = 0;
const USER_COLOURS = 7;

/** Return the sums of all before each place, and of all at the end. */
function offsets(counts) {
  const sums = new Int32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i += 1) sums[i + 1] = sums[i] + counts[i];
  return sums;
}

/** Return what differences are differences of. */
function summed(differences) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i += 1) values[i] = sum += differences[i];
  return values;
}

/** Return the place after the last value that is at most `value`, in sorted values. */
function placeAfter(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The run as columns: `run.ticks.start[i]`, `run.requests.name[i]`. Times are microseconds. */
class Run {
  constructor(data) {
    this.limits = data.limits;
    this.users = data.users;
    this.phases = data.phases;
    this.reasons = data.reasons;
    this.end = Math.max(data.end, 1);
    this.ticks = this.readTicks(data.ticks);
    this.requests = this.readRequests(data.requests);
    this.holdings = this.readHoldings(data.holdings);
    this.colourOfUser = this.chooseColours();
    this.tokensOfColour = this.sumByColour();
  }

  readTicks(columns) {
    const start = summed(columns.start);
    const count = start.length;
    const ticks = { ...columns, count, start, end: start.map((at, i) => at + columns.duration[i]) };
    ticks.shareFrom = offsets(columns.shares);
    ticks.decodes = new Float32Array(count);
    ticks.chunkTokens = new Float32Array(count);
    ticks.sequences = new Float32Array(count);
    ticks.held = Float32Array.from(columns.free, (free) => this.limits.max_kv_blocks - free);
    for (let i = 0; i < count; i += 1) {
      for (let s = ticks.shareFrom[i]; s < ticks.shareFrom[i + 1]; s += 1) {
        ticks.decodes[i] += columns.share_decodes[s];
        ticks.chunkTokens[i] += columns.share_chunk_tokens[s];
        ticks.sequences[i] += columns.share_decodes[s] + columns.share_chunks[s];
      }
    }
    ticks.tokens = ticks.decodes.map((decodes, i) => decodes + ticks.chunkTokens[i]);
    return ticks;
  }

  readRequests(columns) {
    const submitted = summed(columns.submitted);
    const moveFrom = offsets(columns.moves);
    const moveAt = new Float64Array(columns.move_after.length);
    const ended = new Float64Array(submitted.length).fill(NaN);
    const done = this.phases.indexOf("done");
    for (let i = 0; i < submitted.length; i += 1) {
      let at = submitted[i];
      for (let m = moveFrom[i]; m < moveFrom[i + 1]; m += 1) {
        at += columns.move_after[m];
        moveAt[m] = at;
        if (columns.move_phase[m] === done) ended[i] = at;
      }
    }
    return { ...columns, count: submitted.length, submitted, moveFrom, moveAt, ended };
  }

  readHoldings(columns) {
    const start = summed(columns.start);
    const end = start.map((tick, i) => tick + columns.length[i]);
    return { block: columns.block, request: columns.request, start, end, count: start.length };
  }

  /** Give the users that were fed most a colour each; the rest share one. */
  chooseColours() {
    const fed = new Float64Array(this.users.length);
    const { share_user: user, share_decodes: decodes, share_chunk_tokens: tokens } = this.ticks;
    for (let s = 0; s < user.length; s += 1) fed[user[s]] += decodes[s] + tokens[s];
    const order = [...fed.keys()].sort((a, b) => fed[b] - fed[a] || a - b);
    const colours = new Uint8Array(this.users.length).fill(OTHERS);
    order.slice(0, USER_COLOURS).forEach((one, rank) => { colours[one] = rank + 1; });
    return colours;
  }

  sumByColour() {
    const { count, shareFrom, share_user: user } = this.ticks;
    const sums = Array.from({ length: USER_COLOURS + 1 }, () => new Float32Array(count));
    for (let i = 0; i < count; i += 1) {
      for (let s = shareFrom[i]; s < shareFrom[i + 1]; s += 1) {
        const tokens = this.ticks.share_decodes[s] + this.ticks.share_chunk_tokens[s];
        sums[this.colourOfUser[user[s]]][i] += tokens;
      }
    }
    return sums;
  }

  /** Return the tick at a time: the last that had begun, or the first. */
  tickAt(time) {
    return Math.max(0, placeAfter(this.ticks.start, time) - 1);
  }

  /** Return when a tick that may not exist any more begins: the run's end after the last. */
  tickTime(tick) {
    return tick < this.ticks.count ? this.ticks.start[tick] : this.end;
  }

  /** Return when a hold that ended before `tick` was over. */
  holdEnd(tick) {
    return tick > 0 && tick <= this.ticks.count ? this.ticks.end[tick - 1] : this.tickTime(tick);
  }

  /** Call `visit(phase, start, end)` for each stay of a request. */
  forStays(request, visit) {
    const { submitted, moveFrom, moveAt, move_phase: phases } = this.requests;
    let phase = 0;
    let start = submitted[request];
    for (let m = moveFrom[request]; m < moveFrom[request + 1]; m += 1) {
      visit(phase, start, moveAt[m]);
      phase = phases[m];
      start = moveAt[m];
    }
    if (this.phases[phase] !== "done") visit(phase, start, this.end);
  }

  /** Return the requests, by place, whose id or user contains `text`, of one user or of all. */
  matching(text, user) {
    const wanted = text.trim().toLowerCase();
    const users = this.users.map((name) => name.toLowerCase().includes(wanted));
    const found = [];
    for (let i = 0; i < this.requests.count; i += 1) {
      if (user !== null && this.requests.user[i] !== user) continue;
      if (users[this.requests.user[i]] || this.requests.name[i].toLowerCase().includes(wanted)) {
        found.push(i);
      }
    }
    return found;
  }
}

/** Return a duration in microseconds as people say it. */
function duration(us) {
  for (const [unit, scale] of [["s", 1e6], ["ms", 1e3]]) {
    if (us >= scale) return `${digits(us / scale)} ${unit}`;
  }
  return us ? `${digits(us)} µs` : "0 s";
}

function digits(value) {
  const decimals = Math.max(0, 3 - String(Math.floor(value)).length);
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** Return a point in time, in microseconds, as seconds. */
function moment(us) {
  return `${(us / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} s`;
}

function count(value) {
  return value.toLocaleString("en");
}

function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
