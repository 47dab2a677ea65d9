// What the contact sheet computes: places, colours, texts. `sheet` is what head_grid.py sends, `bytes` the pictures.

export const GAP = 4; // pixels between pictures, and the sizes of what stands around them
export const ROWNAME = 40;
export const HEADER = 18;
export const NAME = 15;
const PANEL_GAP = 20;
export const SIZES = [16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 320];
const SMALLEST = 28; // by itself; a person may choose less
const LARGEST = 160;

/** Places for a picture size: lines of layers stand in as many panels as are needed and find room beside each other. */
export function arrange(n, columns, byLayer, cell, width, height) {
  const lines = Math.ceil(n / columns);
  const line = cell + GAP + (byLayer ? 0 : NAME);
  const header = byLayer ? HEADER : 0;
  const left = byLayer ? ROWNAME : 0;
  const panel = left + columns * (cell + GAP);
  const room = byLayer ? Math.max(1, Math.floor((width + PANEL_GAP) / (panel + PANEL_GAP))) : 1;
  const needed = Math.ceil(lines / Math.max(1, Math.floor((height - header) / line)));
  const panels = Math.min(room, needed, lines) || 1;
  const each = Math.ceil(lines / panels);
  const used = Math.ceil(lines / each) || 1;
  return {
    cell, columns, lines, line, header, left, panel, panels: used, each,
    width: used * panel + (used - 1) * PANEL_GAP,
    height: header + each * line,
    x: (i) => Math.floor(Math.floor(i / columns) / each) * (panel + PANEL_GAP) + left + (i % columns) * (cell + GAP),
    y: (i) => header + (Math.floor(i / columns) % each) * line + (byLayer ? 0 : NAME),
  };
}

/** The largest pictures with which the whole sheet is visible; not smaller than what can still be read. */
export function fitting(n, columns, byLayer, width, height) {
  let best = SMALLEST;
  for (const cell of SIZES.filter((size) => size > SMALLEST && size <= LARGEST)) {
    const places = arrange(n, columns, byLayer, cell, width, height);
    if (places.width <= width && places.height <= height) best = cell;
  }
  return best;
}

/** The head a key leads to: arrows, Home and End in a line (with Ctrl: in the sheet), PageUp and PageDown by five lines. */
export function move(key, i, n, columns, ctrl = false) {
  const [row, column] = [Math.floor(i / columns), i % columns];
  const last = Math.ceil(n / columns) - 1;
  const at = (r, c) => {
    const to = Math.max(0, Math.min(last, r));
    return Math.min(n - 1, to * columns + Math.max(0, Math.min(columns - 1, c)));
  };
  if (key === 'Home') return ctrl ? 0 : at(row, 0);
  if (key === 'End') return ctrl ? n - 1 : at(row, columns - 1);
  if (ctrl) return null;
  const step = {
    ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [5, 0], PageUp: [-5, 0],
  }[key];
  return step ? at(row + step[0], column + step[1]) : null;
}

/** First and one after the last cell of a picture with `size` cells that pixel `i` of `pixels` shows. */
export function covered(i, size, pixels) {
  const first = Math.floor((i * size) / pixels);
  return [first, pixels >= size ? first + 1 : Math.max(first + 1, Math.floor(((i + 1) * size) / pixels))];
}

/** Largest byte of a picture without its first column: what the colours run to when that is hidden. */
export function largest(bytes, start, size, hideFirst) {
  let found = 0;
  for (let q = hideFirst ? 1 : 0, at = start + (hideFirst ? 1 : 0); q < size; at += q + 1, q++) {
    for (let k = hideFirst ? 1 : 0; k <= q; k++) found = Math.max(found, bytes[at + k]);
  }
  return found;
}

/**
 * A picture of one head at `pixels` x `pixels`: the largest byte under each pixel (a thin line stays visible in a small
 * picture), -1 above the diagonal, -2 where only the hidden first column is.
 */
