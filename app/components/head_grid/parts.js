// The elements of the contact sheet.

/** One line per layer (or per so many heads), one cell per head in it. */
export function buildLines(data) {
  const [lines, elements] = [[], []];
  for (let first = 0; first < data.heads.length; first += data.columns) {
    const line = element('line', 'row');
    if (data.by_layer) {
      const name = element('rowname', 'rowheader', data.heads[first][0]);
      name.setAttribute('aria-label', `layer ${data.heads[first][0]}`);
      line.append(name);
    }
    for (let i = first; i < Math.min(data.heads.length, first + data.columns); i++) {
      const e = element(data.ticked.includes(i) ? 'cell ticked' : 'cell', 'gridcell');
      e.dataset.i = i;
      e.tabIndex = -1;
      e.setAttribute('aria-selected', 'false');
      e.setAttribute('aria-label', ariaLabel(data, i));
      if (!data.by_layer) e.append(element('name', null, nameOf(data.heads[i])));
      elements.push(e);
      line.append(e);
    }
    lines.push(line);
  }
  return { lines, elements };
}

/** The heads' numbers above every panel. */
export function makeHeaders(places, data) {
  const all = [];
  for (let panel = 0; panel < places.panels; panel++) {
    const x = places.x(panel * places.each * data.columns) - places.left;
    const make = (text, left, width, label) => {
      const e = element('column', 'columnheader', text);
      Object.assign(e.style, { left: `${x + left}px`, width: `${width}px` });
      e.setAttribute('aria-label', label);
      if (panel) e.setAttribute('aria-hidden', 'true'); // the same heads again
      all.push(e);
    };
    make('layer', 0, ROWNAME, 'layer');
    for (let c = 0; c < data.columns; c++) {
      const head = data.heads[c][1];
      const text = places.cell < 32 ? head : `H${head}`;
      make(text, places.left + c * (places.cell + GAP), places.cell, `head ${head}`);
    }
  }
  return all;
}

/** What the colours and the greys mean, and whether a head is marked. */
export function writeLegend(legend, data) {
  const find = (name) => legend.querySelector(`.${name}`);
  const say = (name, text) => { find(name).textContent = text; };
  const [low, high, what] = range(data);
  const [from, to] = data.tint_range;
  say('what', `${what}:`);
  say('low', low);
  say('high', high);
  say('tintwhat', `upper half, ${data.tint_label}:`);
  say('tintlow', from);
  say('tinthigh', to);
  find('bar').setAttribute('aria-label', `colours of ${what} from ${low} to ${high}`);
  find('tintbar').setAttribute('aria-label', `greys of ${data.tint_label} from ${from} to ${to}`);
  find('tinted').hidden = !data.tint;
  find('marked').hidden = !data.ticked.length;
  legend.hidden = false;
}

/** The tooltip of a head: its name, its numbers, and `more` lines below. */
export function explanation(data, i, more) {
  const pair = ([name, value]) => {
    const line = element('pair');
    line.append(element('', null, name), ' ', element('value', null, value), ' ');
    return line;
  };
  const [layer, head] = data.heads[i];
  const all = [element('title', null, `${nameOf([layer, head])} `), element('', null, `layer ${layer}, head ${head} `)];
  if (data.ticked.includes(i)) all.push(element('', null, 'marked for ablation '));
  const [scores, weights] = [element('block'), element('block')];
  scores.append(...describe(data, i).map(pair));
  weights.append(...more.map((text) => element('', null, `${text} `)));
  return [...all, scores, weights];
}
