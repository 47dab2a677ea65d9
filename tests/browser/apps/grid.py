"""One lens grid; the address chooses it: `?case=nasty`, `?case=128`, `?case=600`, `?case=1`, `?case=deep`."""

import streamlit as st

from app.components.lens_grid import LensPicture, lens_grid
from tests.app.lens_example import lens, nasty

case = st.session_state.get("case") or st.query_params.get("case", "128")
if case == "nasty":
    made = nasty()
elif case == "deep":  # every second of 60 layers
    made = lens(n_rows=31, n_columns=16)
    made |= {
        "rows": ["embedding", *(f"after {2 * i + 1}" for i in range(30))],
        "hidden_after": dict.fromkeys(range(30), 1),
    }
else:
    made = lens(n_columns=int(case))
made["measure"] = st.query_params.get("measure", made["measure"])


def choose(cell: tuple[int, int] | None) -> None:
    """What another picture on the page does."""
    st.session_state["mine"] = cell


st.button("first", on_click=choose, args=((1, 0),))
st.button("rerun")
if st.toggle("other measure", key="other"):
    made |= {"shade": made["values"]["entropy"] / 15, "legend": ("0 bits", "15 bits"), "measure": "entropy"}
st.session_state["mine"] = lens_grid(LensPicture(**made), selected=st.session_state.get("mine"), key="grid")
st.text(f"pinned={st.session_state.get('mine')}")
