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

/** The map of the pool: a row for each block, coloured by the user of the request that holds it. */
class PoolMap {
  constructor(run) {
    this.run = run;
    this.rows = Math.min(run.limits.max_kv_blocks, 512);
    this.image = new OffscreenCanvas(1, this.rows);
  }

  recolour(colours) {
    this.pixels = colours.users.map((colour) => SHADES.map((shade) => pixelOf(colour, shade)));
  }

  rowOf(block) {
    return Math.floor((block * this.rows) / this.run.limits.max_kv_blocks);
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

  fill(pixels, view, width) {
    const { run } = this;
    const { block, request, start, end, count: holds } = run.holdings;
    const last = run.tickAt(view.to);
    for (let h = 0; h < holds && start[h] <= last; h += 1) {
      const until = run.holdEnd(end[h]);
      if (until < view.from) continue;
      const x0 = Math.max(0, Math.floor(view.x(run.tickTime(start[h]), width)));
      const x1 = Math.min(width, Math.max(x0 + 1, Math.ceil(view.x(until, width))));
      const of = request[h];
      const colour = this.pixels[run.colourOfUser[run.requests.user[of]]][of % SHADES.length];
      const row = this.rowOf(block[h]) * width;
      pixels.fill(colour, row + x0, row + x1);
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
