"""Norms, positions, a missing nonlinearity, cut weights: identities, and plain transformers with other weights or modules."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from analyses._steps import Profile
from analyses.linear_mlp import cost_linear_mlp, run_linear_mlp
from analyses.norm_order import DEPTHS, MEASURED, gradient_lengths
from analyses.norms import _norms_of, _replaced, _try, cost_norms, hooked_loss, run_norms
from analyses.position_wise import cost_position_wise, run_position_wise
from analyses.weight_truncation import cost_weight_truncation, run_weight_truncation
from tests.tiny import PROMPT

IDS = torch.tensor([PROMPT])
SOME = (
    "llama",
    "gpt2",
    "gemma2",
    "olmo2",
    "gptj",
    "bloom",
    "phi3",
)  # RMS and LayerNorm, before and after, side by side, joint
PROFILE = Profile(0.01, 1e-3, 1e-6, 2e-3, 30, 9, 576, 49152, 8192)


def loss_of(plain):
    logits = plain(IDS).logits[0, :-1].log_softmax(-1)
    return -float(logits.gather(-1, IDS[0, 1:, None]).mean())


@pytest.mark.parametrize("family", SOME)
def test_a_norm_is_what_it_was_found_to_be(tiny, family):
    """Found by trying, and put in the place of every norm as its own kind: the model stays what it was."""
    model = tiny(family).model
    tried = _try(model, _norms_of(model))
    same = _replaced(tried, {name: found.centres for name, found in tried.items()})
    assert hooked_loss(model, PROMPT, *same) == pytest.approx(loss_of(tiny(family).plain), abs=1e-4)
    for place in ("attention", "final"):
        found = run_norms(model, PROMPT, layer=1, place=place, position=3, compare=False)
        assert found.kind == model.config.norm
        own = found.layer_normed if found.kind == "LayerNorm" else found.rms_normed
        np.testing.assert_allclose(found.gain * own + found.bias, found.after, atol=1e-5)
        assert found.unit_rms == pytest.approx(1, abs=1e-4)
        assert np.sqrt(np.mean(np.square(found.rms_normed, dtype=float))) == pytest.approx(1, abs=1e-4)
        assert found.layer_normed.mean() == pytest.approx(0, abs=1e-5)
        assert np.isnan(found.other_loss_nats)


def test_a_norm_by_hand(tiny):
    """The stored gain and epsilon of Llama, and the mean's share of the squared length."""
    pair = tiny("llama")
    found = run_norms(pair.model, PROMPT, layer=1, place="mlp", position=3, compare=False)
    norm = pair.plain.model.layers[1].post_attention_layernorm
    np.testing.assert_allclose(found.gain, norm.weight, rtol=1e-5)
    assert found.epsilon == pytest.approx(norm.variance_epsilon, rel=0.01)
    np.testing.assert_allclose(norm(torch.tensor(found.before)), found.after, atol=1e-5)
    x = found.before.astype(float)
    assert found.mean_share == pytest.approx(len(x) * x.mean() ** 2 / (x**2).sum(), rel=1e-5)
    assert found.mean_share_by_layer.shape == (3,) and (found.mean_share_by_layer > 0).all()
    assert found.where == "before the MLP"


@pytest.mark.parametrize(("family", "kind"), [("llama", "RMSNorm"), ("gpt2", "LayerNorm")])
def test_the_other_kind_everywhere_is_transformers_with_other_norms(tiny, family, kind):
    class Centred(nn.Module):
        def __init__(self, old):
            super().__init__()
            self.old = old

        def forward(self, x):
            x = x - x.mean(-1, keepdim=True)
            return self.old.weight * x / (x.square().mean(-1, keepdim=True) + self.old.variance_epsilon).sqrt()

    class Uncentred(nn.Module):
        def __init__(self, old):
            super().__init__()
            self.old = old

        def forward(self, x):
            return self.old.weight * x / (x.square().mean(-1, keepdim=True) + self.old.eps).sqrt() + self.old.bias

    changed = copy.deepcopy(tiny(family).plain)
    other = Centred if kind == "RMSNorm" else Uncentred
    for name, module in list(changed.named_modules()):
        if type(module).__name__ in ("LlamaRMSNorm", "LayerNorm"):
            parent, _, last = name.rpartition(".")
            setattr(changed.get_submodule(parent), last, other(module))
    found = run_norms(tiny(family).model, PROMPT)
    assert found.kind == kind and found.n_norms == 7
    assert found.loss_nats == pytest.approx(loss_of(tiny(family).plain), abs=1e-4)
    assert found.other_loss_nats == pytest.approx(loss_of(changed), abs=1e-4)
    assert abs(found.other_loss_nats - found.loss_nats) > 1e-3


