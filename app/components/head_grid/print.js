// The contact sheet as a PNG picture of its own.

/** The whole sheet as a picture with its labels and ranges. */
export function printSheet(sheet) {
  const { places, data, colours, tints, selected } = sheet;
  const [pad, top] = [12, 64];
  const [width, height] = [Math.max(960, places.width + 2 * pad), top + places.height + pad];
  const scale = Math.min(3, 16_000 / width, 16_000 / height, Math.sqrt(48e6 / (width * height)));
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.fillStyle = css(colours.background);
  context.fillRect(0, 0, width, height);
  context.textBaseline = 'middle';
  const write = (text, x, y, room = Infinity) => {
    context.fillStyle = css(colours.text);
    context.fillText(room === Infinity ? text : fit(text, room, (part) => context.measureText(part).width), x, y);
    return context.measureText(text).width + 6;
  };
  context.font = `bold 15px ${colours.font}`;
  write(data.label, pad, 18, width - 2 * pad);
  context.font = `12px ${colours.font}`;
  let x = pad;
  const bar = (what, low, high, inks) => {
    x += write(`${what}:`, x, 42);
    x += write(low, x, 42);
    for (let i = 0; i < 256; i++) {
      context.fillStyle = css(inks[i]);
      context.fillRect(x + i / 3, 35, 1, 14);
    }
    x += 92;
    x += write(high, x, 42) + 12;
  };
  const [low, high, what] = range(data);
  bar(what, low, high, colours.ramp);
  if (data.tint) bar(`upper half, ${data.tint_label}`, ...data.tint_range, tints);
  context.font = `10px ${colours.font}`;
  const pixels = Math.max(1, Math.floor(places.cell * scale));
  for (let i = 0; i < data.heads.length; i++) {
    const [left, above] = [pad + places.x(i), top + places.y(i)];
    context.putImageData(
      new ImageData(new Uint8ClampedArray(sheet.picture(i, pixels).buffer), pixels, pixels),
      Math.round(left * scale), Math.round(above * scale),
    );
    const marked = data.ticked.includes(i);
    context.strokeStyle = i === selected ? css(colours.primary) : marked ? MARK : css(colours.border);
    context.lineWidth = i === selected || marked ? 2 : 1;
    context.strokeRect(left, above, places.cell, places.cell);
    if (!data.by_layer) write(nameOf(data.heads[i]), left, above - 7, places.cell);
    else if (i % data.columns === 0) write(`L${data.heads[i][0]}`, left - ROWNAME + 2, above + places.cell / 2);
    if (data.by_layer && Math.floor(i / data.columns) % places.each === 0) write(`H${data.heads[i][1]}`, left, top + 8);
  }
  return canvas;
}
