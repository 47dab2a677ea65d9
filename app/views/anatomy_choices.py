"""Which configuration is counted, and with what it is compared: the controls of the page "Anatomy"."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from analyses._architecture import Architecture, read_architecture
from analyses._architecture_families import FAMILIES
from analyses._architecture_json import MAX_CHARACTERS
from analyses._architecture_known import known_architectures
from analyses.anatomy import ParameterCount, count_parameters
from analyses.model import ModelConfig
from app.ui.frame import Frame
from app.ui.words import say_error

OPEN, PASTED, NOTHING = "the open model", "my own config", "nothing"
SOURCES = (OPEN, PASTED, *known_architectures())
OTHERS = (NOTHING, *SOURCES)
# What is known of a loaded model, under the names that its family reads.
_FACTS = {
    "num_hidden_layers": "n_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "head_dim": "d_head",
    "intermediate_size": "d_mlp",
    "vocab_size": "d_vocab",
    "max_position_embeddings": "n_ctx",
    "tie_word_embeddings": "tied",
    "hidden_act": "activation",
    "sliding_window": "sliding_window",
}


@dataclass(frozen=True)
class Counted:
    """A configuration with its count."""

    name: str
    config: Mapping[str, Any] | str
    architecture: Architecture
    count: ParameterCount
    published: str = ""  # what its publisher says of its size, and where


def choose(frame: Frame) -> tuple[Counted | None, Counted | None]:
    """The configuration that is counted and the one beside it; None for what cannot be read, with the reason shown."""
    first, second, own = st.columns([2, 2, 1.3], vertical_alignment="bottom")
    with first:
        source = st.selectbox(
            "Configuration",
            SOURCES,
            key="config",
            bind="query-params",
            on_change=_hide,
            help="The open model, a config.json of your own, or a well-known one.",
        )
    with second:
        other = st.selectbox(
            "Compare with", OTHERS, key="beside", bind="query-params", help="A second one, side by side."
        )
    with own, st.popover("Paste or upload", width="stretch"):
        _take_own()
    return _counted(source, frame), None if other == NOTHING else _counted(other, frame)


def _take_own() -> None:
    st.caption(
        f"The config.json of any decoder of a known family, at most {MAX_CHARACTERS // 1000} KB. It is read here and kept for "
        "this session only; the address of the page does not hold it. No weights are needed."
    )
    st.text_area("Paste a config.json", key="anatomy.pasted", height=160, on_change=_from_paste)
    st.file_uploader("or upload one", type="json", key="anatomy.file", on_change=_from_file)


def _hide() -> None:
    """Another configuration is another question."""
    st.session_state["revealed"] = False


def _from_paste() -> None:
    _keep(st.session_state["anatomy.pasted"])


def _from_file() -> None:
    file = st.session_state["anatomy.file"]
    if file is not None:
        _keep(file.getvalue())


def _keep(text: str | bytes) -> None:
    """Keep what can be read, and of what cannot only the reason."""
    _hide()
    st.session_state["config"] = PASTED
    kept, reason = "", ""
    try:
        read_architecture(text)
        kept = text if isinstance(text, str) else text.decode("utf-8")
    except ValueError as error:
        reason = str(error)
    st.session_state["anatomy.text"], st.session_state["anatomy.reason"] = kept, reason


def _counted(source: str, frame: Frame) -> Counted | None:
    try:
        if source == PASTED:
            return _own()
        if source == OPEN:
            return open_model(frame.model.config)
        known = known_architectures()[source]
        architecture = read_architecture(known.config)
        published = f"{known.published} ({known.source})"
        return Counted(source, known.config, architecture, count_parameters(architecture), published)
    except ValueError as error:
        say_error(str(error))
        return None


def _own() -> Counted:
    if reason := st.session_state.get("anatomy.reason"):
        raise ValueError(reason)
    text = st.session_state.get("anatomy.text", "")
    if not text:
        raise ValueError('needs a config.json; found none yet; paste or upload one under "Paste or upload".')
    architecture = read_architecture(text)
    return Counted(PASTED, text, architecture, count_parameters(architecture))


def open_model(model: ModelConfig) -> Counted:
    """The loaded model: by its config.json where that lies in a local folder, else by the facts that are known of it.

    Raises:
        ValueError: a family that is not known, or facts that do not give the number of parameters that were counted.
    """
    config = _local_file(model) or _facts(model)
    architecture = read_architecture(config)
    count = count_parameters(architecture)
    if count.total != model.n_parameters:
        raise ValueError(
            f"needs the config.json of {model.name}; found facts that give {count.total:,} of its {model.n_parameters:,} "
            'parameters, so one switch is not known here; paste the file under "Paste or upload".'
        )
    return Counted(model.name, config, architecture, count, f"{model.n_parameters:,} counted in the loaded tensors")


def _local_file(model: ModelConfig) -> str:
    """A local model's own config.json."""
    file = Path(model.name).expanduser() / "config.json"
    if model.kind != "local" or not file.is_file() or file.stat().st_size > MAX_CHARACTERS:
        return ""
    return file.read_text("utf-8")


def _facts(model: ModelConfig) -> dict[str, Any]:
    """A config with what is known of a loaded model, under the names of its family."""
    family = FAMILIES.get(model.family)
    config: dict[str, Any] = {"model_type": model.family}
    for field, fact in _FACTS.items() if family else ():
        names = family.names.get(field, (field,))
        if field in family.defaults and names:
            config[names[0]] = getattr(model, fact)
    if model.sliding_window and family and "use_sliding_window" in family.defaults:
        config["use_sliding_window"] = True
    return config