def test_a_place_without_a_norm_is_said(tiny):
    with pytest.raises(ValueError, match="needs a norm of its own for the mlp; found that gptj has none there"):
        run_norms(tiny("gptj").model, PROMPT, place="mlp")
    with pytest.raises(ValueError, match="needs a norm at 'attention', 'mlp' or 'final'; found 'x'"):
        run_norms(tiny("llama").model, PROMPT, place="x")
    with pytest.raises(ValueError, match="needs a layer from 0 to 2; found 3"):
        run_norms(tiny("llama").model, PROMPT, layer=3)


@pytest.mark.parametrize(
    ("family", "position"), [*((family, 4) for family in (*SOME, "mixtral")), ("llama", 0), ("gpt2", -1)]
)
def test_only_its_own_mlp_notices_and_attention_passes_it_on(tiny, family, position):
    found = run_position_wise(tiny(family).model, PROMPT, layer=1, position=position)
    at = position % len(PROMPT)
    elsewhere = np.arange(len(PROMPT)) != at
    rounding = 1e-5 if family == "mixtral" else 0  # tokens are sorted by expert, so a row has other neighbours
    assert found.mlp_elsewhere <= rounding and (found.mlp_change[elsewhere] <= rounding).all(), "to the last bit"
    assert found.mlp_change[at] > 0.01
    assert found.attention_before == 0 and not found.attention_change[:at].any()
    assert (found.attention_change[at:] > 1e-6).all()
    assert (found.run_change[:at] <= rounding).all() and (found.run_change[at:] > 1e-6).all()


def test_one_changed_row_is_the_mlp_of_that_row(tiny):
    """The other way: transformers' own MLP on the two rows."""
    pair = tiny("llama")
    found = run_position_wise(pair.model, PROMPT, layer=1, position=4, replacement=9)
    changed = torch.tensor([[*PROMPT[:4], 9, *PROMPT[5:]]])
    rows = []
    for ids in (IDS, changed):
        seen = []
        hook = pair.plain.model.layers[1].mlp.register_forward_hook(
            lambda module, args, out, seen=seen: seen.append(out[0, 4])
        )
        pair.plain(ids)
        hook.remove()
        rows.append(seen[0])
    assert found.mlp_change[4] == pytest.approx(float((rows[1] - rows[0]).norm() / rows[0].norm()), rel=1e-4)
    assert found.replacement == 9 and found.token == PROMPT[4] and found.to_frame().shape == (12, 4)


def test_the_same_token_again_is_refused(tiny):
    with pytest.raises(ValueError, match="needs another token than the one that is there; found id 7 twice"):
        run_position_wise(tiny("llama").model, PROMPT, replacement=7)
    with pytest.raises(ValueError, match="needs at least 2 tokens"):
        run_position_wise(tiny("llama").model, PROMPT[:1])


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gptj", "phi3"])
def test_two_matrices_are_one_and_a_gate_is_quadratic(tiny, family):
    found = run_linear_mlp(tiny(family).model, PROMPT, layer=1, compare=False)
    np.testing.assert_allclose(found.two_matrices, found.one_matrix, atol=1e-5 * found.largest)
    assert found.max_error < 1e-5 * found.largest and found.largest > 0.1 and found.rank == 32, "of 32"
    assert found.doubled_two_matrices == pytest.approx(2, abs=1e-4) and found.sum_error_two_matrices < 1e-5
    assert found.doubled_identity == pytest.approx(4 if found.gated else 2, abs=1e-4)
    assert found.sum_error_own > 0.01, "the MLP itself is not linear"
    assert (found.sum_error_identity > 0.01) == found.gated
    if family == "opt":
        assert found.doubled_own == pytest.approx(2, abs=1e-4), "a ReLU keeps the factor, and is not linear"


@pytest.mark.parametrize(("family", "name"), [("llama", "mlp.act_fn"), ("gpt2", "mlp.act")])
def test_without_its_activation_the_model_is_transformers_with_another_module(tiny, family, name):
    found = run_linear_mlp(tiny(family).model, PROMPT)
    assert found.loss_nats == pytest.approx(loss_of(tiny(family).plain), abs=1e-4)
    for module, loss in ((nn.Identity(), found.identity_loss_nats), (nn.ReLU(), found.relu_loss_nats)):
        changed = copy.deepcopy(tiny(family).plain)
        for block in changed.model.layers if family == "llama" else changed.transformer.h:
            setattr(block.mlp, name.rpartition(".")[2], module)
        assert loss == pytest.approx(loss_of(changed), abs=1e-4)
        assert abs(loss - found.loss_nats) > 1e-3


def test_experts_are_refused_in_words(tiny):
    for run in (run_linear_mlp, run_weight_truncation):
        with pytest.raises(
            ValueError, match=r"needs one of this model's matrices: attn\.q, .*experts are not single matrices"
        ):
            run(tiny("mixtral").model, PROMPT)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gptj", "phi3"])
