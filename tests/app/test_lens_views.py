"""What the page "Logit lens" reads, colours and says, worked by hand on a small result."""

from dataclasses import replace

import numpy as np
import pytest

from analyses.logit_lens import LogitLens
from app.components.finding import Piece
from app.components.lens_grid.payload import pack
from app.figures.logit_lens import measures
from app.ui.run import Outcome
from app.ui.token_text import visible
from app.views.lens_choices import default_stride, rows_drawn, window, with_spaces
from app.views.lens_columns import adds_columns, known_columns, spread
from app.views.lens_finding import mean_loss, target_words, worse_than_guessing
from app.views.lens_picture import gaps, grid_picture, numbers, shade
from app.views.residual_stream import massive_words
from app.views.trajectory import AXES, trajectory_lines
from tests.app.stub import PIECES, model_info

D_VOCAB = 100
UNIFORM = float(np.log(D_VOCAB))


def lens(*, rank, probability, loss, positions=None, kl=None, entropy=None):
    """A result of one or more positions; arrays are [depth, pos]."""
    rank, probability, loss = (np.asarray(values, dtype=np.float32) for values in (rank, probability, loss))
    depths, n = rank.shape
    zero = np.zeros((depths, n), np.float32)
    return LogitLens(
        positions=np.arange(n, dtype=np.int32) if positions is None else np.asarray(positions, np.int32),
        top_ids=np.zeros((depths, n, 2), np.int32),
        top_log_probability=np.log(np.stack([probability, probability / 2], -1)),
        entropy_nats=zero if entropy is None else np.asarray(entropy, np.float32),
        kl_nats=zero if kl is None else np.asarray(kl, np.float32),
        next_loss_nats=loss,
        target_ids=np.full(n, 7, np.int32),
        target_rank=rank.astype(np.int32),
        target_log_probability=np.log(probability),
        distractor_ids=None,
        distractor_rank=None,
        distractor_log_probability=None,
        mid_top_ids=None,
        mid_top_log_probability=None,
        mid_entropy_nats=None,
        mid_kl_nats=None,
        mid_next_loss_nats=None,
        mid_target_rank=None,
        mid_target_log_probability=None,
        mid_distractor_rank=None,
        mid_distractor_log_probability=None,
        exact=True,
        lens="plain",
    )


def said(result, at=0):
    parts = [*target_words(result, at, (b" is", b" Paris")), *worse_than_guessing(result, D_VOCAB)]
    return "".join(f"`{part.data.decode()}`" if isinstance(part, Piece) else part for part in parts)


def one(ranks, probabilities):
    return lens(
        rank=np.array([ranks]).T, probability=np.array([probabilities]).T, loss=np.full((len(ranks), 1), np.nan)
    )


@pytest.mark.parametrize(
    ("ranks", "probabilities", "sentence"),
    [
        ([9, 3, 0, 0], [0.001, 0.01, 0.2, 0.5], "leads from layer 1 on (20.0 % there, 50.0 % at the end)."),
        ([5, 3, 1, 0], [0.1, 0.01, 0.2, 0.5], "leads only after the last layer, 2 (50.0 %)."),
        ([0, 3, 1, 0], [0.9, 0.01, 0.2, 0.5], "led before, but lastingly leads only after the last layer, 2 (50.0 %)."),
        ([0, 0, 0, 1], [0.9, 0.6, 0.6, 0.3], "is not the answer: at the end 1 token is more probable (it has 30.0 %)."),
        ([0, 0, 0, 0], [0.9, 0.6, 0.6, 0.5], "leads from the embedding on and ends at 50.0 %."),
        (
            [0, 0, 0, 4],
            [0.9, 0.6, 0.6, 0.02],
            "is not the answer: at the end 4 tokens are more probable (it has 2.00 %).",
        ),
    ],
)
def test_the_finding_says_from_where_the_target_leads(ranks, probabilities, sentence):
    assert said(one(ranks, probabilities)) == f"After ` is` (token 0), ` Paris` {sentence}"


