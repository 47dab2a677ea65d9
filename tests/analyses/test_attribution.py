"""A logit is the sum of what each part gives: as plain transformers computes it, and by taking parts away."""

import numpy as np
import pytest
import torch

from analyses import _decompose
from analyses._steps import Cancelled, Profile
from analyses.attribution import attribution_steps, cost_attribution, run_attribution
from tests.tiny import FAMILIES, PROMPT

TARGET, DISTRACTOR = 5, 7
EIFFEL = "The Eiffel Tower is located in the city of"


@pytest.fixture(scope="module")
def llama(tiny):
    return tiny("llama").model


def along(family, logits):
    """The output transform of a family, on two of its logits."""
    return FAMILIES[family].output(torch.tensor(logits)).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_sum_to_the_logit_of_plain_transformers(tiny, family):
    pair = tiny(family)
    with torch.no_grad():
        expected = pair.plain(torch.tensor([PROMPT])).logits[0, -3]
    who = run_attribution(pair.model, PROMPT, target=TARGET, position=-3)
    assert who.position == len(PROMPT) - 3
    assert who.heads_reason == ""
    assert who.head.shape == (pair.model.config.n_layers, pair.model.config.n_heads)
    total = who.embedding + float(who.head.sum() + who.mlp.sum()) + who.bias
    # A softcap or a scale comes after the sum: applied to it, it gives what transformers returns.
    assert along(family, [total])[0] == pytest.approx(float(expected[TARGET]), abs=1e-4)
    assert total == pytest.approx(who.logit, abs=1e-4)
    assert who.model_logit == pytest.approx(float(expected[TARGET]), abs=1e-4)
    assert who.error < 1e-5
    assert np.allclose(who.attention, who.head.sum(1) + who.attention_bias, atol=1e-5)
    assert who.embedding + float(who.attention.sum() + who.mlp.sum()) + who.output_bias == pytest.approx(
        total, abs=1e-4
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_difference_of_logits_is_the_difference_of_the_parts(tiny, family):
    model = tiny(family).model
    first, second = (run_attribution(model, PROMPT, target=token) for token in (TARGET, DISTRACTOR))
    both = run_attribution(model, PROMPT, target=TARGET, distractor=DISTRACTOR)
    for name in ("embedding", "attention", "mlp", "head", "attention_bias", "bias", "logit", "model_logit"):
        assert np.allclose(getattr(both, name), getattr(first, name) - getattr(second, name), atol=1e-5), name
    assert both.error < 1e-5


# ---- a second way: take a part away and hold all else ----


def record(model, names):
    seen = {}
    with model.hooks(*((name, lambda t, hook, n=name: seen.__setitem__(n, t.clone())) for name in names)):
        model.forward(PROMPT)
    return seen


def without(model, seen, edits, held, target=TARGET):
    """The target's logit at the end when `edits` are made and everything named in `held` keeps its recorded value."""
    found = []
    keep = [(name, lambda t, hook, n=name: seen[n]) for name in held]
    with model.hooks(*edits, *keep, ("unembed.hook_out", lambda t, hook: found.append(float(t[0, -1, target])))):
        model.forward(PROMPT)
    return found[0]


@pytest.mark.filterwarnings("ignore:A forward hook edited hook_scale")  # which is what we want here
@pytest.mark.parametrize("family", FAMILIES)
def test_a_part_taken_away_with_all_else_held_changes_the_logit_by_its_share(tiny, family):
    model = tiny(family).model
    last, at = model.config.n_layers - 1, 1
    who = run_attribution(model, PROMPT, target=TARGET)
    head = int(np.abs(who.head[at]).argmax())
    later = [model.hook_name(p, i) for p in ("attn_out", "mlp_out") for i in range(at, last + 1)]
    scales = ["ln_final.hook_scale", f"blocks.{at}.ln1_post.hook_scale"]
    scales = [name for name in scales if model.has_hook(name)]
    seen = record(model, [*later, *scales])
    attention, mlp, z = (model.hook_name(p, at) for p in ("attn_out", "mlp_out", "head_output"))

    def nothing(tensor, hook):
        return torch.zeros_like(tensor)

    def silence(tensor, hook):
        tensor = tensor.clone()
        tensor[:, :, head] = 0
        return tensor

    whole = without(model, seen, [], [*later, *scales])
    assert whole == pytest.approx(who.logit, abs=1e-4)
    for share, edit, replaced in (
        (who.attention[at], (attention, nothing), attention),
        (who.mlp[at], (mlp, nothing), mlp),
        (who.head[at, head], (z, silence), attention),
    ):
        held = [name for name in (*later, *scales) if name != replaced]
        assert whole - without(model, seen, [edit], held) == pytest.approx(float(share), abs=1e-5)
        assert abs(share) > 1e-3  # else the test says nothing


# ---- what the embedded model must give ----


@pytest.mark.embedded
def test_smol_has_the_reference_values(smol):
    """plain transformers, SmolLM2-135M-Instruct dequantised: one head, MLP or embedding at a time, frozen final norm."""
    ids = smol.tokenizer.encode(EIFFEL, add_special_tokens=False)
    who = run_attribution(smol, ids, target=" Paris")
    assert who.logit == pytest.approx(12.84186, abs=0.02)
    assert who.error < 1e-4
    found = (
        who.embedding,
        who.attention.sum(),
        who.mlp.sum(),
        *who.head[29, :2],
        who.mlp[28],
        who.mlp[27],
        who.head[23, 4],
    )
    assert found == pytest.approx((-0.05, 5.40, 7.50, -3.17, 3.05, 3.17, 2.44, 2.43), abs=0.02)
    who = run_attribution(smol, ids, distractor=" Rome")  # " Paris" is the model's own answer
    assert who.target_id == smol.tokenizer.encode(" Paris", add_special_tokens=False)[0]
    assert who.logit == pytest.approx(4.81236, abs=0.02)
    assert (who.head[29, 1], who.head[29, 0], who.mlp[29]) == pytest.approx((2.70, -2.31, -1.92), abs=0.02)
    parts = who.to_frame().query("kind in ['head', 'mlp']").sort_values("contribution_logits", key=abs)
    assert list(parts.part[:-4:-1]) == ["L29H1", "L29H0", "L29 MLP"]


# ---- what cannot be split, and what cannot be asked ----


def test_where_heads_cannot_be_read_attention_stays_whole_and_the_sum_holds(llama, monkeypatch):
    expected = run_attribution(llama, PROMPT, target=TARGET)
    monkeypatch.setattr(llama, "capabilities", {**llama.capabilities, "head_output": "heads are not reported"})
    who = run_attribution(llama, PROMPT, target=TARGET)
    assert (who.head, who.heads_reason) == (None, "heads are not reported")
    assert np.array_equal(who.attention, expected.attention)
    assert who.embedding + float(who.attention.sum() + who.mlp.sum()) + who.bias == pytest.approx(who.logit, abs=1e-5)
    assert who.error < 1e-5
    frame = who.to_frame()
    assert set(frame.kind) == {"embedding", "attention", "mlp", "bias"}
    assert frame.contribution_logits.sum() == pytest.approx(who.logit, abs=1e-5)


def test_an_output_matrix_that_is_not_attentions_is_noticed(llama, monkeypatch):
    parts = llama.linear_parts()
    wrong = (*parts.outputs[:2], parts.outputs[0])
    monkeypatch.setattr(llama, "linear_parts", lambda: _decompose.LinearParts(**{**vars(parts), "outputs": wrong}))
    who = run_attribution(llama, PROMPT, target=TARGET)
    assert who.head is None
    assert "does not sum to what attention adds" in who.heads_reason and "layer 2" in who.heads_reason
    assert who.error < 1e-5


def test_a_model_whose_parts_cannot_be_read_is_refused(llama, monkeypatch):
    monkeypatch.setattr(llama, "capabilities", {**llama.capabilities, "mlp_out": "nothing is reported"})
    with pytest.raises(ValueError, match="`mlp_out`.*nothing is reported"):
        run_attribution(llama, PROMPT)


@pytest.mark.parametrize(
    "named, words",
    [
        (dict(position=12), "position from 0 to 11; found 12"),
        (dict(position=-13), "found -13"),
        (dict(target=300), "target id from 0 to 299; found 300"),
        (dict(distractor=" cat sat"), "distractor that is one token; found"),
        (dict(target=5, distractor=5), "two different tokens; found 5 as target and distractor"),
    ],
)
def test_what_is_not_there_is_refused_before_a_forward_pass(llama, monkeypatch, named, words):
    monkeypatch.setattr(llama, "forward", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=words):
        run_attribution(llama, PROMPT, **named)


def test_the_models_own_answer_is_the_default_and_no_distractor_of_itself(llama):
    answer = int(llama.forward(PROMPT)[0, -1].argmax())
    assert run_attribution(llama, PROMPT).target_id == answer
    with pytest.raises(ValueError, match=f"two different tokens; found {answer} "):
        run_attribution(llama, PROMPT, distractor=answer)


def test_one_token_is_enough_and_later_tokens_change_nothing(llama):
    alone = run_attribution(llama, PROMPT[:1], target=TARGET)
    first = run_attribution(llama, PROMPT, target=TARGET, position=0)
    assert alone.error < 1e-5
    assert np.array_equal(alone.head, first.head)


def test_the_table_has_every_part_once_and_its_rows_sum_to_the_logit(tiny):
    who = run_attribution(tiny("gpt2").model, PROMPT, target=TARGET)
    frame = who.to_frame()
    assert frame.part.is_unique
    assert len(frame) == 2 + 3 * (3 + 4)
    row = frame.set_index("part").loc["L2H3"]
    assert (row.kind, row.layer, row["head"], row.contribution_logits) == ("head", 2, 3, who.head[2, 3])
    by_kind = frame.groupby("kind").contribution_logits.sum()
    assert by_kind[["embedding", "head", "mlp", "bias"]].sum() == pytest.approx(who.logit, abs=1e-5)
    assert by_kind["attention"] == pytest.approx(by_kind["head"] + by_kind["attention_bias"], abs=1e-5)


# ---- stopping ----


def test_no_hook_is_open_between_steps_or_after_a_stop(llama, monkeypatch):
    for _ in attribution_steps(llama, PROMPT):
        assert llama.hook_count() == 0

    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        run_attribution(llama, PROMPT)
    assert llama.hook_count() == 0


def test_the_cost_is_that_of_the_tokens_that_are_read(llama):
    profile = Profile(1e-3, 1e-3, 1e-6, 1e-3, n_layers=3, n_heads=4, d_model=32, d_vocab=300, n_ctx=64)
    whole, part = (cost_attribution(profile, 40, dict(position=p)) for p in (-1, 9))
    assert whole.seconds - part.seconds == pytest.approx(profile.forward_seconds(40) - profile.forward_seconds(10))
    who = run_attribution(llama, PROMPT)
    assert whole.result_bytes >= sum(v.nbytes for v in vars(who).values() if isinstance(v, np.ndarray))
