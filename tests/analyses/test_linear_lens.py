import copy
import dataclasses
import errno
import os
import re
import shutil

import numpy as np
import pytest
import torch

from analyses import _lens_fit, _maps, linear_lens
from analyses._steps import Cancelled, drain
from analyses.linear_lens import is_fitted, linear_lens_steps, load_maps, own_name, run_linear_lens
from analyses.model import wrap_model
from tests.linear import TEXT, files, ridge, rows
from tests.tiny import tiny_hf_model, tiny_tokenizer

SHORT = "\f\n".join(part[:4_000] for part in TEXT.split("\f\n"))  # of the built-in text: quick to tokenise
FIGURES = ("plain_kl_nats", "plain_loss_nats", "linear_kl_nats", "linear_loss_nats")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and little of the text: 10 windows to fit on and 3 to try."""
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(linear_lens, "_shipped", lambda: SHORT)
    monkeypatch.setattr(linear_lens, "FIT_TOKENS", 640)
    monkeypatch.setattr(linear_lens, "HELD_OUT_TOKENS", 180)
    return tmp_path


# -- a fit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_maps_and_figures_by_plain_transformers(tiny, family):
    """Streams, maps, KL and loss once more: transformers' hidden states, numpy's least squares, torch's losses."""
    model, plain = tiny(family).model, tiny(family).plain
    found = run_linear_lens(model)
    body = getattr(plain, "model", None) or plain.transformer
    norm = getattr(body, "norm", None) or body.ln_f
    blocks = getattr(body, "layers", None) or body.h
    softcap = plain.config.get_text_config().to_dict().get("final_logit_softcapping")

    def read(resid):
        logits = plain.lm_head(norm(resid))
        return (softcap * (logits / softcap).tanh() if softcap else logits).log_softmax(-1)

    def streams(part, size):
        ids, parts, follows, logits = model.tokenizer(part).input_ids[:size], [], [], []
        for start in range(0, size, 64):
            window, last = ids[start : start + 64], []
            handle = blocks[-1].register_forward_hook(
                lambda m, a, out, last=last: last.append(out[0] if isinstance(out, tuple) else out)
            )
            with torch.inference_mode():
                out = plain(torch.tensor([window]), output_hidden_states=True)
            handle.remove()
            parts.append(torch.stack([*(h[0] for h in out.hidden_states[:-1]), last[0].reshape(len(window), -1)]))
            follows.append(window[1:])
            logits.append(out.logits[0])
        return parts, follows, logits

    fit, held_out = SHORT.split("\f\n")
    x = torch.cat([p[:, 1:] for p in streams(fit, 640)[0]], 1)
    parts, follows, logits = streams(held_out, 180)
    x_held = torch.cat([p[:, 1:-1] for p in parts], 1)
    follows = torch.tensor([i for f in follows for i in f[1:]])
    final = torch.cat([z[1:-1] for z in logits]).log_softmax(-1)
    assert found.n_fitted == x.shape[1] and found.n_held_out == x_held.shape[1] == len(follows)
    maps = load_maps(model, "linear")
    with torch.inference_mode():
        for depth in range(4):
            weight, bias = ridge(x[depth], x[3]) if depth < 3 else (np.eye(32), np.zeros(32))
            carried = (x_held[depth].double() @ torch.tensor(weight) + torch.tensor(bias)).float()
            torch.testing.assert_close(maps.apply(depth, x_held[depth]), carried, atol=2e-3, rtol=1e-3)
            for name, rows_read in (("plain", x_held[depth]), ("linear", carried)):
                log_p = read(rows_read)
                kl = torch.nn.functional.kl_div(log_p, final, reduction="batchmean", log_target=True)
                assert getattr(found, f"{name}_kl_nats")[depth] == pytest.approx(float(kl), abs=1e-3)
                loss = torch.nn.functional.nll_loss(log_p, follows)
                assert getattr(found, f"{name}_loss_nats")[depth] == pytest.approx(float(loss), abs=1e-3)
    assert found.uniform_loss_nats == pytest.approx(np.log(model.config.d_vocab))
    assert (found.linear_kl_nats[:-1] < found.plain_kl_nats[:-1]).all()