def test_the_finding_compares_with_guessing_over_the_tokens_that_follow_without_position_0():
    loss = [[99, 6, 5, np.nan], [99, 5, 4.4, np.nan], [0, 1, 2, np.nan]]
    result = lens(rank=np.zeros((3, 4)), probability=np.full((3, 4), 0.5), loss=loss)
    means, n = mean_loss(result)
    assert n == 2 and means == pytest.approx([5.5, 4.7, 1.5])
    assert UNIFORM == pytest.approx(4.605, abs=1e-3)
    ending = (
        "Through depth 1 (after layer 0) this lens is worse than a uniform guess (4.6 nats; mean loss on the 2 tokens that "
        "follow here, token 0 left out)."
    )
    assert said(result, 3).endswith(ending)
    loss[0][1:3] = [0, 0]
    assert "is at times worse" in said(lens(rank=np.zeros((3, 4)), probability=np.full((3, 4), 0.5), loss=loss))
    loss[1][1:3] = [0, 0]
    assert "better than a uniform guess (4.6 nats) at every depth" in said(
        lens(rank=np.zeros((3, 4)), probability=np.full((3, 4), 0.5), loss=loss)
    )


def test_nothing_is_compared_where_no_token_follows():
    assert said(one([0, 0], [0.5, 0.5])).endswith("ends at 50.0 %.")


@pytest.mark.parametrize(
    ("n", "position", "everything", "first", "last"),
    [
        (5, 4, False, 0, 4),
        (32, 0, False, 0, 31),
        (600, 599, False, 568, 599),
        (600, 568, False, 568, 599),
        (600, 567, False, 552, 583),
        (600, 3, False, 0, 31),
        (600, 3, True, 0, 599),
    ],
)
def test_the_window_always_holds_the_chosen_position(n, position, everything, first, last):
    found = window(n, position, everything)
    assert (found[0], found[-1]) == (first, last)
    assert position in found
    assert len(found) == (n if everything else min(n, 32))


def test_the_last_depth_always_has_a_row():
    assert rows_drawn(31, 1) == list(range(31))
    assert rows_drawn(31, 4) == [2, 6, 10, 14, 18, 22, 26, 30]
    assert gaps(rows_drawn(31, 4)) == [2, 3, 3, 3, 3, 3, 3, 3]
    assert gaps(rows_drawn(31, 1)) == [0] * 31
    assert [default_stride(n) for n in (3, 30, 39, 40, 80, 126)] == [1, 1, 1, 2, 3, 4]
    assert all(len(rows_drawn(n + 1, default_stride(n))) <= 40 for n in range(1, 200))


def test_a_space_can_be_written_as_it_is_shown():
    assert with_spaces("·Paris") == " Paris"


def test_shades_have_a_fixed_range_and_the_numbers_are_those_of_the_result():
    result = lens(
        rank=[[0, D_VOCAB - 1], [9, 0]],
        probability=[[0.25, 0.5], [1, 0.125]],
        loss=np.zeros((2, 2)),
        entropy=[[0, UNIFORM], [UNIFORM / 2, 1]],
        kl=[[0, 2 * UNIFORM], [UNIFORM / 4, 0]],
    )
    assert shade(result, "Probability", D_VOCAB)[0] == pytest.approx(np.array([[0.25, 0.5], [1, 0.125]]))
    assert shade(result, "Entropy", D_VOCAB)[0] == pytest.approx(np.array([[0, 1], [0.5, 1 / UNIFORM]]))
    assert shade(result, "Rank", D_VOCAB)[0] == pytest.approx(np.array([[1, 0], [0.5, 1]]))
    assert shade(result, "KL", D_VOCAB)[0] == pytest.approx(np.array([[0, 1], [0.25, 0]]))
    assert numbers(result)["target"] == pytest.approx(result.target_probability)
    assert numbers(result)["target's rank (0 = first)"][0, 1] == D_VOCAB - 1


