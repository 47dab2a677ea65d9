"""The page "Anatomy" without a model: the frame gives it SmolLM2-135M's facts and the text in `?prompt=`."""

import runpy
from pathlib import Path

import streamlit as st

from app.ui.frame import Frame
from tests.app.stub import model_info, tokenize

SMOL = dict(n_layers=30, n_heads=9, n_kv_heads=3, d_model=576, d_head=64, d_mlp=1536, d_vocab=49152, n_ctx=8192)

st.set_page_config(layout="wide")
prompt = st.query_params.get("prompt", "The capital of France is")
model = model_info("smollm2-135m-instruct", n_parameters=134_515_008, **SMOL)
options = {"bos": "default", "chat": False, "plain": False, "keep": None}
st.session_state["frame"] = Frame(model, prompt, tokenize(prompt, **options), **options)
runpy.run_path(str(Path(__file__).resolve().parents[3] / "pages" / "anatomy.py"))
