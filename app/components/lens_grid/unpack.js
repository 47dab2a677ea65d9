// The bytes that payload.py packs, as a grid; and its numbers as text. Python concatenates this file, picture.js,
// parts.js and lens_grid.js: one module, no imports.

export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function section(bytes) { // JSON after its length, and where it ends
  const n = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + n))), 4 + n];
}

/** {digest, revision, selected} from the front of a message, and the compressed grid behind it. */
export function open(message) {
  const [head, end] = section(message);
  return { ...head, body: message.subarray(end) };
}

/** The grid: the header of payload.py with `ids`, `top`, `shade`, `marks` and every value's `codes` filled in. */
export function readGrid(bytes) {
  const [grid, end] = section(bytes);
  const cells = grid.rows.length * grid.columns.length;
  let at = end;
  const take = (count, width) => {
    const codes = new Uint32Array(count);
    for (let plane = 0; plane < width; plane++, at += count) {
      for (let i = 0; i < count; i++) codes[i] += bytes[at + i] * 256 ** plane;
    }
    return codes;
  };
  grid.cells = cells;
  grid.ids = take(cells * grid.k, grid.id.bytes);
  grid.top.codes = take(cells * grid.k, grid.top.bytes);
  for (let i = cells; i < grid.top.codes.length; i++) grid.top.codes[i] = grid.top.codes[i - cells] - grid.top.codes[i];
  grid.shade = take(cells, 1);
  grid.marks = grid.target === null ? null : take(cells, 1);
  for (const value of grid.values) value.codes = take(cells, value.bytes);
  return grid;
}

/** Mantissa (100 to 999), exponent and sign of a code; null where there is none: numbers.py says how they are packed. */
export function decimal(code, spec) {
  if (code < 2) return null;
  let rest = code - 2;
  const sign = spec.signed && rest % 2 ? '−' : '';
  if (spec.signed) rest = Math.floor(rest / 2);
  return { sign, mantissa: 100 + (rest % 900), exponent: spec.low + Math.floor(rest / 900) };
}

const thousands = (text) => text.replace(/\B(?=(\d{3})+$)/g, ','); // toLocaleString is slow for a thousand cells
const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]));
const scientific = (m, e) => `${Math.floor(m / 100)}.${String(m % 100).padStart(2, '0')}×10${superscript(e)}`;

/** Three digits without an exponent: 231, 23.1, 0.0231, and 23,100 (the zeros only hold the place). */
export function plain(mantissa, exponent) {
  if (exponent >= 2) return thousands(mantissa + '0'.repeat(exponent - 2));
  if (exponent >= 0) return `${String(mantissa).slice(0, exponent + 1)}.${String(mantissa).slice(exponent + 1)}`;
  return `0.${'0'.repeat(-exponent - 1)}${mantissa}`;
}

/** A value as a person reads it, with its unit; "none" where there is no number. */
export function format(code, spec, unit = '') {
  if (spec.kind === 'integer') return code ? `${thousands(String(code - 1))}${unit && ` ${unit}`}` : 'none';
  if (code === 1) return 'none';
  if (spec.kind === 'probability') {
    if (code === 0) return '0 %';
    const { mantissa, exponent } = decimal(code, spec);
    if (exponent < -3) return scientific(mantissa, exponent);
    if (exponent === 0) return mantissa === 100 ? '> 99.9 %' : '100 %';
    return `${plain(mantissa, exponent + 2)} %`;
  }
  const after = unit && ` ${unit}`;
  if (code === 0) return `0${after}`;
  const { sign, mantissa, exponent } = decimal(code, spec);
  const text = exponent < -3 || exponent > 5 ? scientific(mantissa, exponent) : plain(mantissa, exponent);
  return sign + text + after;
}

/** The text of the k-th best token of a cell, and its probability. */
export const tokenAt = (grid, cell, k = 0) => grid.strings[grid.ids[k * grid.cells + cell]];
export const chanceAt = (grid, cell, k = 0) => format(grid.top.codes[k * grid.cells + cell], grid.top);
export const isEmpty = (grid, cell) => grid.top.codes[cell] === 1; // not known yet
export const isTarget = (grid, cell) => grid.marks !== null && grid.marks[cell] === 1;

/** Rows and bands from the top down: {row} or {hidden: how many layers are not shown}. */
export function lines(grid) {
  const all = [];
  const band = (row) => { if (grid.hidden_after[row]) all.push({ hidden: grid.hidden_after[row] }); };
  band(-1);
  grid.rows.forEach((_, row) => { all.push({ row }); band(row); });
  return all;
}

export const bandText = (n) => `${n} ${n === 1 ? 'layer' : 'layers'} not shown`;

const NOT_YET = 'not read yet';

/** What a person reads about a cell: where it is, the best tokens with their probabilities, the values. */
export function describe(grid, cell) {
  const columns = grid.columns.length;
  const [row, column] = [Math.floor(cell / columns), cell % columns];
  return {
    where: grid.rows[row],
    position: `token ${grid.positions[column]}`,
    token: grid.columns[column],
    top: isEmpty(grid, cell)
      ? [[NOT_YET, '']]
      : Array.from({ length: grid.k }, (_, k) => [tokenAt(grid, cell, k), chanceAt(grid, cell, k)]),
    values: isEmpty(grid, cell) ? [] : grid.values.map((value) => [value.name, format(value.codes[cell], value, value.unit === '%' ? '' : value.unit)]),
    target: isTarget(grid, cell) ? grid.target : null,
  };
}

export function ariaLabel(grid, cell) {
  const columns = grid.columns.length;
  const [row, column] = [Math.floor(cell / columns), cell % columns];
  const place = `${grid.rows[row]}, token ${grid.positions[column]} ${grid.columns[column]}`;
  if (isEmpty(grid, cell)) return `${place}: ${NOT_YET}`;
  return `${place}: ${tokenAt(grid, cell)}, ${chanceAt(grid, cell)}${isTarget(grid, cell) ? ', the target' : ''}`;
}
