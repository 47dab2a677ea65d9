"""The picture frame around the pages: configuration check, navigation, model and prompt."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402 (the project's root has to be on the path first)

from app.ui.frame import draw_frame  # noqa: E402

# The groups of the navigation are three things one can do with a model.
PAGES = {
    "Read": [
        st.Page(ROOT / "pages" / "tokens.py", title="Tokens", icon=":material/token:", default=True),
        st.Page(ROOT / "pages" / "logit_lens.py", title="Logit lens", icon=":material/layers:", url_path="logit_lens"),
        st.Page(ROOT / "pages" / "attention.py", title="Attention", icon=":material/visibility:", url_path="attention"),
    ],
    "Change": [
        st.Page(
            ROOT / "pages" / "layer_deletion.py",
            title="Layer deletion",
            icon=":material/layers_clear:",
            url_path="layer_deletion",
        ),
    ],
    "Count": [],
    "": [st.Page(ROOT / "pages" / "model.py", title="Model", icon=":material/deployed_code:", url_path="model")],
}

st.set_page_config(page_title="Streamscope", page_icon=str(ROOT / "app" / "icon.svg"), layout="wide")
if st.get_option("browser.gatherUsageStats") is not False:
    st.error("needs streamlit_config.toml; found Streamlit's defaults; start with `make run` or `python -m app`.")
    st.stop()

st.logo(str(ROOT / "app" / "logo.svg"), icon_image=str(ROOT / "app" / "icon.svg"), size="large")
page = st.navigation(PAGES, position="top")
draw_frame()
page.run()