def test_full_rank_is_the_model_and_rank_zero_is_no_matrix(tiny, family):
    model = tiny(family).model
    for part in ("attn.q", "mlp.out", "all"):
        found = run_weight_truncation(model, PROMPT, part=part, layer=1, ranks=(0, 1, 32, 99))
        assert found.baseline_loss_nats == pytest.approx(loss_of(tiny(family).plain), abs=1e-4)
        np.testing.assert_allclose(found.loss_nats[2:], found.baseline_loss_nats, atol=1e-3)
        assert found.energy[0] == 0 and found.energy[2:] == pytest.approx([1, 1]) and 0 < found.energy[1] < 0.6
        assert abs(found.loss_nats[0] - found.baseline_loss_nats) > 1e-4
        assert 1 <= found.rank_90 <= found.rank_99 <= 32
    assert model.hook_count() == 0
    assert found.n_matrices == (21 if model.config.gated_mlp else 18)
    assert found.n_cut.tolist() == [found.n_matrices] * 2 + [0, 0]


def test_a_matrix_without_more_rank_is_not_cut_and_not_counted(tiny):
    """Keys and values of two heads of eight have rank 16: at 20 they stay whole, and the energy is that of the others."""
    pair = tiny("llama")
    found = run_weight_truncation(pair.model, PROMPT, part="all", ranks=(20,))
    linear = [m.weight for m in pair.plain.model.layers.modules() if isinstance(m, torch.nn.Linear)]
    squares = [torch.linalg.svdvals(weight.detach().double()).square() for weight in linear]
    energy = [float(each[:20].sum() / each.sum()) for each in squares if len(each) > 20]
    assert (found.n_matrices, found.n_cut.tolist()) == (21, [15]) and len(energy) == 15
    assert found.energy[0] == pytest.approx(np.mean(energy), abs=1e-4)


@pytest.mark.parametrize(
    ("family", "part", "path"),
    [("llama", "mlp.in", "mlp.up_proj"), ("llama", "attn.k", "self_attn.k_proj"), ("gpt2", "attn.o", "attn.c_proj")],
)
def test_a_cut_weight_is_transformers_with_the_weight_cut_by_svd(tiny, family, part, path):
    """gpt2's is square and stored transposed: taking it the wrong way round would show."""
    found = run_weight_truncation(tiny(family).model, PROMPT, part=part, layer=1, ranks=(3,))
    changed = copy.deepcopy(tiny(family).plain)
    blocks = changed.model.layers if family == "llama" else changed.transformer.h
    weight = blocks[1].get_submodule(path).weight
    u, s, v = torch.linalg.svd(weight, full_matrices=False)
    weight.copy_((u[:, :3] * s[:3]) @ v[:3])
    assert found.loss_nats[0] == pytest.approx(loss_of(changed), abs=1e-4)
    np.testing.assert_allclose(found.singular_values, s, atol=1e-4)
    assert found.energy[0] == pytest.approx(float((s[:3] ** 2).sum() / (s**2).sum()), abs=1e-5)
    share = (s**2).cumsum(0) / (s**2).sum()
    assert found.rank_90 == 1 + int((share < 0.9).sum())
    assert found.kept_numbers.tolist() == [3 * sum(weight.shape)]
    assert abs(found.loss_nats[0] - found.baseline_loss_nats) > 1e-4


@pytest.mark.parametrize("ranks", [(), (-1,), (True,), (1.5,)])
def test_ranks_that_are_none_are_refused(tiny, ranks):
    with pytest.raises(ValueError, match="needs ranks from 0 up; found"):
        run_weight_truncation(tiny("llama").model, PROMPT, ranks=[*ranks])


def test_the_toys_show_what_xiong_et_al_say_and_the_file_is_what_the_script_measures():
    pre, post = (MEASURED[name]["last_block"] for name in ("pre", "post"))
    assert len(pre) == len(post) == len(DEPTHS) == 4
    assert pre[-1] < 0.6 * pre[0] and post[-1] > post[0]
    again = np.mean([gradient_lengths(2, pre=True, seed=seed) for seed in range(8)], axis=0)
    assert again[-1] == pytest.approx(MEASURED["pre"]["last_block"][0], abs=2e-3)
    assert again[0] == pytest.approx(MEASURED["pre"]["first_block"][0], abs=2e-3)


def test_costs_follow_what_is_asked():
    for cost, more, less in (
        (cost_norms, {}, {"compare": False}),
        (cost_linear_mlp, {}, {"compare": False}),
        (cost_weight_truncation, {"part": "all"}, {"part": "mlp.out"}),
        (cost_weight_truncation, {"ranks": [1, 2, 3]}, {"ranks": [1]}),
    ):
        assert cost(PROFILE, 100, more).seconds > cost(PROFILE, 100, less).seconds
    assert cost_position_wise(PROFILE, 100, {}).seconds == pytest.approx(4 * PROFILE.forward_seconds(100))


def test_the_rank_of_a_product_counts_singular_values_that_float32_would_lose():
    from analyses.linear_mlp import _rank

    before = torch.diag(torch.tensor([1.0, 1e-3, 1e-4]))
    assert _rank(before, before) == 3  # 1e-8 of the largest: below float32's rounding, far above float64's
    assert _rank(before, torch.diag(torch.tensor([1.0, 1.0, 0.0]))) == 2
