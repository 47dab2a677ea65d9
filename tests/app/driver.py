"""Driving the app under AppTest: open it, write into it, read what it shows."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

from app.ui.token_text import visible
from tests.app.stub import PIECES, next_token

ROOT = Path(__file__).resolve().parents[2]


def opened(**address):
    """The app as somebody sees it who opens this address."""
    app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=60)
    for name, value in address.items():
        app.query_params[name] = value
    return fine(app.run())


def fine(app):
    assert not app.exception, app.exception[0].message
    return app


def component(app, key):
    return next((c.proto for c in app.get("bidi_component") if c.proto.id.endswith(f"-{key}")), None)


def strip(app, key="tokens.strip"):
    return json.loads(zlib.decompress(component(app, key).bytes))


def sentence(app, key="finding"):
    parts = json.loads(component(app, key).json)["parts"]
    return "".join(part["text"] if "text" in part else f"`{part['token']}`" for part in parts)


def best(ids, position=-1):
    """The stub's most probable next token, as the page writes it."""
    return visible(PIECES[int(next_token(ids, position).ids[0])])


def bars(app, key="tokens.next"):
    """Lengths of the bars of a figure, one array per trace."""
    chart = next(chart.proto for chart in app.get("plotly_chart") if chart.proto.id.endswith(f"-{key}"))
    traces = json.loads(chart.spec)["data"]
    return [np.frombuffer(base64.b64decode(t["x"]["bdata"]), dtype=t["x"]["dtype"]) for t in traces if "x" in t]


def write(app, prompt):
    app.text_area(key="prompt").set_value(prompt)
    app.button(key="frame.show").click()
    return fine(app.run())


def submit(app, form):
    """Press the button of the form in which the input with this label stands."""
    inputs = [*app.text_area, *app.selectbox]
    form_id = next(each.form_id for each in inputs if each.label == form)
    next(button for button in app.button if button.form_id == form_id).click()
    return fine(app.run())


def click(app, position, key="tokens.strip"):
    app.session_state[key] = {"selected": position}
    return fine(app.run())


def said(app):
    """Every error, warning, remark and caption, with Markdown's escapes taken back."""
    elements = [*app.error, *app.warning, *app.info, *app.caption]
    return re.sub(r"\\(.)", r"\1", "\n".join(element.value for element in elements)).replace("\u2060", "")
