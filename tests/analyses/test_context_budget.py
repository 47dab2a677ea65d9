"""What fits into a window, by hand; and that what fell out is gone, against plain transformers."""

import numpy as np
import pytest

from analyses.chat_marks import ROLES, find_marks, run_chat_marks
from analyses.context_budget import plan_window, run_context_budget
from tests.tiny import PROMPT
from tests.toy_tokenizers import CHAT_TEMPLATE, byte_level

YES, NO = (21, 22, 23), (24, 25, 26, 27)
TALK = [["instruction", YES], ["document", (31, 32, 33, 34)], ["turn 1", (41, 42)]]
QUESTION = PROMPT[:5]


@pytest.mark.parametrize(
    ("sizes", "room", "policy", "kept"),
    [
        ([3, 4, 2, 5], 14, "oldest first", (3, 4, 2, 5)),
        ([3, 4, 2, 5], 13, "oldest first", (0, 4, 2, 5)),
        ([3, 4, 2, 5], 10, "oldest first", (0, 0, 2, 5)),
        ([3, 4, 2, 5], 13, "keep the instruction", (3, 0, 2, 5)),
        ([3, 4, 2, 5], 9, "keep the instruction", (3, 0, 0, 5)),
        ([3, 4, 2, 5], 7, "keep the instruction", (0, 0, 2, 5)),
        ([1, 9, 1, 5], 8, "oldest first", (0, 0, 1, 5)),  # no hole: what is older than a part that went goes too
        ([3, 4, 2, 5], 3, "oldest first", (0, 0, 0, 3)),
        ([5], 5, "keep the instruction", (5,)),
    ],
)
def test_what_falls_out(sizes, room, policy, kept):
    assert plan_window(sizes, room, policy=policy) == kept


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([], 5, "oldest first"), "needs a part and room"),
        (([3], 0, "oldest first"), "needs a part and room"),
        (([3], 5, "newest first"), "needs one of oldest first, keep the instruction; found 'newest first'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(arguments, sentence):
    sizes, room, policy = arguments
    with pytest.raises(ValueError, match=sentence):
        plan_window(sizes, room, policy=policy)


def budget(model, window, policy="oldest first", answer=4):
    return run_context_budget(model, QUESTION, before=TALK, other=NO, window=window, answer=answer, policy=policy)


def plain_logits(pair, ids):
    import torch

    with torch.inference_mode():
        return pair.plain(torch.tensor([ids])).logits[0, -1].double().numpy()


def test_an_instruction_counts_while_it_is_inside_and_is_gone_when_it_is_not(tiny):
    pair = tiny("llama")
    inside = budget(pair.model, 19)  # 3 + 4 + 2 + 5 tokens and 4 free are 18; the other instruction has 4
    assert inside.n_kept.tolist() == [3, 4, 2, 5] and not inside.same_ids
    first, second = (31, 32, 33, 34, 41, 42, *QUESTION), (41, 42, *QUESTION)
    assert inside.ids.tolist() == [*YES, *first] and inside.other_ids.tolist() == [*NO, *first]
    apart = plain_logits(pair, [*YES, *first]) - plain_logits(pair, [*NO, *first])
    assert inside.max_logit_difference == pytest.approx(np.abs(apart).max(), abs=1e-4)
    assert inside.max_logit_difference > 0.01 and inside.kl_nats > 0
    outside = budget(pair.model, 17)
    assert outside.n_kept.tolist() == [0, 4, 2, 5] and outside.same_ids
    assert outside.ids.tolist() == outside.other_ids.tolist() == list(first)
    assert outside.max_logit_difference == 0 and outside.kl_nats == 0
    assert outside.top_ids.tolist() == outside.other_top_ids.tolist()
    logits = plain_logits(pair, first)
    assert outside.top_ids.tolist() == np.argsort(-logits)[:5].tolist()
    assert outside.top_probability[0] == pytest.approx(np.exp(logits.max()) / np.exp(logits).sum(), abs=1e-5)
    kept = budget(pair.model, 15, "keep the instruction")
    assert kept.other_n_kept.tolist() == [4, 0, 2, 5] and kept.other_n_tokens == 4
    assert kept.n_kept.tolist() == [3, 0, 2, 5] and kept.max_logit_difference > 0.01
    assert kept.ids.tolist() == [*YES, *second]


def test_a_longer_instruction_falls_out_where_the_other_stays(tiny):
    """Room for 14 tokens: the parts take 3 + 4 + 2 + 5 with one instruction, and 4 + 4 + 2 + 5 with the other."""
    pair = tiny("llama")
    found = budget(pair.model, 18)
    rest = (31, 32, 33, 34, 41, 42, *QUESTION)
    assert (found.n_kept.tolist(), found.other_n_kept.tolist()) == ([3, 4, 2, 5], [0, 4, 2, 5])
    assert found.ids.tolist() == [*YES, *rest] and found.other_ids.tolist() == list(rest)
    apart = plain_logits(pair, [*YES, *rest]) - plain_logits(pair, rest)
    assert found.max_logit_difference == pytest.approx(np.abs(apart).max(), abs=1e-4)


@pytest.mark.parametrize("window", range(6, 24))
@pytest.mark.parametrize("policy", ["oldest first", "keep the instruction"])
def test_what_is_kept_is_what_is_read_and_leaves_room_for_the_answer(tiny, window, policy):
    found = budget(tiny("gpt2").model, window, policy)
    assert found.n_kept.sum() == len(found.ids) <= window - 4
    assert len(found.other_ids) <= window - 4
    assert found.same_ids == (found.n_kept[0] == 0 and len(found.ids) == len(found.other_ids))
    assert (found.max_logit_difference == 0) == found.same_ids


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"window": 65}, "inside a window of at most 64; found 4 and 65"),
        ({"window": 4}, "found 4 and 4"),
        ({"answer": 0}, "needs an answer of at least 1 token"),
        ({"before": []}, "needs an instruction before the question"),
        ({"before": [["a", (300,)]]}, "needs ids from 0 to 299; found 300"),
        ({"policy": "none"}, "needs one of oldest first"),
    ],
)
def test_refusals(tiny, params, sentence):
    common = {"before": TALK, "other": NO, "window": 20, "answer": 4}
    with pytest.raises(ValueError, match=sentence):
        run_context_budget(tiny("llama").model, QUESTION, **common | params)


TALKED = [("system", "Say no."), ("user", "Is it?"), ("assistant", "No."), ("user", "Really?")]


def joined(marks, messages):
    """Messages between their marks, and the mark of the answer."""
    rows = [marks.opens[ROLES.index(role)] + text + marks.closes[ROLES.index(role)] for role, text in messages]
    return "".join(rows) + marks.header


def test_marks_around_every_message_are_what_the_template_renders(smol_tokenizer):
    messages = [{"role": role, "content": text} for role, text in TALKED]
    for tokenizer in (smol_tokenizer, byte_level(chat_template=CHAT_TEMPLATE)):
        marks = find_marks(tokenizer)
        whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert marks.reason == "" and joined(marks, TALKED) == whole


def test_without_a_usable_template_the_reason_is_said(tiny, smol_tokenizer):
    assert run_chat_marks(tiny("llama").model).reason == "this model has no chat template"
    for template in (
        "{{ raise_exception('no system role') }}",
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",  # the beginning changes
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
    ):
        found = find_marks(byte_level(chat_template=template))
        assert found.opens == ("", "", "") and found.header == "" and "does not write" in found.reason
