// What lens_grid.js is put together from: which columns are drawn, where keys and scrolling lead, the tooltip's lines.

const OVERSCAN = 6; // columns drawn beyond each edge

/** First column drawn, and the one after the last; in steps of four, so that few scroll events draw anything. */
export function visibleColumns(left, width, cell, n) {
  const from = Math.max(0, Math.floor(left / cell) - OVERSCAN);
  const to = Math.min(n, Math.ceil((left + width) / cell) + OVERSCAN);
  return [from - (from % 4), Math.min(n, to + ((4 - (to % 4)) % 4))];
}

/** Where to scroll so that `size` pixels at `start` lie between what sticks to both edges; no further than needed. */
export function scrolled(now, view, start, size, before = 0, after = 0) {
  if (start < now + before) return Math.max(0, start - before);
  return Math.max(now, start + size + after - view);
}

/** The cell a key leads to: arrows, Home and End in a row (with Ctrl: in the grid), PageUp and PageDown by `page` rows. */
export function move(key, cell, rows, columns, page, ctrl = false) {
  const [row, column] = [Math.floor(cell / columns), cell % columns];
  const at = (r, c) => Math.max(0, Math.min(rows - 1, r)) * columns + Math.max(0, Math.min(columns - 1, c));
  if (key === 'Home') return at(ctrl ? 0 : row, 0);
  if (key === 'End') return at(ctrl ? rows - 1 : row, columns - 1);
  if (ctrl) return null;
  const step = {
    ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [page, 0], PageUp: [-page, 0],
  }[key];
  return step ? at(row + step[0], column + step[1]) : null;
}

function element(className, role, text) {
  const e = document.createElement('div');
  e.className = className;
  if (role) e.setAttribute('role', role);
  if (text !== undefined) e.textContent = text;
  return e;
}

/** A line and the token below it; the token's direction is its own. */
function tokenLines(where, token) {
  const all = [element('where', null, where), element('token', null, `${token} `)];
  all[1].dir = 'auto';
  return all;
}

/** The lines of the tooltip of a cell; the blanks keep them apart for a screen reader. */
function explanation(grid, cell) {
  const said = describe(grid, cell);
  const block = (pairs) => {
    const e = element('block');
    for (const [name, value] of pairs) {
      const line = element('pair');
      const token = element('token', null, name);
      token.dir = 'auto';
      line.append(token, ' ', element('value', null, value), ' ');
      e.append(line);
    }
    return e;
  };
  const all = tokenLines(`${said.where} · ${said.position} `, said.token);
  if (said.target !== null) all.push(element('note', null, `reads as ${said.target}, the target `));
  return [...all, block(said.top), block(said.values)];
}
