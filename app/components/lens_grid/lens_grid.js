// The grid itself: only the columns near the visible ones are in the document (18,600 cells would take seconds), every
// row is. Tokens are untrusted text: textContent only.

const EM = { cell: 5.6, row: 1.75, header: 3, band: 1.3, character: 0.62, head: 11 }; // in the font size of the box

class View {
  constructor(parent) {
    this.parent = parent;
    for (const name of ['legend', 'measure', 'low', 'bar', 'high', 'mark', 'png', 'box', 'table', 'tip']) {
      this[name] = parent.querySelector(`.${name}`);
    }
    this.call = 0;
    this.selected = null;
    this.current = null; // roving tabindex: Tab enters the grid at one cell
    this.ended = new AbortController();
    this.listen();
  }

  listen() {
    const { table, box } = this;
    const on = (target, name, act, options) => target.addEventListener(name, act, { signal: this.ended.signal, ...options });
    const at = (event) => event.target.closest?.('[data-cell]');
    on(table, 'click', (event) => { if (at(event)) this.pin(+at(event).dataset.cell); });
    on(table, 'keydown', (event) => this.onKey(event, at(event)));
    on(table, 'mouseover', (event) => this.explain(event.target.closest?.('[data-cell], .column, .rowname')));
    on(table, 'mouseleave', () => this.hide());
    on(table, 'focusin', (event) => {
      if (!at(event)) return;
      this.makeCurrent(+at(event).dataset.cell);
      if (!this.quiet) this.explain(at(event));
    });
    on(table, 'focusout', () => this.hide());
    on(box, 'scroll', () => { this.hide(); this.drawColumns(); });
    on(document, 'scroll', () => this.hide(), { capture: true, passive: true });
    on(this.png, 'click', () => this.download());
    this.sizes = new ResizeObserver(() => this.drawColumns()); // a tab that opens, a window that grows
    this.sizes.observe(box);
  }

  end() {
    this.ended.abort();
    this.sizes.disconnect();
  }

  // What is drawn

  show(grid, selected, revision, digest) {
    const { columns } = this.grid ?? {};
    const same = columns?.length === grid.columns.length && columns.every((c, i) => c === grid.columns[i]);
    if (digest !== this.digest) {
      const focused = this.focused();
      const scroll = [this.box.scrollLeft, this.box.scrollTop];
      Object.assign(this, { grid, digest, current: Math.min(same ? this.current : Infinity, grid.cells - 1) });
      this.build();
      [this.box.scrollLeft, this.box.scrollTop] = scroll;
      this.toReveal = same ? null : grid.cells - 1;
      this.drawColumns();
      if (focused) this.focus(this.current, true);
    }
    const stays = same && selected === this.selected; // only numbers came: the person may have scrolled on
    if (revision !== this.revision && selected !== null && !stays) this.toReveal = selected;
    this.revision = revision;
    this.select(selected);
    if (selected !== null && !this.focused()) this.makeCurrent(selected);
    this.drawColumns();
  }

  focused() {
    const found = this.parent.getRootNode().activeElement ?? document.activeElement;
    return found && this.table.contains(found) ? found : null;
  }

  /** Header, rows and bands, still without cells. */
  build() {
    const { grid, table, box } = this;
    const em = parseFloat(getComputedStyle(box).fontSize);
    const longest = Math.max(8, ...grid.rows.map((name) => Array.from(name).length));
    this.cell = Math.round(EM.cell * em);
    this.row = Math.round(EM.row * em);
    this.header = Math.round(EM.header * em);
    this.head = Math.round(Math.min(EM.head, longest * EM.character + 1.2) * em);
    const { cell, row, header, head } = this;
    for (const [name, size] of Object.entries({ cell, row, header, head, band: Math.round(EM.band * em) })) {
      table.style.setProperty(`--${name}`, `${size}px`);
    }
    table.style.width = `${this.head + grid.columns.length * this.cell}px`;
    table.setAttribute('aria-label', grid.label);
    table.setAttribute('aria-colcount', grid.columns.length + 1);
    table.setAttribute('aria-rowcount', lines(grid).length + 1);
    this.range = null;
    this.lines = [this.headerLine()];
    const all = lines(grid).map((line, i) => (line.hidden ? this.band(line.hidden, i + 2) : this.rowLine(line.row, i + 2)));
    table.replaceChildren(this.lines[0].element, ...all);
    this.theme();
    this.legend.hidden = false;
    this.measure.textContent = grid.measure;
    [this.low.textContent, this.high.textContent] = grid.legend;
    this.bar.setAttribute('aria-label', `colours from ${grid.legend[0]} to ${grid.legend[1]}`);
    this.mark.hidden = grid.target === null;
    this.mark.textContent = `reads as ${grid.target}`;
  }

