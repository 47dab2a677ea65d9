export default function ({ data, parentElement }) {
  const line = parentElement.querySelector(".finding");
  line.replaceChildren(
    ...data.parts.map((part) => {
      if (part.text !== undefined) return document.createTextNode(part.text);
      const token = document.createElement("code");
      token.textContent = part.token;
      return token;
    }),
  );
}
