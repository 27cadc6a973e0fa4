/** Return a CSS colour as the number that a little-endian RGBA pixel is. */
function pixelOf(colour, shade) {
  const context = pixelOf.context ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  const mixed = [red, green, blue].map((part) => Math.round(part * shade + 128 * (1 - shade)));
  return (0xff000000 | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0]) >>> 0;
}

const SHADES = [1, 0.82, 0.66];
const CHUNK = 256;

/** The map of the pool: a row for each block, coloured by the user of the request that holds it. */
class PoolMap {
  constructor(run) {
    this.run = run;
    this.rows = Math.min(run.limits.max_kv_blocks, 512);
    this.image = new OffscreenCanvas(1, this.rows);
    this.holds = this.readHolds();
  }

  recolour(colours) {
    this.pixels = colours.users.flatMap((colour) => SHADES.map((shade) => pixelOf(colour, shade)));
  }

  /** Return what painting needs of each hold: times, row, and place in `pixels`. */
  readHolds() {
    const { run, rows } = this;
    const { block, request, start, end } = run.holdings;
    const from = start.map((tick) => run.tickTime(tick));
    const until = end.map((tick) => run.holdEnd(tick));
    const row = Uint16Array.from(block, (number) => (number * rows) / run.limits.max_kv_blocks);
    const paint = Uint8Array.from(request, (one) => run.colourOfUser[run.requests.user[one]] * SHADES.length + (one % SHADES.length));
    const chunkUntil = new Float64Array(Math.ceil(until.length / CHUNK));
    until.forEach((time, h) => {
      const chunk = Math.floor(h / CHUNK);
      chunkUntil[chunk] = Math.max(chunkUntil[chunk], time);
    });
    return { from, until, row, paint, chunkUntil };
  }

  draw(surface, view, colours) {
    const context = surface.begin();
    const { width, height } = surface;
    if (width < 1) return;
    drawGrid(context, view, width, height, colours);
    this.image.width = width;
    const own = this.image.getContext("2d");
    const picture = own.createImageData(width, this.rows);
    this.fill(new Uint32Array(picture.data.buffer), view, width);
    own.putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = this.rows > height;
    context.drawImage(this.image, 0, 0, width, this.rows, 0, 0, width, height);
  }

  /** Paint every hold that is in sight, skipping chunks of holds that were all over before it. */
  fill(pixels, view, width) {
    const { from, until, row, paint, chunkUntil } = this.holds;
    const scale = width / view.span;
    const holds = placeAfter(from, view.to);
    for (let h = 0; h < holds; h += 1) {
      if (h % CHUNK === 0 && chunkUntil[h / CHUNK] < view.from) {
        h += CHUNK - 1;
        continue;
      }
      if (until[h] < view.from) continue;
      const x0 = Math.max(0, Math.floor((from[h] - view.from) * scale));
      const x1 = Math.min(width, Math.max(x0 + 1, Math.ceil((until[h] - view.from) * scale)));
      const start = row[h] * width;
      const colour = this.pixels[paint[h]];
      for (let x = start + x0; x < start + x1; x += 1) pixels[x] = colour;
    }
  }

  /** Return the request that holds a block in a tick, or null. */
  ownerOf(block, tick) {
    const { block: blocks, request, start, end, count: holds } = this.run.holdings;
    for (let h = 0; h < holds && start[h] <= tick; h += 1) {
      if (blocks[h] === block && end[h] > tick) return request[h];
    }
    return null;
  }

  blockAt(y, height) {
    const block = Math.floor((y / height) * this.run.limits.max_kv_blocks);
    return Math.min(Math.max(block, 0), this.run.limits.max_kv_blocks - 1);
  }
}
