"""The lens grid as one HTML document: the same script and style, everything inside, opens without a network."""

import base64
import html
from collections.abc import Sequence

from app.components.lens_grid.content import LensPicture
from app.components.lens_grid.lens_grid import HTML, SCRIPT, STYLE, flatten, message
from app.components.lens_grid.payload import pack

# Streamlit's variables as streamlit_config.toml sets them. The policy keeps the file from asking any network.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --st-background-color: #FFFFFF; --st-secondary-background-color: #F4F4F6; --st-text-color: #101317;
  --st-border-color: #C9CBD1; --st-primary-color: #4F46C6; --st-code-font: ui-monospace, "Source Code Pro";
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --st-background-color: #101114; --st-secondary-background-color: #1A1B20; --st-text-color: #E6E6E9;
    --st-border-color: #44464E; --st-primary-color: #7C78F0;
  }}
}}
body {{ margin: 0; padding: 1rem; background: var(--st-background-color); color: var(--st-text-color); \
font-family: system-ui, sans-serif; }}
h1 {{ margin: 0 0 0.5rem; font-size: 1.2rem; }}
p {{ max-width: 60rem; white-space: pre-wrap; overflow-wrap: anywhere; }}
{style}
.box {{ max-height: 80vh; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<div id="grid">{template}</div>
{notes}
</main>
<script type="module">
{script}
const data = Uint8Array.from(atob('{data}'), (c) => c.charCodeAt(0));
const draw = () => component({{ data, parentElement: document.querySelector('#grid'), setStateValue() {{}} }});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
draw();
</script>
</body>
</html>
"""


def standalone_html(picture: LensPicture, *, selected: tuple[int, int] | None = None, notes: Sequence[str] = ()) -> str:
    """One HTML document with the interactive grid, light or dark as the reader's system is.

    Args:
        picture: what is drawn; its label is the document's title.
        selected: as for `lens_grid`.
        notes: paragraphs below the grid (model, prompt, limits), shown literally.

    Raises:
        ValueError: as `lens_grid`.
    """
    data = message(pack(picture), 1, 1, flatten(selected, *picture.shape))
    script = SCRIPT.replace("export default function", "const component = function").replace("export ", "")
    return _PAGE.format(
        title=html.escape(picture.label),
        style=STYLE,
        template=HTML,
        notes="\n".join(f"<p>{html.escape(note)}</p>" for note in notes),
        script=script,
        data=base64.b64encode(data).decode(),
    )
