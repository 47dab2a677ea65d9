// The map: one canvas as large as what can be seen, labels only where they can be seen. Tokens are untrusted text:
// textContent only.

class Plane {
  constructor(parent) {
    this.parent = parent;
    const names = ['legend', 'box', 'plane', 'top', 'corner', 'canvas', 'surface', 'rest', 'side', 'live', 'strip', 'tip'];
    for (const name of [...names, 'main', 'png', 'less', 'more']) this[name] = parent.querySelector(`.${name}`);
    this.call = 0;
    this.pin = null; // [position, axis]
    this.current = [0, 0]; // the keyboard's cell
    this.pointed = null; // the pointer's cell
    this.zoom = null; // null: as fits
    this.cursor = element('cursor');
    this.band = element('band');
    this.rest.append(this.band, this.cursor);
    this.ended = new AbortController();
    this.listen();
  }

  listen() {
    const { surface, box } = this;
    const on = (target, name, act, options) => target.addEventListener(name, act, { signal: this.ended.signal, ...options });
    on(surface, 'pointermove', (event) => this.point(event));
    on(surface, 'pointerleave', () => this.hide());
    on(surface, 'click', (event) => { const [q] = this.cellUnder(event); this.toggle([q, 'query']); });
    on(surface, 'keydown', (event) => this.onKey(event));
    on(surface, 'focus', () => { this.said(); this.labels(); });
    on(surface, 'blur', () => this.labels());
    on(this.plane, 'click', (event) => {
      const label = event.target.closest?.('.label');
      if (label) this.toggle([+label.dataset.i, label.dataset.axis]);
    });
    on(box, 'scroll', () => { this.hide(); this.paintSoon(); });
    on(document, 'scroll', () => this.hide(), { capture: true, passive: true });
    on(this.png, 'click', () => { if (this.map) save(printMap(this), 'attention-head.png'); });
    on(this.less, 'click', () => this.resize(-1));
    on(this.more, 'click', () => this.resize(1));
    this.sizes = new ResizeObserver(() => { if (this.map) { this.place(); this.paintSoon(); } });
    this.sizes.observe(this.main);
  }

