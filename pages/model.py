"""What is loaded, and can we trust it here? Facts, self-checks and capabilities of the open model."""

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.ui.words import show_table
from app.views.model_facts import capability_rows, check_rows, fact_rows

model = current_frame().model
config = model.config
passed = sum(check.passed for check in model.checks)
missing = [name for name, reason in model.capabilities.items() if reason]

st.title("What is loaded, and can we trust it here?")
finding(
    [
        f"{config.name}, {config.n_parameters:,} parameters in {config.n_layers} layers, runs on {config.device} in "
        f"{config.dtype}. ",
        f"{passed} of {len(model.checks)} self-checks passed. ",
        f"All {len(model.capabilities)} things below can be read or changed."
        if not missing
        else f"{len(missing)} of {len(model.capabilities)} capabilities are missing (below).",
    ],
    key="model.finding",
)
st.header("Self-checks", help="Made on a few random tokens when the model was loaded.")
show_table(check_rows(model))
st.header("What it is made of")
show_table(fact_rows(model))
st.header(
    "What can be read and changed",
    help="In Python now; pages for it will follow. Tried when the model was loaded, never assumed from its name.",
)
show_table(capability_rows(model))
st.header("What this does not show")
st.write(
    "The self-checks compare the model with itself on a few tokens: they show that reading and changing it works, "
    "not that its answers are "
    "right. They say nothing about how it was trained or on what."
)
