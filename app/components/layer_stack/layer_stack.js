// The stack of layers: draws what layer_stack.py sends and reports which addends are off.

const WAIT = 350; // milliseconds without a click, then the set is sent
const PARTS = ['attention', 'mlp'];
const SHOWN = { attention: 'attention', mlp: 'MLP' };

/** The set after a click on a part, or on a layer: a layer goes off whole, and comes back when both are off. */
export function toggled(off, layer, part) {
  const next = new Set(off);
  const names = part ? [`${layer}.${part}`] : PARTS.map((each) => `${layer}.${each}`);
  const remove = names.every((name) => next.has(name));
  for (const name of names) if (remove) next.delete(name); else next.add(name);
  return next;
}

const states = new WeakMap(); // one per stack on the page

function element(tag, className, text) {
  const e = document.createElement(tag);
  e.className = className;
  e.textContent = text;
  return e;
}

function button(className, text, layer, part) {
  const b = element('button', className, text);
  b.type = 'button';
  b.dataset.layer = layer;
  if (part) b.dataset.part = part;
  return b;
}

export default function ({ data, parentElement, setStateValue }) {
  const stack = parentElement.querySelector('.stack');
  const given = JSON.parse(data);
  const s = states.get(parentElement) ?? { drawn: '', timer: 0 };
  states.set(parentElement, s);
  s.send = setStateValue;
  if (!s.timer) s.off = new Set(given.off); // clicks that wait are newer than what Python knows

  const mark = () => {
    for (const b of stack.querySelectorAll('button')) {
      const [layer, part] = [b.dataset.layer, b.dataset.part];
      const names = part ? [`${layer}.${part}`] : PARTS.map((each) => `${layer}.${each}`);
      const gone = names.every((name) => s.off.has(name));
      b.setAttribute('aria-pressed', String(!gone));
      b.disabled = given.disabled;
    }
  };
  const drawn = JSON.stringify([given.n, given.notes, given.label]);
  if (drawn !== s.drawn) {
    s.drawn = drawn;
    stack.replaceChildren(...['layer', 'attention', 'MLP', ''].map((text) => element('span', 'head', text)));
    stack.setAttribute('aria-label', given.label);
    for (let layer = 0; layer < given.n; layer++) {
      const whole = button('layer', String(layer), layer);
      whole.setAttribute('aria-label', `layer ${layer}, in the sum`);
      stack.append(whole);
      for (const part of PARTS) {
        const b = button(part, SHOWN[part], layer, part);
        b.setAttribute('aria-label', `${SHOWN[part]} of layer ${layer}, in the sum`);
        stack.append(b);
      }
      stack.append(element('span', 'note', given.notes[layer] ?? ''));
    }
  }
  mark();
  stack.onclick = (event) => {
    const b = event.target.closest?.('button');
    if (!b || given.disabled) return;
    s.off = toggled(s.off, +b.dataset.layer, b.dataset.part);
    mark();
    clearTimeout(s.timer);
    s.timer = setTimeout(() => {
      s.timer = 0;
      s.send('off', { names: [...s.off], time: Date.now() });
    }, WAIT);
  };
  return () => { clearTimeout(s.timer); states.delete(parentElement); };
}
