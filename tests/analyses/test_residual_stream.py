"""Lengths and angles of the stream are those of plain transformers' hidden states, and position 0 is in no mean."""

import numpy as np
import pytest
import torch

from analyses._steps import Cancelled
from analyses.residual_stream import ResidualStream, run_residual_stream
from tests.tiny import FAMILIES, PROMPT


@pytest.fixture(scope="module")
def llama(tiny):
    return tiny("llama").model


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_and_angles_are_those_of_plain_transformers(tiny, family):
    pair = tiny(family)
    with torch.no_grad():
        # The last of these is normed already, so it is left out.
        streams = pair.plain(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[:-1]
    streams = torch.stack([s[0] for s in streams]).double()
    found = run_residual_stream(pair.model, PROMPT)
    norms = streams.square().sum(-1).sqrt()
    assert np.allclose(found.norm[:-1], norms, rtol=1e-4)
    cosine = (streams[1:] * streams[:-1]).sum(-1) / (norms[1:] * norms[:-1])
    assert np.allclose(found.cosine[:-1], cosine, atol=1e-5)
    # What the blocks add bounds how the length changes, at the last depth too.
    change = np.abs(np.diff(found.norm, axis=0))
    assert (change <= found.attention_norm + found.mlp_norm + 1e-4).all()


def test_the_last_depth_and_what_is_added_are_those_of_plain_modules(tiny):
    plain, seen = tiny("llama").plain, {}
    modules = {
        "end": plain.model.layers[-1],
        "attention": plain.model.layers[-1].self_attn,
        "mlp": plain.model.layers[-1].mlp,
    }
    handles = [
        m.register_forward_hook(lambda m, a, out, n=n: seen.__setitem__(n, (out[0] if isinstance(out, tuple) else out)))
        for n, m in modules.items()
    ]
    with torch.no_grad():
        plain(torch.tensor([PROMPT]))
    for handle in handles:
        handle.remove()
    length = {name: tensor.reshape(len(PROMPT), -1).norm(dim=-1) for name, tensor in seen.items()}
    found = run_residual_stream(tiny("llama").model, PROMPT)
    assert np.allclose(found.norm[-1], length["end"], rtol=1e-5)
    assert np.allclose(found.attention_norm[-1], length["attention"], rtol=1e-4)
    assert np.allclose(found.mlp_norm[-1], length["mlp"], rtol=1e-4)
    before = seen["end"].reshape(len(PROMPT), -1) - (seen["attention"] + seen["mlp"]).reshape(len(PROMPT), -1)
    assert np.allclose(found.norm[-2], before.norm(dim=-1), rtol=1e-4)


def test_means_leave_position_0_out():
    norm = np.array([[19, 1, 3], [25, 1, 3], [900, 2, 4]], np.float32)
    cosine, mlp = np.array([[0, 0.5, 1], [0, 1, 1]], np.float32), np.array([[7, 1, 2], [7, 3, 4]], np.float32)
    found = ResidualStream(norm, cosine, None, mlp)
    assert found.mean_norm.tolist() == [2, 2, 3]
    assert found.mean_cosine.tolist() == [0.75, 1]
    assert found.mean_attention_norm is None
    assert found.mean_mlp_norm.tolist() == [1.5, 3.5]
    # The median of 1 and 3 is 2: 19 is less than ten times that, 25 is more. With position 0 it would be 3.
    assert found.massive == ((1, 0), (2, 0))
    frame = found.to_frame()
    assert list(frame) == ["depth", "position", "norm", "cosine", "mlp_norm"]
    at_2 = frame[frame.position == 2]
    assert at_2.depth.tolist() == [0, 1, 2]
    assert at_2.norm.tolist() == [3, 3, 4]
    assert at_2.mlp_norm.tolist()[:2] == [2, 4]
    assert frame[frame.depth == 2].mlp_norm.isna().all()  # no block follows the last depth


def test_one_token_has_no_mean_and_no_massive_position(llama):
    found = run_residual_stream(llama, PROMPT[:1])
    assert found.norm.shape == (4, 1)
    assert np.isnan(found.mean_norm).all() and np.isnan(found.mean_cosine).all()
    assert found.massive == ()
    assert np.allclose(found.norm[:, 0], run_residual_stream(llama, PROMPT).norm[:, 0], rtol=1e-5)


def test_what_cannot_be_read_is_left_out(llama, monkeypatch):
    expected = run_residual_stream(llama, PROMPT)
    monkeypatch.setattr(llama, "capabilities", {**llama.capabilities, "attn_out": "nothing is reported"})
    found = run_residual_stream(llama, PROMPT)
    assert found.attention_norm is None and "attention_norm" not in found.to_frame()
    assert np.array_equal(found.mlp_norm, expected.mlp_norm)


def test_no_hook_is_left_after_a_stop(llama, monkeypatch):
    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        run_residual_stream(llama, PROMPT)
    assert llama.hook_count() == 0


def test_text_is_refused(llama):
    with pytest.raises(ValueError, match="needs token ids; found text"):
        run_residual_stream(llama, "The cat")


@pytest.mark.embedded
def test_smol_carries_a_massive_activation_at_position_0(smol):
    """plain transformers, SmolLM2-135M-Instruct dequantised: lengths before blocks 11, 12, 28, 29 and at the end."""
    ids = smol.tokenizer.encode("The Eiffel Tower is located in the city of", add_special_tokens=False)
    found = run_residual_stream(smol, ids)
    depths = [0, 11, 12, 28, 29, 30]
    assert found.norm[depths, 0] == pytest.approx([2.0, 131.5, 22712.3, 22371.3, 8420.5, 4990.7], rel=2e-3, abs=0.05)
    assert found.mean_norm[depths] == pytest.approx([2.78, 147.52, 146.34, 618.05, 688.26, 676.0], rel=2e-3)
    assert found.massive == tuple((depth, 0) for depth in range(12, 30))
    assert found.cosine[12:27, 0].min() > 0.99  # position 0 hardly turns while it is massive
