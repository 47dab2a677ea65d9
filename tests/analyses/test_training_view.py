"""A text of one's own at a training step: two heads' maps, what comes next, and the film of all steps."""

import numpy as np
import pytest

from analyses import run_training_film, run_training_view
from analyses._checkpoints import folder_of
from analyses.training_log import load_training_log
from tests.analyses.test_training_dynamics import plain_losses

TEXT = "frob(zork, 1)\nfrob(zork"


@pytest.fixture(scope="module")
def log():
    return load_training_log()


def test_a_text_of_ones_own_is_read_as_plain_transformers_reads_it(log):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = folder_of("tiny-induction")
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    view = run_training_view(text=TEXT, top_k=3)
    ids = AutoTokenizer.from_pretrained(folder)(TEXT).input_ids
    assert view.ids == tuple(ids) and b"".join(view.pieces) == b"<|bos|>" + TEXT.encode()
    with torch.inference_mode():
        out = plain(torch.tensor([ids]), output_attentions=True)
    for pattern, (layer, head) in (
        (view.previous_pattern, log.previous_head),
        (view.induction_pattern, log.induction_head),
    ):
        assert np.abs(pattern / 255 - out.attentions[layer][0, head].numpy()).max() < 0.003
    after = out.logits[0, -1].softmax(-1)
    assert view.next_ids.tolist() == after.topk(3).indices.tolist()
    assert view.loss_nats == pytest.approx(plain_losses(plain, torch.tensor([ids]))[0].numpy(), abs=1e-4)
    assert view.copied_from == len(ids) // 2 + 4 or view.ids[view.copied_from - 1] == view.ids[-1]
    assert view.copied_probability == pytest.approx(float(after[view.copied_id]), abs=1e-6)


def test_a_film_shows_what_single_views_show(log):
    film = run_training_film(text=TEXT, ablate=[0, 0], top_k=2)
    assert film.steps == log.checkpoints
    for step in (0, 1900, 4500):
        frame, view = film.steps.index(step), run_training_view(text=TEXT, step=step, ablate=[0, 0], top_k=2)
        for field in ("previous_pattern", "induction_pattern", "loss_nats", "next_ids", "next_probability"):
            assert np.array_equal(getattr(film, field)[frame], getattr(view, field)), (step, field)
        assert film.copied_probability[frame] == np.float32(view.copied_probability)
        assert (film.ids, film.ablated, film.next_pieces[frame]) == (view.ids, "L0H0", view.next_pieces)
    assert (film.induction_pattern[0] != film.induction_pattern[-1]).any()


def test_the_trained_model_copies_and_without_its_head_it_does_not(log):
    text = "The qzo wrafu. The qzo wra"
    now, before = (run_training_view(text=text, step=step) for step in (4500, 700))
    without = run_training_view(text=text, ablate=[list(head) for head in log.induction_heads])
    assert now.copied_probability > 5 * max(before.copied_probability, without.copied_probability)
    assert without.ablated and not now.ablated
    assert run_training_view(text="abc").copied_from == -1 and np.isnan(
        run_training_view(text="abc").copied_probability
    )