export function reduce(bytes, start, size, pixels, hideFirst) {
  const image = new Int16Array(pixels * pixels).fill(-1);
  const columns = Array.from({ length: pixels }, (_, x) => covered(x, size, pixels));
  for (let y = 0; y < pixels; y++) {
    const [top, bottom] = covered(y, size, pixels);
    for (let x = 0; x < pixels; x++) {
      let [first, end] = columns[x];
      if (first >= bottom) break;
      if (hideFirst && first === 0) first = 1;
      let found = first >= end ? -2 : -1;
      for (let q = Math.max(top, first); q < bottom && first < end; q++) {
        const row = start + (q * (q + 1)) / 2;
        for (let k = first; k < end && k <= q; k++) if (bytes[row + k] > found) found = bytes[row + k];
      }
      image[y * pixels + x] = found;
    }
  }
  return image;
}

/** The picture in colours: `inks` are 256 colours, `empty` stands above the diagonal, `hidden` for the first column. */
export function colour(image, most, inks, empty, hidden) {
  const out = new Uint32Array(image.length);
  const scale = most > 0 ? 255 / most : 0;
  for (let i = 0; i < image.length; i++) {
    const v = image[i];
    out[i] = v >= 0 ? inks[Math.min(255, Math.round(v * scale))] : v === -1 ? empty : hidden;
  }
  return out;
}

export const nameOf = ([layer, head]) => `L${layer}H${head}`;
const share = (byte) => (byte / 255).toFixed(2); // a byte holds no third digit

/** "3 (3 heads score higher)". */
export function rankText(rank) {
  if (rank === 0) return '0 (the highest)';
  return `${rank} (${rank} ${rank === 1 ? 'head scores' : 'heads score'} higher)`;
}

/** What a person reads about a head: [name, value] pairs under its name. */
export function describe(sheet, i) {
  const pairs = sheet.scores.map(({ name, values }) => [name, digits(values[i])]);
  if (sheet.ranks) pairs.push([`rank by ${sheet.tint_label}`, rankText(sheet.ranks[i])]);
  return pairs;
}

export function ariaLabel(sheet, i) {
  const marked = sheet.ticked.includes(i) ? ', marked for ablation' : '';
  const pairs = describe(sheet, i).map(([name, value]) => `, ${name} ${value}`);
  return `${nameOf(sheet.heads[i])}${pairs.join('')}${marked}`;
}

/** "token 57 looks at token 12: 0.31": the true weight under a point of a picture; `at` is 0 to 1 from the upper left. */
export function pairText(sheet, bytes, start, [x, y], pixels) {
  const { size, block } = sheet;
  const [[k, kEnd], [q, qEnd]] = [x, y].map((v) => covered(Math.min(pixels - 1, Math.max(0, Math.floor(v * pixels))), size, pixels));
  if (k >= qEnd) return 'comes later: not visible to this token';
  let found = 0;
  for (let i = Math.max(q, k); i < qEnd; i++) {
    for (let j = k; j < kEnd && j <= i; j++) found = Math.max(found, bytes[start + (i * (i + 1)) / 2 + j]);
  }
  const [from, to] = [[q, qEnd], [k, kEnd]].map(([a, b]) => tokens(a * block, Math.min(sheet.n_tokens, b * block) - 1));
  const many = (qEnd - q) * block > 1 || (kEnd - k) * block > 1;
  return `${from} ${from.startsWith('tokens') ? 'look' : 'looks'} at ${to}: ${many ? 'at most ' : ''}${share(found)}`;
}

/** What the colours of the pictures mean: [low, high, what]. */
export function range(sheet) {
  const first = tokens(0, Math.min(sheet.n_tokens, sheet.block) - 1);
  const what = sheet.block > 1 ? `largest weight in ${sheet.block} × ${sheet.block} tokens` : 'attention weight';
  if (!sheet.hide_first) return ['0', '1', what];
  return ['0', `each head's own largest`, `${what}, ${first} hidden`];
}