  end() {
    this.ended.abort();
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // What is shown

  show(map, pin) {
    const same = this.map && this.map.n === map.n && this.map.tokens.every((token, i) => token === map.tokens[i]);
    const scroll = same ? [this.box.scrollLeft, this.box.scrollTop] : [0, 0];
    this.map = map;
    if (!same) this.current = [map.n - 1, 0];
    this.surface.setAttribute('aria-label', `${map.label}, ${map.n} tokens`);
    this.legendText();
    this.place();
    [this.box.scrollLeft, this.box.scrollTop] = scroll;
    this.hide();
    this.setPin(pin);
    this.theme();
    if (pin && !same) this.reveal(pin[1] === 'query' ? [pin[0], 0] : [pin[0], pin[0]]);
  }

  legendText() {
    const { legend, map } = this;
    const [low, high, note] = range(map);
    const say = (name, text) => { legend.querySelector(`.${name}`).textContent = text; };
    say('what', `${map.name}, ${map.measure}:`);
    say('low', low);
    say('high', high);
    say('without', note);
    legend.querySelector('.without').hidden = !note;
    legend.querySelector('.bar').setAttribute('aria-label', `colours of ${map.measure} from ${low} to ${high}`);
    legend.hidden = false;
  }

  place() {
    const { box, map, plane } = this;
    const width = this.main.offsetWidth - 18; // with the scroll bar, whether there is one or not
    if (width <= 0) return; // hidden: the ResizeObserver calls again
    const em = parseFloat(getComputedStyle(box).fontSize);
    const longest = Math.max(...map.tokens.map((token) => Math.min(width < 500 ? 8 : 13, Array.from(token).length)));
    this.above = Math.round(em * Math.max(4, 0.62 * longest + 2.6)); // text on its side, as long as the label
    this.left = Math.round(em * Math.max(5.5, 0.62 * longest + 2.6));
    const height = Math.round(window.innerHeight * 0.7) - 4;
    this.cell = this.zoom ?? fitting(map.n, width - this.left, height - this.above);
    const side = map.n * this.cell;
    for (const [name, size] of Object.entries({ left: this.left, top: this.above, side, cell: this.cell })) {
      plane.style.setProperty(`--${name}`, `${size}px`);
    }
  }

  resize(step) {
    if (!this.map) return;
    const at = SIZES.indexOf(this.cell);
    this.zoom = SIZES[Math.max(0, Math.min(SIZES.length - 1, at + step))];
    this.place();
    this.reveal(this.pin ? (this.pin[1] === 'query' ? [this.pin[0], 0] : [this.pin[0], this.pin[0]]) : this.current);
    this.paintSoon();
  }

  /** First and one after the last token that can be seen, down and across. */
  seen() {
    const { box, cell, map } = this;
    const one = (scroll, view) => [Math.max(0, Math.floor(scroll / cell)), Math.min(map.n, Math.ceil((scroll + view) / cell))];
    return [one(box.scrollTop, box.clientHeight - this.above), one(box.scrollLeft, box.clientWidth - this.left)];
  }

  theme() {
    this.colours = themeOf(this.box);
    this.inks = Uint32Array.from(this.colours.ramp, pixel);
    this.legend.querySelector('.bar').style.backgroundImage = gradient(this.colours.ramp);
    if (this.colours) writeStrip(this.strip, this.map, this.pin, this.colours);
    this.paintSoon();
  }

  paintSoon() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => { this.paint(); this.labels(); });
  }

  paint() {
    const { box, map, cell, canvas } = this;
    if (!this.colours || !box.clientWidth) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const side = map.n * cell;
    const [width, height] = [Math.min(side, box.clientWidth - this.left), Math.min(side, box.clientHeight - this.above)];
    const [w, h] = [width, height].map((size) => Math.max(1, Math.round(size * ratio)));
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const image = new ImageData(w, h);
    const out = new Uint32Array(image.data.buffer);
    const places = (scroll, count) => Int32Array.from({ length: count }, (_, i) => {
      const at = (i + 0.5) / ratio + scroll;
      return cell >= 10 && at % cell >= cell - 1 ? -1 : Math.min(map.n - 1, Math.floor(at / cell)); // -1: between cells
    });
    const [rows, columns] = [places(box.scrollTop, h), places(box.scrollLeft, w)];
    const gap = pixel(mix(this.colours.background, this.colours.border, 0.5));
    const [plain, stripe] = stripes(this.colours).map((colour) => pixel(rgbOf(colour)));
    const offset = Math.round((box.scrollTop + box.scrollLeft) * ratio);
    const period = Math.round(8 * ratio);
    for (let y = 0; y < h; y++) {
      const q = rows[y];
      for (let x = 0; x < w; x++) {
        const k = columns[x];
        const v = q < 0 || k < 0 ? -2 : shade(map, q, k);
        out[y * w + x] = v >= 0 ? this.inks[v] : v === -2 ? gap : (x + y + offset) % period < ratio ? stripe : plain;
      }
    }
    canvas.getContext('2d').putImageData(image, 0, 0);
  }

  /** Labels of the tokens that can be seen, and the marks of what is pinned and pointed at. */
  labels() {
    const { map, cell, pin, top, side } = this;
    if (!map || !this.box.clientWidth) return;
    const focused = (this.parent.getRootNode().activeElement ?? document.activeElement) === this.surface;
    const at = this.pointed ?? (focused ? this.current : null);
    const [rows, columns] = this.seen();
    const draw = (parent, [from, to], axis, current) => {
      const pinned = pin?.[1] === axis ? pin[0] : null;
      const always = [current, pinned].filter((i) => i !== null && i !== undefined);
      const all = labelled(from, to, cell, always).map((i) => {
        const e = makeLabel(map, i, axis, [...(i === pinned ? ['pinned'] : []), ...(i === current ? ['current'] : [])]);
        e.style[axis === 'query' ? 'top' : 'left'] = `${(axis === 'query' ? 0 : this.left) + middle(i, cell)}px`;
        return e;
      });
      parent.replaceChildren(...(parent === top ? [this.corner] : []), ...all);
    };
    draw(top, columns, 'key', at?.[1]);
    draw(side, rows, 'query', at?.[0]);
    this.cursor.hidden = !at || at[1] > at[0];
    if (at) Object.assign(this.cursor.style, { left: `${this.left + at[1] * cell}px`, top: `${at[0] * cell}px` });
    this.band.hidden = !pin;
    if (!pin) return;
    const query = pin[1] === 'query';
    Object.assign(this.band.style, {
      left: `${this.left + (query ? 0 : pin[0] * cell)}px`,
      top: `${pin[0] * cell}px`,
      width: `${query ? (pin[0] + 1) * cell : cell}px`,
      height: `${query ? cell : (map.n - pin[0]) * cell}px`,
    });
  }

  // What a person does

  cellUnder(event) {
    const r = this.surface.getBoundingClientRect();
    const inside = (v) => Math.max(0, Math.min(this.map.n - 1, Math.floor(v / this.cell)));
    return [inside(event.clientY - r.top), inside(event.clientX - r.left)];
  }

  point(event) {
    if (!this.map || event.pointerType === 'touch') return;
    const now = this.cellUnder(event);
    if (String(now) !== String(this.pointed)) {
      this.pointed = now;
      const [q, k] = now;
      this.tip.textContent = sentence(this.map, q, k);
      this.labels();
    }
    place(this.tip, { left: event.clientX + 10, top: event.clientY - 6, bottom: event.clientY + 10 });
  }

  hide() {
    this.tip.hidden = true;
    if (this.pointed === null) return;
    this.pointed = null;
    this.labels();
  }

  said() {
    if (this.map) this.live.textContent = sentence(this.map, ...this.current);
  }

  onKey(event) {
    if (event.key === 'Escape') this.hide();
    if (!this.map || event.altKey || event.metaKey) return;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this.toggle(event.shiftKey ? [this.current[1], 'key'] : [this.current[0], 'query']);
      return;
    }
    const to = move(event.key, this.current, this.map.n, event.ctrlKey);
    if (to === null) return;
    event.preventDefault();
    this.current = to;
    this.hide();
    this.reveal(to);
    this.said();
    this.labels();
  }

  /** Scrolls the box, never the page. */
  reveal([q, k]) {
    const { box, cell } = this;
    box.scrollTop = scrolled(box.scrollTop, box.clientHeight - this.above, q * cell, cell);
    box.scrollLeft = scrolled(box.scrollLeft, box.clientWidth - this.left, k * cell, cell);
  }

  toggle(pin) {
    if (!this.map) return;
    const taken = String(pin) === String(this.pin);
    this.setPin(taken ? null : pin);
    const [position, axis] = taken ? [null, null] : pin;
    this.report?.({ position, axis, time: Date.now() });
  }

  setPin(pin) {
    this.pin = pin;
    if (pin) this.current = pin[1] === 'query' ? [pin[0], Math.min(this.current[1], pin[0])] : [Math.max(this.current[0], pin[0]), pin[0]];
    if (this.colours) writeStrip(this.strip, this.map, this.pin, this.colours);
    this.labels();
  }
}

const planes = new WeakMap(); // one per map on the page

export default function ({ data, parentElement, setStateValue }) {
  const plane = planes.get(parentElement) ?? new Plane(parentElement);
  planes.set(parentElement, plane);
  plane.report = (found) => setStateValue('selected', found);
  const call = ++plane.call;
  if (sameBytes(plane.raw, data)) { // a new theme: the pin and the place stay the user's
    if (plane.map) plane.theme();
  } else {
    const [head, body] = open(data);
    inflate(body).then((bytes) => {
      if (call !== plane.call) return; // newer content has arrived meanwhile
      plane.raw = data;
      plane.show(readMap(bytes), head.selected);
    });
  }
  return () => { plane.call = -1; plane.end(); planes.delete(parentElement); };
}
