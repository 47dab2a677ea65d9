// The map of a head as a PNG picture of its own.

/** The whole map as a picture with its labels and ranges. */
export function printMap({ map, colours, pin, cell: shown }) {
  const cell = Math.max(shown, Math.min(24, Math.floor(1600 / map.n)), 2);
  const [pad, head, left, above] = [12, 64, 130, 110];
  const side = map.n * cell;
  const [width, height] = [Math.max(520, left + side + pad), head + above + side + pad];
  const scale = Math.min(2, 16_000 / width, 16_000 / height, Math.sqrt(48e6 / (width * height)));
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.fillStyle = css(colours.background);
  context.fillRect(0, 0, width, height);
  context.textBaseline = 'middle';
  const write = (text, x, y, room) => {
    const shown = fit(text, room, (part) => context.measureText(part).width);
    context.fillStyle = css(colours.text);
    context.fillText(shown, x, y);
    return context.measureText(shown).width + 6;
  };
  context.font = `bold 15px ${colours.font}`;
  write(map.label, pad, 18, width - 2 * pad);
  context.font = `12px ${colours.font}`;
  const [low, high, note] = range(map);
  let x = pad + write(`${map.name}, ${map.measure}: ${low}`, pad, 44, width / 2);
  for (let i = 0; i < 256; i++) {
    context.fillStyle = css(colours.ramp[i]);
    context.fillRect(x + i / 3, 37, 1, 14);
  }
  x += 92;
  x += write(high, x, 44, 80);
  write(note, x + 6, 44, Math.max(0, width - x - pad));
  context.font = `10px ${colours.font}`;
  const always = pin ? [pin[0]] : [];
  for (const i of labelled(0, map.n, cell, always)) {
    const at = middle(i, cell);
    write(`${i} ${map.tokens[i]}`, pad, head + above + at, left - pad - 4);
    context.save();
    context.translate(left + at, head + above - 4);
    context.rotate(-Math.PI / 2);
    write(`${i} ${map.tokens[i]}`, 0, 0, above - 8);
    context.restore();
  }
  const empty = css(mix(colours.secondary, colours.text, 0.08));
  for (let q = 0; q < map.n; q++) {
    for (let k = 0; k < map.n; k++) {
      const v = shade(map, q, k);
      context.fillStyle = v >= 0 ? css(colours.ramp[v]) : empty;
      context.fillRect(left + k * cell, head + above + q * cell, cell - (cell >= 10), cell - (cell >= 10));
    }
  }
  return canvas;
}
