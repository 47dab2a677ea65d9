// The contact sheet: one canvas as large as what can be seen, and over it one element per head for pointer, keyboard
// and screen reader.

const KEPT = 64e6; // bytes of drawn pictures that scrolling can use again
const MARK = '#AA4499'; // "your change" on every page

class Sheet {
  constructor(parent) {
    this.parent = parent;
    for (const name of ['legend', 'box', 'sheet', 'canvas', 'grid', 'tip', 'png', 'less', 'more']) {
      this[name] = parent.querySelector(`.${name}`);
    }
    this.selected = null;
    this.current = 0;
    this.zoom = null; // null: as fits
    this.drawn = new Map();
    this.ended = new AbortController();
    this.listen();
  }

  listen() {
    const { grid, box } = this;
    const on = (target, name, act, options) => target.addEventListener(name, act, { signal: this.ended.signal, ...options });
    const at = (event) => event.target.closest?.('.cell');
    on(grid, 'click', (event) => { if (at(event)) this.open(+at(event).dataset.i); });
    on(grid, 'keydown', (event) => this.onKey(event, at(event)));
    on(grid, 'pointermove', (event) => (at(event) ? this.explain(+at(event).dataset.i, event) : this.hide()));
    on(grid, 'pointerleave', () => this.hide());
    on(grid, 'focusin', (event) => { if (at(event)) { this.makeCurrent(+at(event).dataset.i); this.explain(this.current); } });
    on(grid, 'focusout', () => this.hide());
    on(box, 'scroll', () => { this.hide(); this.paintSoon(); });
    on(document, 'scroll', () => this.hide(), { capture: true, passive: true });
    on(this.png, 'click', () => this.download());
    on(this.less, 'click', () => this.resize(-1));
    on(this.more, 'click', () => this.resize(1));
    on(globalThis, 'streamscope-heads', (event) => { if (event.detail === this.next?.pixels.name) this.adopt(); });
    this.sizes = new ResizeObserver(() => { if (this.data) { this.place(); this.paintSoon(); } });
    this.sizes.observe(box);
  }

