// What the map of one head computes: places, colours, texts. `map` is what head_map.py sends, with `weights` filled in.

export const LABEL = 12; // pixels that a label needs
export const SIZES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48];
const LARGEST = 32; // by itself
const [FEW, MANY, SMALL] = [5, 48, 0.001]; // tokens that the strip names: at least, at most, and from this share of the sum

/** The header with `weights`: rows of the lower triangle one after the other. */
export function readMap(bytes) {
  const [map, rest] = open(bytes);
  const n = map.tokens.length;
  const count = (n * (n + 1)) / 2;
  const plain = new Uint8Array(4 * count);
  for (let i = 0; i < count; i++) for (let b = 0; b < 4; b++) plain[4 * i + b] = rest[b * count + i];
  map.weights = new Float32Array(plain.buffer);
  map.n = n;
  let most = 0;
  for (let q = 1; q < n; q++) for (let k = 1; k <= q; k++) most = Math.max(most, weight(map, q, k));
  map.most = map.hide_first ? most : map.upper; // where the colours end
  return map;
}

export const weight = (map, q, k) => map.weights[(q * (q + 1)) / 2 + k];

/** The largest cells with which the whole map is visible; not smaller than what can still be seen and hit. */
export function fitting(n, width, height) {
  const found = SIZES.filter((size) => size <= LARGEST && n * size <= Math.min(width, height));
  return Math.max(found.at(-1) ?? 1, n > 256 ? 2 : 3);
}

/** Where the middle of a label stands: the first one is not cut off, however small the cells are. */
export const middle = (i, cell) => Math.max(7, (i + 0.5) * cell);

/** Which tokens get a label: as many as find room, and in any case those in `always`. */
export function labelled(from, to, cell, always) {
  const step = Math.ceil(LABEL / cell);
  const apart = (i, j) => i === j || Math.abs(middle(i, cell) - middle(j, cell)) >= LABEL;
  const found = [];
  for (let i = from; i < to; i++) {
    const fits = i % step === 0 && always.every((j) => apart(i, j)) && (!found.length || apart(i, found.at(-1)));
    if (fits || always.includes(i)) found.push(i);
  }
  return found;
}

/** The cell that a key leads to; what comes later is never reached. */
export function move(key, [q, k], n, ctrl = false) {
  const at = (row, column) => {
    const to = Math.max(0, Math.min(n - 1, row));
    return [to, Math.max(0, Math.min(to, column))];
  };
  if (key === 'Home') return at(ctrl ? 0 : q, 0);
  if (key === 'End') return ctrl ? at(n - 1, n - 1) : at(q, q);
  if (ctrl) return null;
  const step = {
    ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [10, 0], PageUp: [-10, 0],
  }[key];
  return step ? at(q + step[0], k + step[1]) : null;
}

/** A cell's colour, 0 to 255; -1 for what has none: later tokens, and key 0 while it is hidden. */
export function shade(map, q, k) {
  if (k > q || (map.hide_first && k === 0)) return -1;
  return map.most > 0 ? Math.min(255, Math.round((255 * weight(map, q, k)) / map.most)) : 0;
}

export const tokenText = (map, i) => `token ${i} ${map.tokens[i]}`;

/** What a person reads about a cell. */
export function sentence(map, q, k) {
  if (k > q) return `${tokenText(map, q)} cannot see ${tokenText(map, k)}: it comes later`;
  return `${tokenText(map, q)} looks at ${tokenText(map, k)}: ${digits(weight(map, q, k))}`;
}

/** Where the pinned token looks, or who looks at it: a heading, [position, weight] strongest first, and the rest. */
export function around(map, [position, axis]) {
  const query = axis === 'query';
  const others = query ? [0, position + 1] : [position, map.n];
  const all = [];
  let sum = 0;
  for (let i = others[0]; i < others[1]; i++) {
    const value = query ? weight(map, position, i) : weight(map, i, position);
    all.push([i, value]);
    sum += value;
  }
  all.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const listed = all.filter(([, value], i) => i < FEW || (i < MANY && value >= SMALL * sum));
  const rest = all.slice(listed.length);
  const left = rest.reduce((total, [, value]) => total + value, 0);
  return {
    heading: query ? [tokenText(map, position), 'looks at, strongest first'] : [tokenText(map, position), 'is looked at by, strongest first'],
    sum: `sum ${digits(sum)}`,
    listed,
    others: rest.length ? `and ${rest.length} more, together ${digits(left)}` : '',
  };
}

/** [low, high, note] beside the colours. */
export function range(map) {
  if (!map.hide_first) return ['0', map.upper === 1 ? '1' : digits(map.upper), ''];
  return ['0', digits(map.most), 'token 0 hidden; the colours end at the largest of the others'];
}