def test_the_last_depth_is_the_model_itself(tiny):
    model = tiny("llama").model
    found = run_linear_lens(model)
    stream = rows(3, 32, 1)
    maps = load_maps(model, found.name)
    assert maps.apply(3, stream) is stream
    assert found.plain_kl_nats[-1] == found.linear_kl_nats[-1] == 0
    assert found.plain_loss_nats[-1] == found.linear_loss_nats[-1]
    for depth in (-1, 4):
        with pytest.raises(ValueError, match=f"needs a depth from 0 to 3; found {depth}; depths count"):
            maps.apply(depth, stream)


def test_layers_that_do_nothing_have_the_identity_as_their_map():
    hf = tiny_hf_model("llama")
    for layer in hf.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    model = wrap_model(hf, tiny_tokenizer(), "still")
    found = run_linear_lens(model)
    assert np.abs(found.plain_kl_nats).max() < 1e-5 and np.abs(found.linear_kl_nats).max() < 1e-5
    stream = rows(5, 32, 1)
    torch.testing.assert_close(load_maps(model, "linear").apply(0, stream), stream, atol=1e-4, rtol=0)


def test_few_depths_at_a_time_give_the_same(tiny, tmp_path, monkeypatch):
    model = tiny("llama").model
    at_once = run_linear_lens(model)
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(_lens_fit, "GROUP_BYTES", 1)
    monkeypatch.setattr("analyses._readout.CHUNK_BYTES", 50_000)
    assert _lens_fit.groups_of(3, 32) == [range(0, 1), range(1, 2), range(2, 3)]
    one_by_one = run_linear_lens(model)
    for name in FIGURES:
        np.testing.assert_allclose(getattr(one_by_one, name), getattr(at_once, name), atol=1e-4)


def test_every_forward_pass_is_followed_by_a_yield_and_nothing_stays_open(tiny, monkeypatch):
    model, passes = tiny("llama").model, []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda *a, **k: passes.append(1) or forward(*a, **k))
    steps, seen, before = linear_lens_steps(model, ()), [], 0
    for progress in steps:
        assert len(passes) - before <= 1 and model.hook_count() == 0 and torch.is_grad_enabled()
        before = len(passes)
        seen.append(progress)
    assert len(passes) == 13  # 10 windows to fit on, 3 to try
    assert all(p.note for p in seen) and seen[-1].done == seen[-1].total
    shares = [p.done / p.total for p in seen]
    assert shares == sorted(shares) and len(set(shares)) == len(shares)


# -- what is kept --------------------------------------------------------------------------------------------------


def same(one, other):
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))


def test_a_second_call_reads_the_file(tiny, monkeypatch):
    model = tiny("llama").model
    assert not is_fitted(model.config.fingerprint, "linear")
    first = run_linear_lens(model)
    assert is_fitted(model.config.fingerprint, first.name) and not is_fitted("0" * 16, first.name)
    monkeypatch.setattr(model, "forward", None)
    seen = []
    steps = linear_lens_steps(model, (5, 6))  # tokens are ignored
    with pytest.raises(StopIteration) as stop:
        while True:
            seen.append(next(steps))
    assert same(stop.value.value, first) and len(seen) == 1
    assert stop.value.value.to_frame()["linear_loss_nats"].tolist() == first.linear_loss_nats.tolist()


def test_another_model_does_not_get_these_maps(tiny):
    model = tiny("llama").model
    run_linear_lens(model)
    other = copy.copy(model)
    other.config = dataclasses.replace(model.config, fingerprint="0" * 16)
    with pytest.raises(ValueError, match="needs a linear lens fitted on llama; found none named 'linear'; fit it"):
        load_maps(other, "linear")
    load_maps(model, "linear")