  end() {
    this.ended.abort();
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // What is shown

  show(data) {
    this.next = data;
    this.adopt();
  }

  /** Takes the newest sheet as soon as its pictures are there too; until then the old one stays. */
  adopt() {
    const data = this.next;
    const kept = globalThis.streamscopeHeads?.get(data.pixels.name);
    if (!kept?.bytes || kept.digest !== data.pixels.digest) {
      this.box.classList.toggle('waiting', Boolean(this.data));
      return;
    }
    this.box.classList.remove('waiting');
    const before = this.data?.heads[this.current];
    const focused = this.focused();
    const index = (head) => (head ? data.heads.findIndex(([l, h]) => l === head[0] && h === head[1]) : -1);
    Object.assign(this, { data, bytes: kept.bytes, cells: (data.size * (data.size + 1)) / 2 });
    this.build();
    this.select(index(data.selected));
    const current = this.selected >= 0 && !focused ? this.selected : index(before);
    this.makeCurrent(Math.max(0, current));
    this.theme();
    this.reveal(this.current);
    if (focused) this.cellAt(this.current)?.focus({ preventScroll: true });
    this.hide();
  }

  focused() {
    const found = this.parent.getRootNode().activeElement ?? document.activeElement;
    return found && this.grid.contains(found) ? found : null;
  }

  build() {
    const { data, grid } = this;
    grid.setAttribute('aria-label', data.label);
    grid.setAttribute('aria-colcount', data.columns + (data.by_layer ? 1 : 0));
    grid.setAttribute('aria-rowcount', Math.ceil(data.heads.length / data.columns) + (data.by_layer ? 1 : 0));
    Object.assign(this, buildLines(data));
    this.headers = element('headers', 'row');
    this.headers.hidden = !data.by_layer;
    grid.replaceChildren(this.headers, ...this.lines);
    writeLegend(this.legend, data);
    this.placed = '';
    this.place();
  }

  /** Puts everything in its place for the width there is. */
  place() {
    const { data, box } = this;
    const width = box.offsetWidth - 18; // with the scroll bar, whether there is one or not
    if (width <= 0) return; // hidden: the ResizeObserver calls again
    const height = Math.round(window.innerHeight * 0.7) - 4;
    const [n, columns] = [data.heads.length, data.columns];
    const cell = this.zoom ?? fitting(n, columns, data.by_layer, width, height);
    if (`${cell} ${width} ${height}` === this.placed) return;
    this.placed = `${cell} ${width} ${height}`;
    const places = arrange(n, columns, data.by_layer, cell, width, height);
    if (this.places?.cell !== cell) this.drawn.clear();
    this.places = places;
    Object.assign(this.sheet.style, { width: `${places.width}px`, height: `${places.height}px` });
    for (const [name, size] of Object.entries({ cell, rowname: ROWNAME, header: HEADER, name: NAME })) {
      this.sheet.style.setProperty(`--${name}`, `${size}px`);
    }
    this.grid.classList.toggle('unnamed', cell < 36);
    this.lines.forEach((line, row) => {
      const left = places.x(row * columns) - places.left;
      Object.assign(line.style, { left: `${left}px`, top: `${places.y(row * columns)}px`, width: `${places.panel}px` });
    });
    this.elements.forEach((e, i) => { e.style.left = `${places.left + (i % columns) * (cell + GAP)}px`; });
    if (data.by_layer) this.headers.replaceChildren(...makeHeaders(places, data));
  }

  resize(step) {
    if (!this.places) return;
    const at = SIZES.indexOf(this.places.cell);
    this.zoom = SIZES[Math.max(0, Math.min(SIZES.length - 1, at + step * 2))];
    this.place();
    this.reveal(this.current);
    this.paintSoon();
  }

  // What is drawn

  theme() {
    this.colours = themeOf(this.box);
    const { background, secondary, text, ramp: inks } = this.colours;
    this.inks = Uint32Array.from(inks, pixel);
    this.tints = Array.from({ length: 256 }, (_, i) => mix(secondary, text, (0.8 * i) / 255));
    this.hidden = pixel(mix(background, text, 0.12));
    this.drawn.clear();
    this.legend.querySelector('.bar').style.backgroundImage = gradient(inks);
    this.legend.querySelector('.tintbar').style.backgroundImage = gradient(this.tints);
    this.paintSoon();
  }

  /** One head in colours at `pixels` x `pixels`. */
  picture(i, pixels) {
    const { data, cells, bytes } = this;
    const start = data.index[i] * cells;
    const most = data.hide_first ? largest(bytes, start, data.size, true) : 255;
    const tint = data.tint ? data.tint[i] : 0;
    const empty = tint === null ? this.hidden : pixel(this.tints[Math.round(255 * tint)]);
    return colour(reduce(bytes, start, data.size, pixels, data.hide_first), most, this.inks, empty, this.hidden);
  }

  paintSoon() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const { box, canvas, places, data } = this;
    if (!places || !this.inks || !box.clientWidth) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const width = Math.min(box.clientWidth, places.width);
    const height = Math.min(box.clientHeight, places.height);
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    const pixels = Math.round(places.cell * ratio);
    if (pixels !== this.pixels) this.drawn.clear();
    this.pixels = pixels;
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = canvas.getContext('2d');
    const image = new ImageData(w, h);
    const out = new Uint32Array(image.data.buffer);
    if (this.drawn.size * pixels * pixels * 4 > KEPT) this.drawn.clear();
    for (let i = 0; i < data.heads.length; i++) {
      const x = Math.round((places.x(i) - box.scrollLeft) * ratio);
      const y = Math.round((places.y(i) - box.scrollTop) * ratio);
      if (x >= w || y >= h || x + pixels <= 0 || y + pixels <= 0) continue;
      if (!this.drawn.has(i)) this.drawn.set(i, this.picture(i, pixels));
      const drawn = this.drawn.get(i);
      const [left, right] = [Math.max(0, -x), Math.min(pixels, w - x)];
      for (let row = Math.max(0, -y); row < Math.min(pixels, h - y); row++) {
        out.set(drawn.subarray(row * pixels + left, row * pixels + right), (y + row) * w + x + left);
      }
    }
    context.putImageData(image, 0, 0);
  }

