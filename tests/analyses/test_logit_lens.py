"""The lens against plain transformers, by hand, and its identities on every family."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses import _readout
from analyses.logit_lens import run_logit_lens
from analyses.tokenization import run_tokenization
from analyses.vocabulary import build_vocabulary
from tests.tiny import FAMILIES, PROMPT, tiny_tokenizer

IDS = torch.tensor([PROMPT])
EVERY = pytest.mark.parametrize("family", FAMILIES)
ARRAYS = ("top_log_probability", "entropy_nats", "kl_nats", "next_loss_nats", "target_log_probability")


@pytest.fixture(autouse=True)
def one_thread():
    """Other work on the machine: small matrices on two threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def by_transformers(plain, output):
    """Logits of every depth by transformers' own modules: [depth, pos, vocabulary], in float64 after the unembedding."""
    found = plain(IDS, output_hidden_states=True)
    decoder = plain.get_decoder()
    norms = ("norm", "final_layer_norm", "ln_f", "final_layernorm")
    # OPT keeps its blocks and norm one level deeper.
    inner = getattr(decoder, "decoder", decoder)
    norm = next(getattr(inner, name) for name in norms if getattr(inner, name, None) is not None)
    # transformers' last stream has already been normed; the model's logits stand for it.
    depths = [output(plain.get_output_embeddings()(norm(stream[0]))) for stream in found.hidden_states[:-1]]
    return torch.stack([*depths, found.logits[0]]).double()


def assert_agree(result, logits, positions, top_k=10):
    """Every field of a plain lens, by torch on logits [depth, pos, vocabulary]."""
    logits = logits[:, positions]
    logp, n = logits.log_softmax(-1), len(positions)
    np.testing.assert_array_equal(result.positions, positions)
    found = torch.from_numpy(result.top_log_probability)
    assert torch.allclose(found.double(), logp.topk(top_k).values, atol=1e-4)
    at_ids = logp.gather(-1, torch.from_numpy(result.top_ids).long())  # where two tokens tie, either may come first
    assert torch.allclose(at_ids, found.double(), atol=1e-4)
    assert all(len(set(row)) == top_k for row in result.top_ids.reshape(-1, top_k).tolist())
    np.testing.assert_allclose(result.entropy_nats, -(logp.exp() * logp).sum(-1), atol=1e-4)
    kl = (logp[-1].exp() * (logp[-1] - logp)).sum(-1)
    np.testing.assert_allclose(result.kl_nats, kl, atol=1e-4)
    np.testing.assert_array_equal(result.target_ids, logp[-1].argmax(-1))
    own = logp.gather(-1, logp[-1].argmax(-1).expand(len(logp), n)[..., None])[..., 0]
    np.testing.assert_allclose(result.target_log_probability, own, atol=1e-4)
    # A rank may be off where another logit equals the target's up to rounding.
    rank = [[(logp > own[..., None] + shift).sum(-1) for shift in (1e-5, -1e-5)]][0]
    assert (rank[0].numpy() <= result.target_rank).all() and (result.target_rank < rank[1].numpy()).all()
    for column, place in enumerate(positions):
        if place + 1 < len(PROMPT):
            loss = -logp[:, column, PROMPT[place + 1]]
            np.testing.assert_allclose(result.next_loss_nats[:, column], loss, atol=1e-4)
        else:
            assert np.isnan(result.next_loss_nats[:, column]).all()


@EVERY
def test_every_depth_is_what_the_modules_of_transformers_read(tiny, family):
    logits = by_transformers(tiny(family).plain, FAMILIES[family].output)
    result = run_logit_lens(tiny(family).model, PROMPT, positions="all")
    assert result.n_depths == tiny(family).model.config.n_layers + 1 and result.exact and result.lens == "plain"
    assert_agree(result, logits, list(range(12)))
    assert (result.kl_nats[0] > 0.01).all()  # the tolerance above would hide a lens that is always the output


