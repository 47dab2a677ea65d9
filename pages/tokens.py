"""What does the model actually see? The prompt as tokens, and what comes next after any of them."""

import streamlit as st

from app.components.finding import Piece, finding
from app.components.token_strip import token_strip
from app.figures.next_token import next_token_figure
from app.ui.export import python_code, take_with_you
from app.ui.frame import current_frame
from app.ui.run import run
from app.ui.token_text import percent
from app.views.bos import draw_bos
from app.views.languages import draw_languages
from app.views.next_token import draw_next_token, in_bits, labels_of
from app.views.splitting import draw_numbers, draw_words
from app.views.token_notes import draw_token_notes

frame = current_frame()
model, tokens = frame.model, frame.tokens
last = len(tokens.ids) - 1

st.title("What does the model actually see?")
answer = st.container()

# A click on the strip, which is drawn further down, arrives here in the next run.
if "tokens.clicked" in st.session_state:
    st.session_state["after"] = st.session_state.pop("tokens.clicked")
if st.session_state.get("after") is not None and st.session_state["after"] > last:
    st.session_state["after"] = None

controls = st.columns([1, 1, 2], vertical_alignment="bottom")
with controls[0]:
    after = st.number_input(
        "Predict after token",
        min_value=0,
        max_value=max(last, 0),
        value=None,
        key="after",
        bind="query-params",
        placeholder="the last",
        help="Counted from zero. A click on a token below does the same.",
    )
with controls[1]:
    top_k = st.slider("Tokens to list", 5, 30, 10, key="list", bind="query-params")
position = last if after is None else after

if not tokens.ids:
    with answer:
        finding(
            [
                "An empty prompt has no tokens. Write one on the left, or put a BOS token in front to see what the "
                "model says first."
            ],
            key="finding",
        )
else:
    clicked = token_strip(
        tokens.pieces,
        tokens.ids,
        tokens.starts,
        tokens.ends,
        tokens.special,
        selected=position,
        key="tokens.strip",
        label="Tokens of the prompt",
    )
    if clicked is not None and clicked != position:
        st.session_state["tokens.clicked"] = clicked
        st.rerun()
    draw_token_notes(frame)

    n_characters = len(tokens.text)
    told: list[str | Piece] = [
        f"Your {len(frame.prompt):,} characters became {len(tokens.ids):,} token{'s' if last else ''}",
        f", with the chat template around them ({n_characters:,} characters)." if tokens.chat else "",
        f" ({len(tokens.ids) / n_characters:.2f} per character)."
        if n_characters and not tokens.chat
        else "."
        if not tokens.chat
        else "",
    ]
    outcome = run(
        "next_token", tokens.ids, slot="tokens.next", model=model.config.fingerprint, position=position, top_k=top_k
    )
    if outcome is not None:
        result = outcome.result
        if not outcome.stale:
            told += [
                " After ",
                Piece(tokens.pieces[position]),
                f" (token {position}) the model assigns ",
                Piece(model.vocabulary.piece(int(result.ids[0]))),
                f" {percent(float(result.probability[0]))}; the whole distribution carries "
                f"{in_bits(result.entropy_nats):.2f} bits.",
            ]
        st.subheader(
            "What comes next", help="The model's only output: a probability for every token of its vocabulary."
        )
        draw_next_token(model, result)
    with answer:
        finding(told, key="finding")

    st.subheader("Look closer")
    SECTIONS = {
        "Languages": lambda: draw_languages(frame),
        "Numbers": draw_numbers,
        "Words and letters": draw_words,
        "Token in front (BOS)": lambda: draw_bos(frame),
    }
    section = st.segmented_control(
        "Section",
        list(SECTIONS),
        default="Languages",
        required=True,
        key="section",
        bind="query-params",
        label_visibility="collapsed",
    )
    SECTIONS[section]()

    st.subheader("What this does not show")
    st.write(
        "Counts belong to this tokenizer, and probabilities to this model, this exact beginning and this number "
        "format: a BOS token or "
        "a trailing space changes them. A probability says what the model assigns to the next token, not what is "
        "true, and not why. "
        "Byte-pair encoding: Sennrich, Haddow and Birch 2016; over bytes: Radford et al. 2019."
    )
    if outcome is not None and not outcome.stale:
        take_with_you(
            frame,
            tables={"tokens": tokens.to_frame(), "next-tokens": result.to_frame(model.vocabulary)},
            figures={
                "next-tokens": lambda: next_token_figure(
                    labels_of(model, result.ids), result.probability, ids=result.ids.tolist()
                )
            },
            code=python_code(
                frame,
                "run_next_token",
                f"after = run_next_token(model, text.ids, position={position}, top_k={top_k})\n"
                "for id, probability in zip(after.ids, after.probability):\n"
                "    print(repr(model.tokenizer.decode(id)), probability)",
            ),
        )
