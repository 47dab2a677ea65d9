// Keeps the pictures' bytes for the sheet, which is another component: sorting, marking or opening heads then sends only
// the small one again. The two meet under a name, because each of them is a module of its own.

export default function ({ data, parentElement }) {
  const kept = (globalThis.streamscopeHeads ??= new Map());
  const [head, body] = open(data);
  parentElement.streamscopeName = head.name;
  if (kept.get(head.name)?.digest !== head.digest) {
    kept.set(head.name, { digest: head.digest, bytes: null });
    inflate(body).then((bytes) => {
      const now = kept.get(head.name);
      if (now?.digest !== head.digest) return; // newer pictures have arrived meanwhile
      now.bytes = bytes;
      dispatchEvent(new CustomEvent('streamscope-heads', { detail: head.name }));
    });
  }
  return () => kept.delete(parentElement.streamscopeName);
}