def test_a_truncated_file_is_fitted_again(tiny, cache):
    model = tiny("llama").model
    first = run_linear_lens(model)
    (file,) = files(cache)
    whole = file.read_bytes()
    for damage in (whole[: len(whole) // 2], whole[:5], b""):
        file.unlink()  # the old one may still be mapped
        file.write_bytes(damage)
        with pytest.raises(ValueError, match="found none named 'linear'"):
            load_maps(model, "linear")
        assert same(run_linear_lens(model), first)
        assert file.read_bytes() == whole


def test_maps_are_kept_open_and_read_again_when_the_file_is_another(tiny, cache):
    model = tiny("llama").model
    run_linear_lens(model)
    maps = load_maps(model, "linear")
    assert load_maps(model, "linear") is maps
    (file,) = files(cache)
    shutil.copy(file, file.with_suffix(".copy"))
    os.replace(file.with_suffix(".copy"), file)
    assert load_maps(model, "linear") is not maps


def test_two_fits_at_once_leave_one_whole_file(tiny, cache):
    model = tiny("llama").model
    slow = linear_lens_steps(model, ())
    with torch.inference_mode():
        for _ in range(8):
            next(slow)
    quick = run_linear_lens(model)
    assert same(drain(slow), quick) and same(run_linear_lens(model), quick)
    assert len(files(cache)) == 1


@pytest.mark.parametrize("n_steps", [1, 5, 12, 20])
def test_a_cancel_leaves_nothing(tiny, cache, n_steps):
    model = tiny("llama").model
    steps = linear_lens_steps(model, ())
    for _ in range(n_steps):
        next(steps)
    steps.close()
    assert files(cache) == [] and model.hook_count() == 0


def test_an_interrupt_inside_a_forward_pass_leaves_no_hook(tiny, cache, monkeypatch):
    model, asked = tiny("llama").model, []

    def interrupt():
        asked.append(1)
        if len(asked) > 20:
            raise Cancelled

    monkeypatch.setattr(model, "interrupt", interrupt)
    with pytest.raises(Cancelled):
        run_linear_lens(model)
    assert files(cache) == [] and model.hook_count() == 0


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "text", "sentence"),
    [
        ((1,) * 60, "prompt", "needs at least 256 tokens; found 60; write a longer prompt"),
        ((), "prompt", "needs at least 256 tokens; found 0; write"),
        ("text", "prompt", "needs token ids; found text; tokenise"),
        ((), "mine", "needs a text to fit on, 'built-in' or 'prompt'; found 'mine'; choose"),
    ],
)
def test_refused_before_a_forward_pass(tiny, monkeypatch, tokens, text, sentence):
    model = tiny("llama").model
    monkeypatch.setattr(model, "forward", None)
    with pytest.raises(ValueError, match=sentence):
        run_linear_lens(model, tokens, text=text)


@pytest.mark.parametrize("name", ["plain", "own:", "own:../../x", "own:0123456789ABCDEF", "linear "])
def test_a_name_that_no_fit_has_is_refused(tiny, name):
    with pytest.raises(ValueError, match=f"needs the name of a linear lens.*; found {re.escape(repr(name))}; take"):
        load_maps(tiny("llama").model, name)


def test_a_fit_that_was_not_made_is_named(tiny):
    with pytest.raises(ValueError, match="found none named 'own:0123456789abcdef'; fit it on that text again first"):
        load_maps(tiny("llama").model, "own:0123456789abcdef")


def test_no_room_is_one_sentence(tiny, cache, monkeypatch):
    model = tiny("llama").model

    def half(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("safetensors.torch.save_file", half)
    with pytest.raises(
        ValueError, match=r"needs 0 MB in .* for the fitted lens; found .*No space left on device; free"
    ):
        run_linear_lens(model)
    assert files(cache) == []
    monkeypatch.setattr(model, "forward", None)  # from here on it is refused before the work
    monkeypatch.setattr(_maps.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(9, 9, 7_000))
    with pytest.raises(ValueError, match="found 0 MB free; free some, or name another folder with STREAMSCOPE_CACHE"):
        run_linear_lens(model)
    (cache / "file").touch()
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(cache / "file"))
    with pytest.raises(ValueError, match="for the fitted lens; found Not a directory; free"):
        run_linear_lens(model)


# -- the embedded model --------------------------------------------------------------------------------------------


@pytest.mark.embedded
def test_embedded_a_small_fit_reads_the_middle_far_better_than_the_plain_lens(smol, monkeypatch):
    monkeypatch.setattr(_lens_fit, "TRIED", 6)
    ids = smol.tokenizer(TEXT[20_000:22_000]).input_ids[:300]
    found = run_linear_lens(smol, ids, text="prompt")
    assert found.name == own_name(ids) and is_fitted(smol.config.fingerprint, found.name)
    assert own_name(ids[1:]) != found.name and found.n_fitted == 239 and found.n_held_out <= 6
    assert found.plain_kl_nats[15] > 10 and found.linear_kl_nats[15] < 7
    assert found.plain_worse_than_uniform_through >= 20  # 24 on every longer text that was tried
    assert found.linear_loss_nats[[5, 10, 15, 20, 25]].max() < found.uniform_loss_nats
    assert load_maps(smol, found.name).apply(15, rows(2, 576, 1)).shape == (2, 576)
