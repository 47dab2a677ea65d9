"""Scores against a pattern worked by hand, plain transformers, and the reference values of SmolLM2."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses._repeated import Repeated, repeated_tokens, token_set
from analyses._score_reader import NO_FOLLOWER, NO_REPEAT, prompt_rows, random_rows, read_scores
from analyses.head_scores import SCORES, run_head_scores
from tests.tiny import PROMPT


def named(scores, name):
    layer, head = name[1:].split("H")
    return scores[int(layer), int(head)]


def test_a_perfect_head_of_each_kind_scores_one_and_nothing_else():
    text = Repeated(torch.zeros(1, 11, dtype=torch.int64), 0, 5)  # a start token and two copies of five
    q = torch.arange(11)
    looks = {
        "induction": torch.where(q < 6, q, q - 4),  # before the second copy there is nothing to find
        "duplicate_token": torch.where(q < 6, q, q - 5),
        "previous_token": (q - 1).clamp(min=0),
        "current_token": q,
        "first_token": 0 * q,
    }
    pattern = torch.stack([torch.eye(11)[keys] for keys in looks.values()])[None]
    found = read_scores(pattern, random_rows(text))
    for head, name in enumerate(looks):
        assert found[name][head] == 1
        assert found["entropy_nats"][head] == 0
    assert found["previous_token"][0] == 0 and found["duplicate_token"][0] == 0
    assert found["first_token"].tolist() == pytest.approx([0, 0, 0.1, 0, 1])
    assert found["current_token"].tolist() == pytest.approx([0.5, 0.5, 0, 1, 0])
    even = read_scores(torch.ones(1, 1, 11, 11).tril() / torch.arange(1, 12)[:, None], random_rows(text))
    assert float(even["entropy_share"]) == pytest.approx(1) and float(even["induction"]) == pytest.approx(
        sum(1 / n for n in range(7, 12)) / 5
    )


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "mistral"])  # all tokens; sinks; a window
def test_scores_are_those_of_plain_maps(tiny, family):
    result = run_head_scores(tiny(family).model, n_seeds=1, n_sequences=2, n_copy=9, start=7)
    ids = repeated_tokens(tiny(family).model, sequences=2, copy=9, start=7).ids
    maps = torch.stack(tiny(family).plain(ids, output_attentions=True).attentions).numpy()  # [layer, seq, head, q, k]
    second, later = range(10, 19), range(1, 19)
    np.testing.assert_allclose(result.induction, np.mean([maps[..., q, q - 8] for q in second], (0, 2)), atol=1e-6)
    np.testing.assert_allclose(
        result.duplicate_token, np.mean([maps[..., q, q - 9] for q in second], (0, 2)), atol=1e-6
    )
    np.testing.assert_allclose(result.previous_token, np.mean([maps[..., q, q - 1] for q in later], (0, 2)), atol=1e-6)
    np.testing.assert_allclose(result.current_token, np.mean([maps[..., q, q] for q in later], (0, 2)), atol=1e-6)
    np.testing.assert_allclose(result.first_token, maps[..., 1:, 0].mean((1, 3)), atol=1e-6)
    entropy = -(maps * np.log(np.where(maps > 0, maps, 1))).sum(-1)[..., 1:]
    np.testing.assert_allclose(result.entropy_nats, entropy.mean((1, 3)), atol=1e-5)
    logits = tiny(family).plain(ids).logits.log_softmax(-1)
    loss = -logits[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    assert result.first_copy_loss_nats == pytest.approx(float(loss[:, :9].mean()), abs=1e-4)
    assert result.second_copy_loss_nats == pytest.approx(float(loss[:, 10:].mean()), abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "olmo2", "gemma2", "granite", "gpt2"])
def test_pushes_of_a_layer_sum_to_what_its_attention_adds_towards_the_target(tiny, family):
    """Attention's output at each row, normed by hand, times the unembedding. GPT-2 has biases and centres."""
    model, plain = tiny(family).model, tiny(family).plain
    text = repeated_tokens(model, sequences=2, copy=8, start=7)
    added = {}
    reads = [
        (model.hook_name("attn_out", i), lambda t, hook, i=i: added.update({i: t}))
        for i in range(model.config.n_layers)
    ]
    last = (model.hook_name("resid_post", model.config.n_layers - 1), lambda t, hook: added.update(last=t))
    with torch.inference_mode(), model.hooks(*reads, last):
        model.forward(text.ids)
    rows = slice(text.second, -1)
    weight = plain.get_output_embeddings().weight
    towards = weight[text.ids[:, rows.start + 1 :]] - weight[text.ids[:, 1:9]].mean(1, keepdim=True)
    norm = plain.transformer.ln_f if family == "gpt2" else plain.model.norm
    x, gain = added["last"][:, rows], norm.weight + (family == "gemma2")
    centre = (lambda t: t - t.mean(-1, keepdim=True)) if family == "gpt2" else (lambda t: t)
    size = centre(x).square().mean(-1, keepdim=True).add(getattr(norm, "variance_epsilon", 1e-6)).sqrt()
    result = run_head_scores(model, n_seeds=1, n_sequences=2, n_copy=8, start=7)
    for layer in range(model.config.n_layers):
        part = added[layer][:, rows] - (plain.transformer.h[layer].attn.c_proj.bias if family == "gpt2" else 0)
        expected = float((centre(part) * gain / size * towards).sum(-1).mean())
        assert result.push[layer].sum() == pytest.approx(expected, abs=2e-4), layer


