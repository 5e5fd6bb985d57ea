"""Sampling: the distribution is the one written out, the draws follow it."""

import math

import pytest
import torch
from scipy import stats

from ilr.errors import InputError
from ilr.generation.sampling import Sampling, choose, distribution
from ilr.model.initialise import generator_for

LOGITS = torch.tensor([1.0, 3.0, 0.5, 2.0, 2.0, -1.0, 0.0, 2.5])


def written_out(logits: list[float], temperature: float, top_k: int | None, top_p: float) -> list[float]:
    """The reference: plain Python, no sorting tricks shared with the code under test."""
    weights = [math.exp(value / temperature) for value in logits]
    kept = set(range(len(weights)))
    if top_k is not None:
        kth = sorted(weights, reverse=True)[min(top_k, len(weights)) - 1]
        kept = {token for token in kept if weights[token] >= kth}
    if top_p < 1:
        total = sum(weights[token] for token in kept)
        chosen: set[int] = set()
        reached = 0.0
        for token in sorted(kept, key=lambda token: -weights[token]):
            if reached >= top_p:
                break
            chosen.add(token)
            reached += weights[token] / total
        kept = chosen
    total = sum(weights[token] for token in kept)
    return [weights[token] / total if token in kept else 0.0 for token in range(len(weights))]


CASES = [
    (1.0, None, 1.0),
    (0.7, None, 1.0),
    (1.0, 3, 1.0),
    (1.0, 4, 1.0),
    (1.0, None, 0.7),
    (1.5, 6, 0.8),
    (0.5, 3, 0.6),
    (1.0, 50, 0.01),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), CASES)
def test_the_distribution_is_the_written_out_one(temperature, top_k, top_p) -> None:
    # Distinct logits: which of two equal tokens top-p keeps is nobody's promise.
    logits = LOGITS + torch.arange(8) * 1e-3
    expected = written_out(logits.tolist(), temperature, top_k, top_p)
    actual = distribution(logits, Sampling(temperature, top_k, top_p))
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), CASES)
def test_the_distribution_is_that_of_transformers(temperature, top_k, top_p) -> None:
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 50, dtype=torch.float64, generator=generator) * 2
    scores = logits_process.TemperatureLogitsWarper(temperature)(None, logits) if temperature != 1 else logits
    if top_k is not None:
        scores = logits_process.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = logits_process.TopPLogitsWarper(top_p)(None, scores)
    actual = distribution(logits, Sampling(temperature, top_k, top_p))
    torch.testing.assert_close(actual, scores.softmax(-1), rtol=0, atol=1e-12)


def test_tokens_equal_to_the_kth_are_kept() -> None:
    assert distribution(LOGITS, Sampling(top_k=3)).count_nonzero() == 4


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1.0, None, 1.0), (1.5, 6, 0.9)])
def test_draws_follow_the_written_out_distribution(temperature, top_k, top_p) -> None:
    logits = LOGITS + torch.arange(8) * 1e-3
    draws = 20_000
    generators = [generator_for("test", sample) for sample in range(draws)]
    tokens = choose(logits.expand(draws, -1), Sampling(temperature, top_k, top_p), generators)
    expected = torch.tensor(written_out(logits.tolist(), temperature, top_k, top_p))
    observed = torch.bincount(torch.tensor(tokens), minlength=8)
    assert observed[expected == 0].sum() == 0
    possible = expected > 0
    p_value = stats.chisquare(
        observed[possible].numpy(), (expected[possible] * draws).double().numpy()
    ).pvalue
    assert p_value > 1e-3


def test_one_generator_drawn_repeatedly_follows_the_distribution_too() -> None:
    generator = generator_for("test", 0)
    expected = written_out(LOGITS.tolist(), 1.0, None, 1.0)
    draws = 5_000
    observed = torch.bincount(
        torch.tensor([choose(LOGITS[None], Sampling(), [generator])[0] for _ in range(draws)]), minlength=8
    )
    assert stats.chisquare(observed.numpy(), [p * draws for p in expected]).pvalue > 1e-3


def test_temperature_zero_is_greedy_and_draws_nothing() -> None:
    generator = generator_for("test", 0)
    before = generator.get_state()
    assert choose(LOGITS[None], Sampling(temperature=0), [generator]) == [1]
    assert torch.equal(generator.get_state(), before)
    assert choose(LOGITS[None], Sampling(temperature=1e-6), [generator]) == [1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**settings)


def test_the_smallest_temperature_takes_the_likeliest_as_greedy_does() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [-700.0, -900.0, -800.0]])
    sampling = Sampling(temperature=1e-310, top_p=0.9)
    assert torch.equal(distribution(logits, sampling), torch.tensor([[0.0, 1, 0], [1, 0, 0]]).double())
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    assert choose(logits, sampling, generators) == choose(logits, Sampling(temperature=0), generators)
