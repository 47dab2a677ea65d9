// What Streamlit calls: one view per grid on the page, redrawn when its bytes change.

const views = new WeakMap(); // one per grid on the page

function sameBytes(a, b) {
  return a && a.length === b.length && a.every((value, i) => value === b[i]);
}

export default function ({ data, parentElement, setStateValue }) {
  const view = views.get(parentElement) ?? new View(parentElement);
  views.set(parentElement, view);
  view.report = (cell) => setStateValue('selected', cell);
  const call = ++view.call;
  if (sameBytes(view.bytes, data)) { // a new theme: the selection and the place stay the user's
    if (view.grid) view.theme();
  } else {
    const { digest, revision, selected, body } = open(data);
    inflate(body).then((bytes) => {
      if (call !== view.call) return; // newer content has arrived meanwhile
      view.bytes = data;
      view.show(readGrid(bytes), selected, revision, digest);
    });
  }
  return () => { view.call = -1; view.end(); views.delete(parentElement); };
}