  headerLine() {
    const line = element('line header', 'row');
    line.setAttribute('aria-rowindex', 1);
    const corner = element('corner', 'columnheader', 'token →');
    corner.setAttribute('aria-colindex', 1);
    line.append(corner);
    const make = (column) => {
      const e = element('column', 'columnheader');
      e.append(element('number', null, this.grid.positions[column]), element('token', null, this.grid.columns[column]));
      e.lastChild.dir = 'auto';
      e.dataset.column = column;
      return e;
    };
    return { element: line, make, cells: new Map() };
  }

  rowLine(row, index) {
    const line = element(row === this.grid.rows.length - 1 ? 'line last' : 'line', 'row');
    line.setAttribute('aria-rowindex', index);
    const name = element('rowname', 'rowheader', this.grid.rows[row]);
    name.setAttribute('aria-colindex', 1);
    name.dataset.row = row;
    line.append(name);
    const made = { element: line, make: (column) => this.makeCell(row, column), cells: new Map(), row };
    this.lines.push(made);
    return line;
  }

  band(n, index) {
    const line = element('line band', 'row');
    line.setAttribute('aria-rowindex', index);
    const said = element('said', 'gridcell', `⋮ ${bandText(n)}`);
    said.setAttribute('aria-colindex', 1);
    line.append(said);
    return line;
  }

  makeCell(row, column) {
    const { grid } = this;
    const cell = row * grid.columns.length + column;
    const e = element(isTarget(grid, cell) ? 'cell target' : 'cell', 'gridcell', tokenAt(grid, cell));
    e.dataset.cell = cell;
    e.dir = 'auto';
    e.tabIndex = cell === this.current ? 0 : -1;
    e.setAttribute('aria-selected', String(cell === this.selected));
    e.setAttribute('aria-label', ariaLabel(grid, cell));
    e.setAttribute('aria-describedby', 'tip');
    this.paint(e);
    return e;
  }

  /** Puts the columns that can be seen into the document, and takes the others out, except the one with the focus. */
  drawColumns() {
    const { grid, box } = this;
    if (!grid || !box.clientWidth) return; // hidden: the ResizeObserver calls again
    if (this.toReveal !== null && this.toReveal !== undefined) {
      const cell = this.toReveal;
      this.toReveal = null; // before scrolling, which calls back
      this.reveal(cell);
    }
    const n = grid.columns.length;
    const [from, to] = visibleColumns(box.scrollLeft, box.clientWidth - this.head, this.cell, n);
    const kept = this.current % n;
    if (String([from, to, kept]) === this.range) return;
    this.range = String([from, to, kept]);
    const wanted = Array.from({ length: to - from }, (_, i) => from + i);
    if (kept < from) wanted.unshift(kept);
    if (kept >= to) wanted.push(kept);
    const there = new Set(wanted);
    for (const line of this.lines) {
      for (const [column, e] of line.cells) {
        if (!there.has(column)) { e.remove(); line.cells.delete(column); }
      }
      let next = null;
      for (const column of wanted.toReversed()) { // in the order a screen reader walks
        let e = line.cells.get(column);
        if (!e) {
          e = line.make(column);
          e.setAttribute('aria-colindex', column + 2);
          e.style.left = `${this.head + column * this.cell}px`;
          line.element.insertBefore(e, next);
          line.cells.set(column, e);
        }
        next = e;
      }
    }
  }

