// Colours, and the grid as a PNG picture. One hue (ColorBrewer's Blues, the app's sequential colours), light is little.

const RAMP = [
  [247, 251, 255], [227, 238, 249], [207, 225, 242], [176, 210, 232], [135, 189, 221],
  [91, 163, 207], [55, 135, 192], [27, 106, 175], [8, 77, 150], [8, 48, 107],
];
export const TARGET = '#009E73';

export function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** [background, text] for every shade 0 to 254: of black and white the one that is read better, always 4.5:1 or more. */
export function palette(dark) {
  return Array.from({ length: 255 }, (_, shade) => {
    const at = ((dark ? 254 - shade : shade) / 254) * (RAMP.length - 1);
    const low = Math.min(Math.floor(at), RAMP.length - 2);
    const rgb = RAMP[low].map((v, i) => Math.round(v + (RAMP[low + 1][i] - v) * (at - low)));
    return [`rgb(${rgb.join(', ')})`, luminance(rgb) > 0.179 ? '#000' : '#fff'];
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

/** How a grid fits a picture: a long text is cut into panels below each other, and no side gets too long for a canvas. */
export function pictureSize(columns, panelHeight, { head, cell, top }) {
  const most = 16_000; // pixels; browsers refuse longer sides
  const area = 32e6; // pixels; 4 bytes each while it is drawn
  const wide = Math.max(2400, Math.sqrt(columns * cell * panelHeight));
  const panels = Math.ceil(columns / Math.max(1, Math.floor((wide - head) / cell)));
  const perPanel = Math.ceil(columns / panels); // equal parts
  const width = Math.max(head + perPanel * cell, 480);
  const height = top + panels * panelHeight;
  const scale = Math.min(2, most / width, most / height, Math.sqrt(area / (width * height)));
  return { panels, perPanel, width, height, scale };
}

const DRAWN = { cell: 84, row: 24, header: 42, band: 18, top: 76, pad: 12 }; // pixels at scale 1

/** Draws texts that fit their width, and frames around cells; `colours` are the page's. */
function pen(context, colours) {
  const known = new Map();
  return {
    context,
    colours,
    write(text, x, y, width, colour = colours.text) {
      const name = `${width} ${context.font} ${text}`;
      if (!known.has(name)) known.set(name, fit(text, width, (part) => context.measureText(part).width));
      context.fillStyle = colour;
      context.fillText(known.get(name), x, y);
    },
    fill(x, y, width, height, colour) {
      context.fillStyle = colour;
      context.fillRect(x, y, width, height);
    },
    frame(x, y, width, height, colour, thick) { // a ring of the page's colour inside keeps it visible on every shade
      for (const [ring, inset, line] of [[colours.background, thick, 1], [colour, 0, thick]]) {
        context.strokeStyle = ring;
        context.lineWidth = line;
        const edge = inset + line / 2;
        context.strokeRect(x + edge, y + edge, width - 2 * edge, height - 2 * edge);
      }
    },
  };
}

function drawLegend(p, grid, width) {
  const { pad } = DRAWN;
  let x = pad;
  const say = (text) => { p.write(text, x, 52, width / 2); x += p.context.measureText(text).width + 8; };
  if (grid.measure) say(`${grid.measure}:`);
  say(grid.legend[0]);
  p.colours.shades.forEach(([shade], i) => p.fill(x + (i * 160) / 255, 44, 160 / 255 + 1, 16, shade));
  x += 168;
  say(grid.legend[1]);
  if (grid.target === null) return;
  p.frame(x + 12, 44, 16, 16, TARGET, 2);
  x += 36;
  say(`reads as ${grid.target}`);
}

/** The columns from `first` to before `last`, all rows of them, from `y` down. */
function drawPanel(p, grid, first, last, y, head, selected) {
  const { cell, row, header, band, pad } = DRAWN;
  for (let c = first; c < last; c++) {
    const left = head + (c - first) * cell;
    p.write(String(grid.positions[c]), left + 4, y + 11, cell - 8);
    p.write(grid.columns[c], left + 4, y + 29, cell - 8);
  }
  y += header;
  for (const line of lines(grid)) {
    if (line.hidden) {
      p.write(`⋮ ${bandText(line.hidden)}`, pad, y + band / 2, head + cell);
      y += band;
      continue;
    }
    p.write(grid.rows[line.row], pad, y + row / 2, head - pad - 4);
    for (let c = first; c < last; c++) {
      const at = line.row * grid.columns.length + c;
      const left = head + (c - first) * cell;
      const [shade, text] = p.colours.shades[grid.shade[at]] ?? [p.colours.background, p.colours.text];
      p.fill(left, y, cell - 1, row - 1, shade);
      if (isTarget(grid, at)) p.frame(left, y, cell - 1, row - 1, TARGET, 2);
      if (at === selected) p.frame(left, y, cell - 1, row - 1, p.colours.text, 3);
      p.write(tokenAt(grid, at), left + 5, y + row / 2, cell - 10, text);
    }
    y += row;
  }
}

/** A canvas with labels, colour bar and every cell. `colours`: background, text and `shades` (a palette). */
export function drawPicture(grid, colours, font, selected) {
  const { row, header, band, top, pad } = DRAWN;
  const context = document.createElement('canvas').getContext('2d');
  context.font = `13px ${font}`;
  const head = Math.ceil(Math.max(56, ...grid.rows.map((name) => context.measureText(name).width))) + 2 * pad;
  const panelHeight = header + lines(grid).reduce((sum, line) => sum + (line.hidden ? band : row), 0) + pad;
  const n = grid.columns.length;
  const size = pictureSize(n, panelHeight, { head, cell: DRAWN.cell, top });
  [context.canvas.width, context.canvas.height] = [Math.ceil(size.width * size.scale), Math.ceil(size.height * size.scale)];
  context.scale(size.scale, size.scale);
  context.textBaseline = 'middle';
  const p = pen(context, colours);
  p.fill(0, 0, size.width, size.height, colours.background);
  context.font = `bold 16px ${font}`;
  p.write(grid.label, pad, 20, size.width - 2 * pad);
  context.font = `13px ${font}`;
  drawLegend(p, grid, size.width);
  for (let panel = 0; panel < size.panels; panel++) {
    const first = panel * size.perPanel;
    drawPanel(p, grid, first, Math.min(n, first + size.perPanel), top + panel * panelHeight, head, selected);
  }
  return context.canvas;
}
