"""What the page "Layer deletion" reads and says, worked by hand."""

import numpy as np
import pytest

from analyses.layer_sweep import LayerSweep
from app.views.deletion_choices import in_words, read_off, write_off
from app.views.deletion_sweeps import guess_words, sweep_words


@pytest.mark.parametrize(
    ("text", "written", "said"),
    [
        ("10", "10", "layer 10"),
        ("11.mlp, 10", "10, 11.mlp", "layer 10 and the MLP of layer 11"),
        ("3.attention, 3.mlp", "3", "layer 3"),
        ("none", "none", "nothing"),
        ("3-5, 7.mlp", "3, 4, 5, 7.mlp", "layer 3, layer 4, layer 5 and the MLP of layer 7"),
        (" ", "none", "nothing"),
        (",".join(map(str, range(12))), ", ".join(map(str, range(12))), "all 12 layers"),
        ("1,2,3,4,5", "1, 2, 3, 4, 5", "10 parts (layer 1, layer 2, layer 3 and others)"),
    ],
)
def test_what_is_left_out_is_read_written_and_said(text, written, said):
    off = read_off(text, 12)
    assert write_off(off) == written
    assert read_off(written, 12) == off
    assert in_words(off, 12) == said


@pytest.mark.parametrize("text", ["12", "x", "1.head", "1, 1", "-1", "1.5", "²", "0-99", "3-x"])
def test_what_cannot_be_left_out_is_refused_in_three_parts(text):
    with pytest.raises(ValueError, match=r"needs .+; found .+; .+\."):
        read_off(text, 12)


def sweep(*loss):
    loss = np.array([loss], np.float32)
    nothing, flat = np.zeros(1, np.float32), np.zeros(loss.shape[1], np.float32)
    return LayerSweep(
        parts=("block",),
        positions="all",
        baseline_loss_nats=2.0,
        loss_nats=loss,
        kl_nats=loss,
        top1_agreement=loss,
        uniform_loss_nats=10.0,
        angular_distance=flat,
        angular_distance_last=flat,
        block_influence=flat,
        spearman_angular=nothing,
        spearman_angular_last=nothing,
        spearman_influence=nothing,
    )


def test_a_guess_is_placed_among_all_layers():
    found = sweep(5.0, 2.5, 2.25, 3.0)
    out = "Layer 2 matters least (+0.25 nats), layer 0 most (+3.00)."
    assert guess_words(found, None) == out
    assert guess_words(found, 2) == f"Your guess was right. {out}"
    assert guess_words(found, 1) == f"You said 1 (+0.50 nats): 1 layer matters less. {out}"
    assert guess_words(found, 0) == f"You said 0 (+3.00 nats): 3 layers matter less. {out}"
    assert sweep_words(found) == " Of single layers, 0 costs most (+3.00 nats) and 2 least (+0.25)."
