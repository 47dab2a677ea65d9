// The elements of the map: labels, and the strip of what is pinned. Tokens are untrusted text: textContent only.

/** A token beside (axis "query") or above ("key") the map. */
export function makeLabel(map, i, axis, marks) {
  const e = document.createElement('button');
  e.type = 'button';
  e.tabIndex = -1; // the keyboard goes through the map: Enter and Shift+Enter
  e.className = ['label', axis, ...marks].join(' ');
  e.dataset.i = i;
  e.dataset.axis = axis;
  e.setAttribute('aria-pressed', String(marks.includes('pinned')));
  e.setAttribute('aria-label', axis === 'query' ? `where ${tokenText(map, i)} looks` : `who looks at ${tokenText(map, i)}`);
  const text = element('token', null, map.tokens[i]);
  text.dir = 'auto';
  e.append(element('number', null, i), text);
  return e;
}

/** The strip beside the map: what is pinned, in numbers. */
export function writeStrip(strip, map, pin, colours) {
  const [heading, list, others] = ['heading', 'list', 'others'].map((name) => strip.querySelector(`.${name}`));
  if (!pin) {
    heading.textContent = 'Click a token at the left to see where it looks, one above the map to see who looks at it.';
    list.replaceChildren();
    others.textContent = '';
    return;
  }
  const found = around(map, pin);
  const token = element('token', null, found.heading[0]);
  heading.replaceChildren(token, ` ${found.heading[1]} (${found.sum}):`);
  list.replaceChildren(...found.listed.map(([i, value]) => {
    const e = document.createElement('li');
    const [q, k] = pin[1] === 'query' ? [pin[0], i] : [i, pin[0]];
    const rgb = colours.ramp[Math.max(0, shade(map, q, k))];
    Object.assign(e.style, { background: css(rgb), color: ink(rgb) });
    const text = element('token', null, map.tokens[i]);
    text.dir = 'auto';
    e.append(element('number', null, i), ' ', text, ' ', element('value', null, digits(value)));
    return e;
  }));
  others.textContent = found.others;
}
