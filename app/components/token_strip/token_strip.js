// The token strip: draws what token_strip.py sends and reports clicks. Tokens are untrusted text: textContent only.

/** Columns of the tokens, the selection and its revision, from the zlib bytes that Python sent. */
export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

/** First and last position of every token's run: tokens that share a character stay together. */
export function runOf(tokens) {
  const found = new Map();
  for (const run of tokens.runs) for (let i = run[0]; i <= run[1]; i++) found.set(i, run);
  return found;
}

/** What a person reads about one token, line by line. */
export function describe(tokens, i, run) {
  const lines = [`token ${i} · id ${tokens.id[i]}`];
  if (tokens.note?.[i]) lines.push(tokens.note[i]);
  if (tokens.special[i]) lines.push('special token');
  const [n, hex] = [tokens.n_bytes[i], tokens.hex[i]];
  const cut = n > (hex.length + 1) / 3 ? ' …' : '';
  lines.push(n ? `${n === 1 ? 'byte' : `${n} bytes`} ${hex}${cut}` : 'no bytes');
  const [start, end] = [tokens.start[i], tokens.end[i]];
  if (start < 0) lines.push('not in the text');
  else if (end - start === 1) lines.push(`character ${start} of the text`);
  else if (end > start) lines.push(`characters ${start} to ${end - 1} of the text`);
  else lines.push(`no character of the text, before character ${start}`);
  if (tokens.added[i]) lines.push('added to what you wrote');
  if (run) lines.push(`tokens ${run[0]} to ${run[1]} together make ${run[2]}`);
  return lines.join('\n');
}

/** What a screen reader says: position and id first, then the token with its marks spelled as they look. */
export function ariaLabel(tokens, i) {
  return `token ${i}, id ${tokens.id[i]}${tokens.special[i] ? ', special' : ''}: ${tokens.shown[i]}`;
}

/** The position a key leads to. `boxes` gives [left, top] of a token: up and down go to the nearest of the next line. */
export function move(key, i, n, boxes) {
  if (key === 'ArrowRight') return Math.min(n - 1, i + 1);
  if (key === 'ArrowLeft') return Math.max(0, i - 1);
  if (key === 'Home') return 0;
  if (key === 'End') return n - 1;
  const step = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!step) return null;
  const [left, top] = boxes(i);
  let j = i;
  while (j + step >= 0 && j + step < n && Math.abs(boxes(j)[1] - top) < 4) j += step;
  const line = boxes(j)[1];
  if (Math.abs(line - top) < 4) return i; // already in the first or last line
  let best = j;
  for (; j >= 0 && j < n && Math.abs(boxes(j)[1] - line) < 4; j += step) {
    if (Math.abs(boxes(j)[0] - left) < Math.abs(boxes(best)[0] - left)) best = j;
  }
  return best;
}

const rgbOf = (text) => {
  const hex = /^#([0-9a-f]{6})/i.exec(text.trim());
  return hex ? [0, 2, 4].map((i) => parseInt(hex[1].slice(i, i + 2), 16)) : (text.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);
};