def test_the_push_of_one_head_by_hand(tiny):
    model, plain = tiny("llama").model, tiny("llama").plain
    text, seen = repeated_tokens(model, sequences=1, copy=8, start="none"), {}
    layer, head, rows = 1, 2, slice(8, 15)
    attention = plain.model.layers[layer].self_attn.o_proj
    handle = attention.register_forward_pre_hook(lambda module, args: seen.update(z=args[0]))
    x = plain.model(text.ids, output_hidden_states=True).last_hidden_state  # normed
    handle.remove()
    streams = []
    handle = plain.model.norm.register_forward_pre_hook(lambda module, args: streams.append(args[0]))
    plain(text.ids)
    handle.remove()
    scale = (x / (plain.model.norm.weight * streams[0]))[0, rows, :1]
    written = seen["z"][0, rows, 16:24] @ attention.weight[:, 16:24].T
    weight = plain.lm_head.weight
    towards = weight[text.ids[0, 9:]] - weight[text.ids[0, :8]].mean(0)
    expected = (written * plain.model.norm.weight * scale * towards).sum(-1).mean()
    result = run_head_scores(model, n_seeds=1, n_sequences=1, n_copy=8, start="none")
    assert result.push[layer, head] == pytest.approx(float(expected), abs=1e-5)


def test_the_draw_is_the_documented_one():
    tokenizer = SimpleNamespace(
        all_special_ids=[0, 1200],
        get_vocab=lambda: {"<|endoftext|>": 0},
        bos_token_id=1,
        __len__=lambda: 0,
    )

    class Tokenizer(SimpleNamespace):
        def __len__(self):
            return 49152

    plain = Tokenizer(**{**vars(tokenizer), "all_special_ids": [0, 1, 2]})
    model = SimpleNamespace(tokenizer=plain, config=SimpleNamespace(d_vocab=49152, n_ctx=8192))
    text, draw = repeated_tokens(model, seed=3), random.Random(3)
    for row in text.ids.tolist():
        r = draw.sample(range(1000, 40000), 50)
        assert row == [0, *r, *r]
    assert (text.first, text.second, text.start) == (1, 51, 0)
    model.tokenizer = Tokenizer(**vars(tokenizer))
    assert 1200 not in token_set(model) and 1201 in token_set(model)
    model.tokenizer.get_vocab = dict
    assert repeated_tokens(model).start == 1 and repeated_tokens(model, start="none").start is None
    small = SimpleNamespace(tokenizer=plain, config=SimpleNamespace(d_vocab=300, n_ctx=64))
    assert token_set(small) == list(range(3, 300)) and repeated_tokens(small).n_copy == 31


def test_on_the_prompt_all_earlier_copies_count(tiny):
    result = run_head_scores(tiny("llama").model, PROMPT, on="prompt")
    maps = torch.stack(tiny("llama").plain(torch.tensor([PROMPT]), output_attentions=True).attentions)[:, 0].numpy()
    # 7 3 250 11 7 3 99 41 250 5 18 260: rows 4, 5 and 8 have an earlier copy, at 0, 1 and 2.
    np.testing.assert_allclose(
        result.induction, np.mean([maps[..., 4, 1], maps[..., 5, 2], maps[..., 8, 3]], 0), atol=1e-6
    )
    np.testing.assert_allclose(
        result.duplicate_token, np.mean([maps[..., 4, 0], maps[..., 5, 1], maps[..., 8, 2]], 0), atol=1e-6
    )
    np.testing.assert_allclose(
        result.previous_token, np.mean([maps[..., q, q - 1] for q in range(1, 12)], 0), atol=1e-6
    )
    assert result.push is None and "random tokens" in result.push_reason and np.isnan(result.second_copy_loss_nats)


def test_pairs_of_a_prompt_by_hand():
    rows = prompt_rows((5, 6, 5, 5))
    # Row 2 has 5 at 0; row 3 has it at 0 and 2. What follows the copy at 2 is row 3 itself: not an earlier follower.
    assert rows.duplicate.T.tolist() == [[2, 0], [3, 0], [3, 2]] and rows.n_duplicate == 2
    assert rows.induction.T.tolist() == [[2, 1], [3, 1]] and rows.n_induction == 2