  /** Light or dark, as the page's background is. */
  theme() {
    const rgb = getComputedStyle(this.box).backgroundColor.match(/[\d.]+/g).slice(0, 3).map(Number);
    this.shades = palette(luminance(rgb) < 0.2);
    const stops = [0, 32, 64, 95, 127, 159, 191, 222, 254].map((shade) => this.shades[shade][0]);
    this.bar.style.background = `linear-gradient(to right, ${stops.join(', ')})`;
    for (const line of this.lines.slice(1)) for (const e of line.cells.values()) this.paint(e);
  }

  paint(e) {
    const [shade, text] = this.shades[this.grid.shade[+e.dataset.cell]] ?? ['', ''];
    e.style.background = shade;
    e.style.color = text;
  }

  // What a person does

  find(cell) {
    const n = this.grid.columns.length;
    return this.lines[1 + Math.floor(cell / n)]?.cells.get(cell % n);
  }

  makeCurrent(cell) {
    const old = this.find(this.current);
    if (old) old.tabIndex = -1;
    this.current = cell;
    this.drawColumns();
    const now = this.find(cell);
    if (now) now.tabIndex = 0;
  }

  select(cell) {
    this.find(this.selected)?.setAttribute('aria-selected', 'false');
    this.selected = cell;
    this.find(cell)?.setAttribute('aria-selected', 'true');
  }

  pin(cell) {
    this.select(cell);
    this.makeCurrent(cell);
    const n = this.grid.columns.length;
    this.report?.({ row: Math.floor(cell / n), column: cell % n, time: Date.now() });
  }

  onKey(event, e) {
    if (event.key === 'Escape') this.hide();
    if (!e || event.altKey || event.metaKey) return;
    const cell = +e.dataset.cell;
    if ((event.key === 'Enter' || event.key === ' ') && !event.ctrlKey) {
      event.preventDefault();
      this.pin(cell);
      return;
    }
    const page = Math.max(1, Math.floor((this.box.clientHeight - this.header) / this.row) - 2);
    const to = move(event.key, cell, this.grid.rows.length, this.grid.columns.length, page, event.ctrlKey);
    if (to === null) return;
    event.preventDefault();
    this.reveal(to);
    this.makeCurrent(to);
    this.focus(to);
  }

  focus(cell, quiet = false) {
    this.quiet = quiet; // a redraw gives the focus back without opening the tooltip
    this.find(cell)?.focus({ preventScroll: quiet });
    this.quiet = false;
    if (!quiet && this.find(cell)) this.explain(this.find(cell)); // scrolling has hidden it
  }

  /** Scrolls the box, never the page. */
  reveal(cell) {
    const { box, grid } = this;
    const [row, column] = [Math.floor(cell / grid.columns.length), cell % grid.columns.length];
    box.scrollLeft = scrolled(box.scrollLeft, box.clientWidth - this.head, column * this.cell, this.cell);
    if (row === grid.rows.length - 1) { // always visible; what matters is next to it
      if (cell === grid.cells - 1) box.scrollTop = box.scrollHeight;
      return;
    }
    const top = this.lines[1 + row].element.offsetTop;
    box.scrollTop = scrolled(box.scrollTop, box.clientHeight, top, this.row, this.header, this.row);
  }

  explain(e) {
    if (!e) { this.hide(); return; }
    const { tip, grid } = this;
    const { cell, column, row } = e.dataset;
    if (cell !== undefined) tip.replaceChildren(...explanation(grid, +cell));
    else if (column !== undefined) tip.replaceChildren(...tokenLines(`token ${grid.positions[column]} `, grid.columns[column]));
    else tip.replaceChildren(element('', null, grid.rows[row]));
    tip.hidden = false;
    const [r, t] = [e.getBoundingClientRect(), tip.getBoundingClientRect()];
    const below = r.bottom + 6 + t.height <= window.innerHeight;
    tip.style.left = `${Math.max(4, Math.min(r.left, document.documentElement.clientWidth - t.width - 4))}px`;
    tip.style.top = `${Math.max(4, below ? r.bottom + 6 : r.top - t.height - 6)}px`;
  }

  hide() { this.tip.hidden = true; }

  download() {
    const style = getComputedStyle(this.box);
    const colours = { background: style.backgroundColor, text: style.color, shades: this.shades };
    drawPicture(this.grid, colours, style.fontFamily, this.selected).toBlob((blob) => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(blob);
      link.download = 'logit-lens.png';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
  }
}