/** Background and text colour of an amount from 0 to 100 along the page's background and the theme's sequential colours. */
export function paint(amount, background, stops) {
  const all = [background, ...stops];
  const at = (Math.max(0, Math.min(100, amount)) / 100) * (all.length - 1);
  const low = Math.min(Math.floor(at), Math.max(0, all.length - 2));
  const rgb = all[low].map((v, i) => Math.round(v + ((all[low + 1] ?? all[low])[i] - v) * (at - low)));
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  // Black or white, whichever is read better: always 4.5:1 or more.
  return [`rgb(${rgb.join(', ')})`, 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff'];
}

/** Colour the tokens that have an amount, in the colours of the page's theme. */
function colour(tokens, buttons) {
  if (!tokens.shade || !buttons.length) return;
  const style = getComputedStyle(buttons[0]);
  const stops = (style.getPropertyValue('--st-chart-sequential-colors').match(/#[0-9a-f]{6}/gi) ?? []).map(rgbOf);
  const background = rgbOf(style.getPropertyValue('--st-background-color') || '#ffffff');
  buttons.forEach((b, i) => {
    if (tokens.shade[i] === null) return;
    [b.style.backgroundColor, b.style.color] = paint(tokens.shade[i], background, stops.length ? stops : [rgbOf('#08306b')]);
  });
}

function button(tokens, i) {
  const b = document.createElement('button');
  b.type = 'button';
  b.className = 'tok';
  if (tokens.special[i]) b.classList.add('special');
  if (tokens.added[i]) b.classList.add('added');
  if (tokens.broken[i]) b.classList.add('broken');
  b.dataset.i = i;
  b.dir = 'auto';
  b.tabIndex = -1;
  b.setAttribute('role', 'option');
  b.setAttribute('aria-selected', 'false');
  b.setAttribute('aria-label', ariaLabel(tokens, i));
  b.setAttribute('aria-describedby', 'tip');
  b.textContent = tokens.shown[i];
  return b;
}

function group(className) {
  const g = document.createElement('span');
  g.className = className;
  g.setAttribute('role', 'presentation'); // options belong to the listbox, whatever stands between
  return g;
}

/** One block per line of the text (a newline token ends its line); tokens that share a character in one bracket. */
function build(tokens, runs) {
  const all = document.createDocumentFragment();
  const buttons = [];
  let line = group('line');
  for (let i = 0; i < tokens.id.length; ) {
    const run = runs.get(i);
    const last = run ? run[1] : i;
    const parent = run ? line.appendChild(group('run')) : line;
    let newline = false;
    for (; i <= last; i++) {
      buttons.push(parent.appendChild(button(tokens, i)));
      newline ||= tokens.newline[i];
    }
    if (newline) {
      all.appendChild(line);
      line = group('line');
    }
  }
  if (line.firstChild) all.appendChild(line);
  return { all, buttons };
}

const states = new WeakMap(); // one per strip on the page: what it shows, and the number of the newest call

function sameBytes(a, b) {
  return a && a.length === b.length && a.every((value, i) => value === b[i]);
}

export default function ({ data, parentElement, setStateValue }) {
  const [box, strip, tip] = ['.box', '.strip', '.tip'].map((name) => parentElement.querySelector(name));
  const s = states.get(parentElement) ?? { call: 0, buttons: [], selected: null, current: 0 };
  states.set(parentElement, s);
  const call = ++s.call;
  const at = (event) => event.target.closest?.('.tok');

  const hideTip = () => { tip.hidden = true; };
  const explain = (b) => {
    const i = +b.dataset.i;
    tip.textContent = describe(s.tokens, i, s.runs.get(i));
    tip.hidden = false;
    const [r, t] = [b.getBoundingClientRect(), tip.getBoundingClientRect()];
    const below = r.bottom + 6 + t.height <= window.innerHeight;
    tip.style.left = `${Math.max(4, Math.min(r.left, document.documentElement.clientWidth - t.width - 4))}px`;
    tip.style.top = `${Math.max(4, below ? r.bottom + 6 : r.top - t.height - 6)}px`;
  };
  const makeCurrent = (i) => { // roving tabindex: Tab enters the strip at one token
    if (s.buttons[s.current]) s.buttons[s.current].tabIndex = -1;
    s.current = i;
    if (s.buttons[i]) s.buttons[i].tabIndex = 0;
  };
  const select = (i) => {
    s.buttons[s.selected]?.setAttribute('aria-selected', 'false');
    s.selected = i;
    s.buttons[i]?.setAttribute('aria-selected', 'true');
    if (s.buttons[i]) makeCurrent(i);
  };
  const reveal = (b) => { // scrolls the box, never the page
    const [r, v] = [b.getBoundingClientRect(), box.getBoundingClientRect()];
    if (r.top < v.top || r.bottom > v.bottom) box.scrollTop += r.top - v.top - v.height / 3;
  };

  const draw = (payload) => {
    const focused = parentElement.getRootNode().activeElement ?? parentElement.activeElement;
    const keep = focused && strip.contains(focused) ? +focused.dataset.i : -1;
    hideTip();
    const tokens = payload.tokens;
    if (payload.digest !== s.digest) {
      s.digest = payload.digest;
      s.tokens = tokens;
      s.runs = runOf(tokens);
      const { all, buttons } = build(tokens, s.runs);
      s.buttons = buttons;
      strip.setAttribute('aria-label', tokens.label);
      strip.replaceChildren(all);
      colour(tokens, buttons);
      makeCurrent(Math.max(0, Math.min(s.current, buttons.length - 1)));
      if (keep >= 0) buttons[Math.min(keep, buttons.length - 1)]?.focus({ preventScroll: true });
    }
    select(payload.selected);
    strip.classList.add('ready');
    // Two frames later: until then `content-visibility` gives lines a guessed height, and a long text would not scroll.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      if (s.buttons[s.selected]) reveal(s.buttons[s.selected]);
    }));
  };

  strip.onclick = (event) => {
    const b = at(event);
    if (!b) return;
    select(+b.dataset.i);
    setStateValue('selected', { position: +b.dataset.i, time: Date.now() });
  };
  strip.onkeydown = (event) => { // Enter and the space bar click a button by themselves
    const b = at(event);
    if (event.key === 'Escape') hideTip();
    if (!b || event.ctrlKey || event.altKey || event.metaKey) return;
    const boxes = (j) => { const r = s.buttons[j].getBoundingClientRect(); return [r.left, r.top]; };
    const i = move(event.key, +b.dataset.i, s.buttons.length, boxes);
    if (i === null) return;
    event.preventDefault();
    s.buttons[i].focus();
  };
  strip.onmouseover = (event) => { if (at(event)) explain(at(event)); else hideTip(); };
  strip.onmouseleave = hideTip;
  box.onscroll = hideTip;
  if (!s.listening) { // there is no onfocusin property
    strip.addEventListener('focusin', (event) => { makeCurrent(+event.target.dataset.i); explain(event.target); });
    strip.addEventListener('focusout', hideTip);
    s.listening = true;
  }

  // A new theme calls again with the same bytes: nothing to draw but the colours, and the selection stays the user's.
  if (sameBytes(s.bytes, data)) {
    colour(s.tokens, s.buttons);
  } else {
    inflate(data).then((payload) => {
      if (call !== s.call) return; // a newer text has arrived meanwhile
      s.bytes = data;
      draw(payload);
    });
  }
  return () => { s.call = -1; states.delete(parentElement); };
}