def test_where_nothing_repeats_scores_are_not_defined_and_not_ranked(tiny):
    result = run_head_scores(tiny("llama").model, (7, 3, 250), on="prompt")
    assert result.induction is None and result.duplicate_token is None
    assert result.induction_reason == result.duplicate_reason == NO_REPEAT
    assert result.rank("induction") is None and result.top("induction") == ()
    assert "induction" not in result.to_frame() and "previous_token" in result.to_frame()
    twice = run_head_scores(tiny("llama").model, (7, 3, 3), on="prompt")
    assert twice.induction is None and twice.induction_reason == NO_FOLLOWER and twice.duplicate_token is not None


def test_ranks_count_from_zero_and_equal_scores_share_one(tiny):
    result = run_head_scores(tiny("llama").model, (7, 3, 250), on="prompt")
    made = replace(result, induction=np.float32([[0.5, 0.9, 0, 0], [0.5, 0.1, 0, 0], [0, 0, 0, 0]]))
    assert made.rank("induction").tolist() == [[1, 0, 4, 4], [1, 3, 4, 4], [4, 4, 4, 4]]
    assert made.top("induction", 3) == ("L0H1", "L0H0", "L1H0")
    with pytest.raises(ValueError, match="needs one of induction, .*; found 'copying'"):
        made.rank("copying")


def test_spread_is_that_of_separate_runs(tiny):
    model = tiny("llama").model
    options = dict(n_sequences=2, n_copy=8, start="none")
    result = run_head_scores(model, seed=4, n_seeds=3, **options)
    alone = [run_head_scores(model, seed=seed, n_seeds=1, **options) for seed in (4, 5, 6)]
    assert (result.induction == alone[0].induction).all() and alone[0].induction_spread is None
    np.testing.assert_allclose(result.induction_spread, np.std([a.induction for a in alone], axis=0, ddof=1), atol=1e-7)
    assert (alone[0].induction != alone[1].induction).any()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"on": "text"}, "needs random or prompt to score on; found 'text'"),
        ({"on": "prompt"}, "needs at least 2 tokens; found 1"),
        ({"seed": -1}, "needs a seed from 0 up; found -1"),
        ({"n_seeds": 0}, "needs 1 to 10 seeds; found 0"),
        ({"n_sequences": 33}, "needs 1 to 32 sequences; found 33"),
        ({"n_copy": 32, "start": 5}, "needs copies of 4 to 31 tokens .*; found 32"),
        ({"start": "bos"}, "needs a start of document, none or an id below 300; found 'bos'"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, params, sentence, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(model, "forward", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_head_scores(model, (7,), **params)


@pytest.mark.embedded
def test_the_heads_of_the_embedded_model(smol):
    """Plain transformers, SmolLM2-135M-Instruct dequantised: four sequences of 2 x 50, seed 0, <|endoftext|> in front."""
    result = run_head_scores(smol, seed=0, n_seeds=1)
    assert (result.start, result.n_copy, result.n_sequences) == (0, 50, 4)
    expected = {
        "induction": {"L18H6": 0.893, "L17H3": 0.753, "L17H4": 0.719, "L17H5": 0.692, "L23H7": 0.516},
        "previous_token": {"L16H0": 0.902, "L11H1": 0.847, "L19H3": 0.712, "L2H1": 0.692},
        "duplicate_token": {"L14H3": 0.713, "L8H0": 0.542, "L15H6": 0.483},
        "first_token": {"L18H8": 0.995},
        "current_token": {"L29H1": 0.662, "L11H6": 0.654, "L29H4": 0.566},
        "entropy_nats": {"L18H8": 0.022, "L0H0": 3.611},
        # Pattern is not effect: L17H4 looks and writes nothing, L24H4 writes against, L29H1 writes without looking.
        "push": {"L29H1": 1.769, "L23H2": 0.822, "L18H6": 0.187, "L17H4": 0.002, "L24H4": -0.558},
    }
    for score, heads in expected.items():
        found = {name: float(named(getattr(result, score), name)) for name in heads}
        assert found == pytest.approx(heads, abs=0.02), score
    assert result.top("induction", 1) == ("L18H6",)
    assert set(result.top("induction", 4)) == {"L18H6", "L17H3", "L17H4", "L17H5"}
    assert set(result.top("previous_token", 2)) == {"L16H0", "L11H1"}
    assert not set(result.top("previous_token", 5)) & set(result.top("induction", 20))
    assert int((result.induction > 0.5).sum()) == 6 and int((result.first_token > 0.5).sum()) == pytest.approx(
        126, abs=2
    )
    assert result.first_copy_loss_nats == pytest.approx(14.22, abs=0.02)
    assert result.second_copy_loss_nats == pytest.approx(2.387, abs=0.02)
    assert all(0 <= getattr(result, name).min() and getattr(result, name).max() <= 1 for name in SCORES)