def test_every_axis_has_a_measure_and_shows_the_numbers_of_the_result():
    result = one([9, 3, 0], [0.01, 0.02, 0.5])
    assert set(AXES) == set(measures(D_VOCAB))
    assert trajectory_lines(result, "Rank", "a", "")[0].values == pytest.approx([10, 4, 1])
    assert trajectory_lines(result, "Probability", "a", "")[0].values == pytest.approx([0.01, 0.02, 0.5])


def test_a_massive_first_token_is_said_and_an_ordinary_one_too():
    from analyses.residual_stream import ResidualStream

    norm = np.array([[2, 2, 4], [600, 3, 3]], np.float32)
    stream = ResidualStream(norm, np.ones((1, 3), np.float32), None, None)
    assert "a norm of 600 at depth 1 (after layer 0), against 3 on average elsewhere" in massive_words(stream)
    stream = ResidualStream(norm[:1], np.ones((0, 3), np.float32), None, None)
    assert "here it is at most 0.7 times" in massive_words(stream)


def columns(positions, base):
    """A result whose numbers say which column they are of."""
    values = base + np.arange(len(positions), dtype=np.float32)[None] * np.ones((3, 1), np.float32)
    made = lens(rank=values, probability=1 / (2 + values), loss=values, positions=positions, entropy=values)
    return replace(made, target_ids=np.asarray(positions, np.int32) + 100)


def test_known_columns_stand_where_they_belong_and_the_others_are_empty():
    whole = spread([columns([1, 2], 10), columns([4, 5], 20)], range(1, 7))
    assert whole.positions.tolist() == [1, 2, 3, 4, 5, 6]
    assert whole.target_rank[2].tolist() == [10, 11, -1, 20, 21, -1]
    assert whole.target_ids.tolist() == [101, 102, -1, 104, 105, -1]
    np.testing.assert_array_equal(whole.entropy_nats[0], [10, 11, np.nan, 20, 21, np.nan])
    assert (whole.top_ids[:, [2, 5]] == -1).all() and (whole.top_ids[:, [0, 1, 3, 4]] == 0).all()
    assert spread([columns([1, 2], 10), columns([2, 3], 20)], [2, 3]).target_rank[0].tolist() == [20, 21]
    assert adds_columns({"positions": np.array([2, 3])}, whole) and adds_columns({"positions": np.array([6])}, whole)
    assert not adds_columns({"positions": np.array([1, 2, 5])}, whole), "it is not drawn a second time"


@pytest.mark.parametrize(
    ("tokens", "asked", "usable"),
    [
        ((1, 2, 3), {}, True),
        ((1, 2, 4), {}, False),  # another prompt: every later column is another
        ((1, 2, 3), {"target": 5}, False),
        ((1, 2, 3), {"lens": "linear"}, False),
        ((1, 2, 3), {"positions": (2,)}, False),  # nothing of it is known
        ((1, 2, 3), {"exact": False}, True),
    ],
)
def test_the_columns_before_are_used_where_they_answer_the_same_question(tokens, asked, usable):
    params = {"target": None, "distractor": None, "top_k": 2, "lens": "plain", "exact": True}
    old = Outcome(columns([0, 1], 10), (1, 2, 3), params, 1.0, cached=False)
    found = known_columns(old, tokens, params | {"positions": (0, 1, 2)} | asked)
    assert found is (old.result if usable else None)
    fast = replace(old, result=replace(old.result, exact=False))
    assert known_columns(fast, (1, 2, 3), params | {"positions": (0, 1, 2)}) is None, "exact numbers are asked for"


@pytest.mark.parametrize("colour", ["Probability", "Entropy", "Rank", "KL"])
def test_a_column_that_is_not_read_yet_has_no_token_colour_or_mark(colour):
    part = replace(columns([1], 0), target_ids=np.zeros(1, np.int32))
    made = grid_picture(model_info(), (0, 1, 2), spread([part], (0, 1, 2)), colour, 1, "grid")
    assert np.isfinite(made.shade[:, 1]).all() and np.isnan(made.shade[:, [0, 2]]).all()
    assert made.target[0].tolist() == [False, True, False]
    assert made.target_label == visible(PIECES[0])
    pack(made)
