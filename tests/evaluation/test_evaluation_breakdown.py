"""Tables by position and frequency: how bins and deciles are cut, and that they add up to the whole."""

from itertools import pairwise

import numpy as np
import pytest

from ilr.evaluation.breakdown import (
    decile_of,
    frequencies,
    frequency_deciles,
    position_bins,
    position_losses,
)
from ilr.evaluation.measure import Sums
from ilr.model.metrics import Scores


def sums_of(position_nll: list[float], position_tokens: list[int], token_nll, token_counts) -> Sums:
    scores = Scores(np.array([sum(position_nll)]), np.array([sum(position_tokens)]), 0.0)
    return Sums(
        scores,
        np.array(position_nll),
        np.array(position_tokens),
        np.array(token_nll, dtype=float),
        np.array(token_counts),
    )


@pytest.mark.parametrize(
    ("window", "labels"),
    [
        (1, ["1"]),
        (2, ["1", "2"]),
        (6, ["1", "2", "3-4", "5-6"]),
        (8, ["1", "2", "3-4", "5-8"]),
        (9, ["1", "2", "3-4", "5-8", "9"]),
    ],
)
def test_bins_double_and_hold_every_position_once(window: int, labels: list[str]) -> None:
    nll, tokens = [float(place**2) for place in range(window)], [place + 1 for place in range(window)]
    bins = position_bins(sums_of(nll, tokens, [0], [0]))
    assert [one.label for one in bins] == labels
    assert sum(one.tokens for one in bins) == sum(tokens)
    assert sum(one.loss * one.tokens for one in bins if one.loss is not None) == pytest.approx(sum(nll))
    for one in bins:
        assert one.loss == sum(nll[one.first - 1 : one.last]) / sum(tokens[one.first - 1 : one.last])


def test_positions_that_predict_nothing_have_no_loss() -> None:
    sums = sums_of([0.0, 6.0], [0, 4], [0], [0])
    assert position_losses(sums) == [None, 1.5]
    assert [one.loss for one in position_bins(sums)] == [None, 1.5]


def test_frequencies_count_every_id() -> None:
    stream = np.random.default_rng(0).integers(0, 50, size=1000).astype(np.uint16)
    counts = frequencies(stream, 60)
    assert counts.tolist() == [int((stream == token).sum()) for token in range(60)]


def test_equal_frequencies_are_cut_in_the_order_of_ids() -> None:
    assert decile_of(np.full(20, 7)).tolist() == [token // 2 for token in range(20)]


def test_an_id_goes_where_the_middle_of_its_occurrences_lies() -> None:
    # Falling: id 2 covers 0–40 % (middle 20 %), id 0 40–75 (57.5), id 3 75–95 (85), id 4 95–100 (97.5); id 1 is
    # never seen and belongs to the rarest.
    assert decile_of(np.array([35, 0, 40, 20, 5])).tolist() == [5, 9, 2, 8, 9]


def test_deciles_hold_a_tenth_of_the_stream_each_and_add_up() -> None:
    rng = np.random.default_rng(1)
    counts = rng.permutation((100_000 / np.arange(1, 4001)).astype(int))
    token_counts = rng.poisson(counts / 100)
    token_nll = token_counts * rng.random(4000)
    deciles = frequency_deciles(sums_of([0.0], [0], token_nll, token_counts), counts)
    assert [one.number for one in deciles] == list(range(1, 11))
    assert sum(one.types for one in deciles) == 4000
    assert sum(one.tokens for one in deciles) == token_counts.sum()
    assert sum(one.loss * one.tokens for one in deciles if one.loss is not None) == pytest.approx(
        token_nll.sum()
    )
    # The commonest id is 11 % of the stream here, which is as far as a tenth can be missed.
    assert all(abs(one.train_share - 0.1) < 0.06 for one in deciles)
    assert all(ours.least >= theirs.most for ours, theirs in pairwise(deciles))