@EVERY
def test_the_last_depth_is_the_model_output(tiny, family):
    """Over the whole vocabulary: from the forward pass itself, up to what rounding of a sum does."""
    model = tiny(family).model
    logp = model.forward(PROMPT)[0].double().log_softmax(-1)
    result = run_logit_lens(model, PROMPT, positions="all", top_k=300)
    np.testing.assert_allclose(result.top_log_probability[-1], logp.sort(descending=True).values, atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(result.entropy_nats[-1], -(logp.exp() * logp).sum(-1), atol=1e-5)
    assert (result.kl_nats[-1] == 0).all() and (result.target_rank[-1] == 0).all()
    np.testing.assert_array_equal(result.top_ids[..., :1][-1, :, 0], result.target_ids)
    np.testing.assert_allclose(result.top_probability.sum(-1), 1, atol=1e-5)
    assert (result.entropy_nats >= 0).all() and (result.entropy_nats <= np.log(300) + 1e-5).all()
    assert (result.kl_nats >= -1e-6).all()


@EVERY
def test_the_half_way_stream_lies_between_two_depths(tiny, family):
    """By hand: the stream before the block and what attention adds to it, normed and unembedded."""
    model = tiny(family).model
    if model.capabilities["resid_mid"]:
        with pytest.raises(ValueError, match="resid_mid"):
            run_logit_lens(model, PROMPT, mid=True)
        return
    added, resid = {}, model.capture_calls(PROMPT).resid
    pairs = [(model.hook_name("attn_out", i), lambda t, hook, i=i: added.update({i: t})) for i in range(len(resid) - 1)]
    with model.hooks(*pairs):
        model.forward(PROMPT)
    result = run_logit_lens(model, PROMPT, positions=[3, -1], mid=True, distractor=7)
    logp = torch.stack([model.readout((resid[i] + added[i])[0, [3, 11]]) for i in added]).double().log_softmax(-1)
    np.testing.assert_allclose(result.mid_top_log_probability, logp.topk(10).values, atol=1e-4)
    np.testing.assert_allclose(result.mid_entropy_nats, -(logp.exp() * logp).sum(-1), atol=1e-4)
    np.testing.assert_allclose(result.mid_distractor_log_probability, logp[..., 7], atol=1e-4)
    np.testing.assert_allclose(result.mid_next_loss_nats[:, 0], -logp[:, 0, PROMPT[4]], atol=1e-4)
    whole = run_logit_lens(model, PROMPT, positions=[3, -1], distractor=7)
    assert whole.mid_entropy_nats is None
    for name in ARRAYS:  # the whole streams are the same beside the half-way ones
        np.testing.assert_allclose(getattr(result, name), getattr(whole, name), atol=1e-5)


# ---- by hand ----


class Stub:
    """Two tokens, two layers, a width of two: a stream is its own logits, so each number can be worked out on paper."""

    config = SimpleNamespace(d_vocab=2, d_model=2, n_layers=2, n_ctx=64, n_parameters=1, device="cpu", dtype="float32")
    streams = ((0.5, 0.5), (0.9, 0.1))  # probabilities before block 0 and before block 1
    output = (0.2, 0.8)

    def __init__(self):
        linear = SimpleNamespace(weight=torch.eye(2), bias=torch.zeros(2))
        adapter = SimpleNamespace(apply_output_logits_transform=lambda z: z)
        self._bridge = SimpleNamespace(
            unembed=SimpleNamespace(original_component=linear), ln_final=self.readout, adapter=adapter
        )
        self.placed = ()

    def check(self):
        pass

    def hook_name(self, point, layer):
        return f"{point} {layer}"

    def has_hook(self, name):
        return False

    def hooks(self, *pairs):
        self.placed = pairs
        return contextlib.nullcontext()

    def readout(self, resid):
        return resid

    def forward(self, ids):
        def everywhere(p):
            return torch.tensor(p).log().expand(1, len(ids), 2)

        for (_, function), stream in zip(self.placed, self.streams, strict=True):
            function(everywhere(stream), hook=None)
        return everywhere(self.output)


def test_worked_by_hand():
    result = run_logit_lens(Stub(), (0, 1, 0), positions=[0, -1], top_k=1, distractor=0)
    assert result.positions.tolist() == [0, 2] and result.target_ids.tolist() == [1, 1]
    np.testing.assert_allclose(result.target_probability[:, 0], [0.5, 0.1, 0.8], atol=1e-6)
    assert result.target_rank[:, 1].tolist() == [0, 1, 0]  # equal at depth 0: none is above it
    np.testing.assert_allclose(np.exp(result.distractor_log_probability[:, 0]), [0.5, 0.9, 0.2], atol=1e-6)
    assert result.distractor_rank[:, 0].tolist() == [0, 0, 1] and result.distractor_ids.tolist() == [0, 0]
    kl = [0.2 * np.log(0.2 / q) + 0.8 * np.log(0.8 / (1 - q)) for q in (0.5, 0.9, 0.2)]
    np.testing.assert_allclose(result.kl_nats[:, 0], kl, atol=1e-6)
    entropy = [-q * np.log(q) - (1 - q) * np.log(1 - q) for q in (0.5, 0.9, 0.2)]
    np.testing.assert_allclose(result.entropy_nats[:, 1], entropy, atol=1e-6)
    np.testing.assert_allclose(result.next_loss_nats[:, 0], -np.log([0.5, 0.1, 0.8]), atol=1e-6)  # token 1 follows
    assert np.isnan(result.next_loss_nats[:, 1]).all()  # nothing follows the last one
    assert result.top_ids[1:, 0, 0].tolist() == [0, 1]
    assert result.leads_from.tolist() == [2, 2]  # it led at depth 0 too, but not from there on
    assert run_logit_lens(Stub(), (0,), target=0, top_k=1).leads_from.tolist() == [-1]


def test_frame_has_a_row_for_every_cell(tiny):
    frame = run_logit_lens(Stub(), (0, 1, 0), positions=[0, 2], top_k=2, distractor=0).to_frame()
    assert frame[["depth", "position"]].values.tolist() == [[0, 0], [0, 2], [1, 0], [1, 2], [2, 0], [2, 2]]
    row = frame.iloc[2]
    assert (row.id_0, row.id_1, row.target_id, row.target_rank, row.distractor_rank) == (0, 1, 1, 1, 0)
    np.testing.assert_allclose(
        [row.probability_0, row.target_probability, row.distractor_probability], [0.9, 0.1, 0.9], atol=1e-6
    )
    assert not any("token" in name for name in frame)

    model, vocabulary = tiny("llama").model, build_vocabulary(tiny_tokenizer(), 300)
    result = run_logit_lens(model, PROMPT, positions=[4, 5], mid=True, top_k=2)
    frame = result.to_frame(vocabulary)
    assert frame.depth.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert frame.half_way.tolist() == [False, False, True, True] * 3 + [False, False]
    assert frame.kl_nats[6] == result.mid_kl_nats[1, 0] and frame.id_1[7] == result.mid_top_ids[1, 1, 1]
    assert frame.token_0[0] == vocabulary.piece(result.top_ids[0, 0, 0]).decode("utf-8", "replace").replace(" ", "·")


# ---- the embedded model ----

# By plain transformers on SmolLM2-135M-Instruct dequantised: rank of " Paris" after "The Eiffel Tower is located in the city of".
EIFFEL = (
    2860,
    13616,
    11445,
    12447,
    12638,
    9438,
    8363,
    7608,
    7170,
    5556,
    9451,
    4854,
    4847,
    4885,
    5043,
    4663,
    4871,
    4606,
)
EIFFEL += (4122, 4166, 5553, 7023, 4661, 5663, 188, 38, 16, 2, 0, 0, 0)


@pytest.mark.embedded
def test_embedded_paris(smol):
    france = run_tokenization(smol, "The capital of France is")
    lens = run_logit_lens(smol, france, target=" Paris")
    for depth, probability, tolerance in ((26, 2e-5, 5e-6), (29, 0.0703, 5e-4), (30, 0.7725, 5e-4)):
        assert lens.target_probability[depth, -1] == pytest.approx(probability, abs=tolerance)
    assert lens.leads_from[-1] == 30
    # Worse than guessing where little has been computed, and the loss of the last depth is the model's.
    assert lens.next_loss_nats[1:25, 1:4].mean() > np.log(49152) > lens.next_loss_nats[30, 1:4].mean()
    eiffel = run_tokenization(smol, "The Eiffel Tower is located in the city of")
    lens = run_logit_lens(smol, eiffel, positions="last", target=" Paris")
    np.testing.assert_allclose(lens.target_rank[:, 0], EIFFEL, rtol=1e-3)  # logits 1e-5 apart may change places
    np.testing.assert_allclose(lens.target_probability[26:, 0], [0.003, 0.104, 0.462, 0.482, 0.702], atol=1e-3)
    assert lens.top_ids[0, 0, 0] == eiffel.ids[-1]  # tied embedding: depth 0 reads the token that was put in


@pytest.mark.embedded
def test_embedded_equals_plain_transformers_at_every_depth(smol, smol_hf):
    hf, tokenizer = smol_hf
    ids = tokenizer("The capital of France is").input_ids
    with torch.inference_mode():
        found = hf(torch.tensor([ids]), output_hidden_states=True)
        streams = torch.stack(found.hidden_states[:-1])[:, 0, -2:]
        logits = torch.cat([hf.lm_head(hf.model.norm(streams)), found.logits[:, -2:]]).double()
    lens = run_logit_lens(smol, ids, positions=[-2, -1])
    logp = logits.log_softmax(-1)
    np.testing.assert_allclose(lens.top_log_probability, logp.topk(10).values, atol=1e-3)
    np.testing.assert_array_equal(lens.top_ids[..., 0], logp.argmax(-1))
    np.testing.assert_allclose(lens.kl_nats, (logp[-1].exp() * (logp[-1] - logp)).sum(-1), atol=1e-3)
    np.testing.assert_allclose(lens.entropy_nats, -(logp.exp() * logp).sum(-1), atol=1e-3)
    np.testing.assert_allclose(lens.next_loss_nats[:, 0], -logp[:, 0, ids[-1]], atol=1e-3)


@pytest.mark.embedded
def test_embedded_fast_path_shows_the_same_tokens(smol, monkeypatch):
    """Emulated where the processor has no bfloat16: numbers are rounded the same way, only slowly."""
    ids = run_tokenization(smol, "The capital of France is").ids
    exact = run_logit_lens(smol, ids, positions=[1, 2, -1], target=" Paris")
    monkeypatch.setattr(_readout, "is_bfloat16_fast", lambda device: True)
    fast = run_logit_lens(smol, ids, positions=[1, 2, -1], target=" Paris", exact=False)
    assert not fast.exact
    np.testing.assert_array_equal(fast.top_ids, exact.top_ids)
    np.testing.assert_allclose(fast.top_log_probability, exact.top_log_probability, atol=0.05)
    np.testing.assert_array_equal(fast.top_log_probability[-1], exact.top_log_probability[-1])
    np.testing.assert_allclose(fast.entropy_nats, exact.entropy_nats, atol=0.1)
    np.testing.assert_allclose(fast.kl_nats, exact.kl_nats, atol=0.1)
