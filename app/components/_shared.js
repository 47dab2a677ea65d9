// What the pictures of heads share. Python puts this file in front of a component's own: one module, no imports.

export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A message: the length of a JSON header (4 bytes, little endian), the header, and the bytes behind it. */
export function open(message) {
  const n = new DataView(message.buffer, message.byteOffset, 4).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(message.subarray(4, 4 + n))), message.subarray(4 + n)];
}

export function sameBytes(a, b) {
  return Boolean(a) && a.length === b.length && a.every((value, i) => value === b[i]);
}

// Numbers

const superscript = (n) => String(n).replace(/[-0-9]/g, (c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]));

/** Three digits: 0.0231, 0.998, 12.3, 2.31×10⁻⁵; "not defined" where there is no number. */
export function digits(value) {
  if (value === null || Number.isNaN(value)) return 'not defined';
  if (value === 0) return '0';
  const [mantissa, exponent] = Math.abs(value).toExponential(2).split('e').map(Number);
  const sign = value < 0 ? '−' : '';
  if (exponent < -3 || exponent > 5) return `${sign}${mantissa.toFixed(2)}×10${superscript(exponent)}`;
  if (exponent >= 2) return sign + Math.round(mantissa * 10 ** exponent).toLocaleString('en-US');
  return sign + Math.abs(value).toFixed(2 - exponent);
}

/** "token 3", and "tokens 3 to 5" for more of them. */
export const tokens = (first, last) => (last > first ? `tokens ${first} to ${last}` : `token ${first}`);

// Colours

export function rgbOf(text) {
  const hex = /^#([0-9a-f]{6})/i.exec(text.trim());
  if (hex) return [0, 2, 4].map((i) => parseInt(hex[1].slice(i, i + 2), 16));
  return (text.match(/[\d.]+/g) ?? ['0', '0', '0']).slice(0, 3).map(Number);
}

export function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));
export const css = (rgb) => `rgb(${rgb.join(', ')})`;
/** Black or white, whichever is read better on it: always 4.5:1 or more. */
export const ink = (rgb) => (luminance(rgb) > 0.179 ? '#000' : '#fff');
/** A colour as one number of an ImageData's buffer (little endian: red is the lowest byte). */
export const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** 256 colours from the page's own background (nothing) along the theme's sequential colours (much). */
export function ramp(background, stops) {
  const all = [background, ...stops];
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (all.length - 1);
    const low = Math.min(Math.floor(at), all.length - 2);
    return mix(all[low], all[low + 1], at - low);
  });
}

/** The page's colours, read from an element that has the page's background and text colour. */
export function themeOf(e) {
  const style = getComputedStyle(e);
  const [background, text] = [rgbOf(style.backgroundColor), rgbOf(style.color)];
  const named = (name, other) => {
    const found = style.getPropertyValue(name).trim();
    const alpha = Number(/^rgba\(.*,\s*([\d.]+)\)$/.exec(found)?.[1] ?? 1);
    return found ? mix(background, rgbOf(found), alpha) : other;
  };
  const listed = style.getPropertyValue('--st-chart-sequential-colors').match(/#[0-9a-f]{6}/gi);
  return {
    background,
    text,
    secondary: named('--st-secondary-background-color', mix(background, text, 0.06)),
    border: named('--st-border-color', mix(background, text, 0.2)),
    primary: named('--st-primary-color', text),
    font: style.fontFamily,
    ramp: ramp(background, listed ? listed.map(rgbOf) : [text]),
  };
}

/** A ramp as a CSS gradient. */
export const gradient = (colours) => `linear-gradient(to right, ${[0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => css(colours[i])).join(', ')})`;

/** Stripes for what is left out on purpose, for canvas and CSS alike the same two colours. */
export const stripes = (theme) => [css(theme.secondary), css(mix(theme.secondary, theme.text, 0.25))];

// Elements

export function element(className, role, text) {
  const e = document.createElement('div');
  e.className = className;
  if (role) e.setAttribute('role', role);
  if (text !== undefined) e.textContent = text;
  return e;
}

/** Shows a tooltip beside a rectangle, inside the window. */
export function place(tip, r) {
  tip.hidden = false;
  const t = tip.getBoundingClientRect();
  const below = r.bottom + 8 + t.height <= window.innerHeight;
  const width = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(4, Math.min(r.left, width - t.width - 4))}px`;
  tip.style.top = `${Math.max(4, below ? r.bottom + 8 : r.top - t.height - 8)}px`;
}

/** Where to scroll so that `size` pixels at `start` lie in view behind what sticks to the edge; no further than needed. */
export function scrolled(now, view, start, size, before = 0) {
  if (start < now + before) return Math.max(0, start - before);
  return Math.max(now, start + size - view);
}

export function save(canvas, name) {
  canvas.toBlob((blob) => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
}

/** The text as it fits: the end left out where it must be, never half a character. */
export function fit(text, width, measure) {
  if (measure(text) <= width) return text;
  const letters = Array.from(text);
  let [low, high] = [0, letters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${letters.slice(0, middle).join('')}…`) <= width) low = middle; else high = middle - 1;
  }
  return `${letters.slice(0, low).join('')}…`;
}
