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
        st.Page(ROOT / "pages" / "training.py", title="Training", icon=":material/timeline:", url_path="training"),
    ],
    "Change": [
        st.Page(
            ROOT / "pages" / "layer_deletion.py",
            title="Layer deletion",
            icon=":material/layers_clear:",
            url_path="layer_deletion",
        ),
        st.Page(ROOT / "pages" / "steering.py", title="Steering", icon=":material/explore:", url_path="steering"),
        st.Page(ROOT / "pages" / "generate.py", title="Generate", icon=":material/edit_note:", url_path="generate"),
    ],
    "Count": [
        st.Page(ROOT / "pages" / "anatomy.py", title="Anatomy", icon=":material/account_tree:", url_path="anatomy"),
        st.Page(ROOT / "pages" / "loss.py", title="Loss", icon=":material/trending_down:", url_path="loss"),
        st.Page(ROOT / "pages" / "running.py", title="Running it", icon=":material/speed:", url_path="running"),
    ],
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