  // What a person does

  cellAt(i) { return this.elements?.[i]; }

  makeCurrent(i) { // roving tabindex: Tab enters the sheet at one head
    if (this.cellAt(this.current)) this.cellAt(this.current).tabIndex = -1;
    this.current = i;
    if (this.cellAt(i)) this.cellAt(i).tabIndex = 0;
  }

  select(i) {
    this.cellAt(this.selected)?.setAttribute('aria-selected', 'false');
    this.selected = i;
    this.cellAt(i)?.setAttribute('aria-selected', 'true');
  }

  open(i) {
    this.select(i);
    this.makeCurrent(i);
    const [layer, head] = this.data.heads[i];
    this.report?.({ layer, head, time: Date.now() });
  }

  onKey(event, e) {
    if (event.key === 'Escape') this.hide();
    if (!e || event.altKey || event.metaKey) return;
    const i = +e.dataset.i;
    if ((event.key === 'Enter' || event.key === ' ') && !event.ctrlKey) {
      event.preventDefault();
      this.open(i);
      return;
    }
    const to = move(event.key, i, this.data.heads.length, this.data.columns, event.ctrlKey);
    if (to === null) return;
    event.preventDefault();
    this.reveal(to);
    this.cellAt(to).focus({ preventScroll: true });
  }

  /** Scrolls the box, never the page. */
  reveal(i) {
    const { box, places } = this;
    if (!places) return;
    const above = places.header || NAME;
    box.scrollLeft = scrolled(box.scrollLeft, box.clientWidth, places.x(i), places.cell + GAP, places.left);
    box.scrollTop = scrolled(box.scrollTop, box.clientHeight, places.y(i), places.cell + GAP, above);
  }

  explain(i, pointer) {
    const { data, tip, bytes } = this;
    const r = this.cellAt(i).getBoundingClientRect();
    const start = data.index[i] * this.cells;
    const more = [];
    if (data.hide_first) more.push(`colours run to ${(largest(bytes, start, data.size, true) / 255).toFixed(2)}`);
    if (pointer && pointer.pointerType !== 'touch') {
      const at = [(pointer.clientX - r.left) / r.width, (pointer.clientY - r.top) / r.height];
      more.push(pairText(data, bytes, start, at, this.pixels));
    }
    tip.replaceChildren(...explanation(data, i, more));
    place(tip, r);
  }

  hide() { this.tip.hidden = true; }

  download() {
    if (this.places) save(printSheet(this), 'attention-heads.png');
  }
}

const sheets = new WeakMap(); // one per sheet on the page

export default function ({ data, parentElement, setStateValue }) {
  const sheet = sheets.get(parentElement) ?? new Sheet(parentElement);
  sheets.set(parentElement, sheet);
  sheet.report = (found) => setStateValue('selected', found);
  if (sameBytes(sheet.raw, data)) { // a new theme: the selection and the place stay the user's
    if (sheet.data) sheet.theme();
  } else {
    sheet.raw = data;
    inflate(data).then((bytes) => {
      if (sheet.raw !== data || sheet.ended.signal.aborted) return; // a newer sheet has arrived meanwhile
      sheet.show(JSON.parse(new TextDecoder().decode(bytes)));
    });
  }
  return () => { sheet.end(); sheets.delete(parentElement); };
}
