"""Variance, interval, p and verdict of a difference, against written-out formulas and known tests."""

import math

import numpy as np
import pytest
from scipy import stats

from ilr.comparison.resampling import bootstrap_interval
from ilr.comparison.statistics import Effects, effects, holm, verdicts

# 2 arms × 2 seeds × 3 documents of 100, 200 and 100 tokens. All below is worked out by hand from these.
TOKENS = np.array([100.0, 200.0, 100.0])
HAND = np.array(
    [
        [[300.0, 640.0, 320.0], [310.0, 650.0, 320.0]],  # totals 1260, 1280
        [[296.0, 628.0, 316.0], [304.0, 630.0, 322.0]],  # totals 1240, 1256
    ]
)


def sweep(arms: int, seeds: int, documents: int, seed: int = 0, **sd: float) -> np.ndarray:
    """NLL of a random sweep: every pair of factors and all three together vary, by the given sd."""
    generator = np.random.default_rng(seed)
    shape = (arms, seeds, documents)
    sd = {"arm_seed": 0.01, "arm_document": 0.05, "rest": 0.05, "document": 1.0} | sd
    return (
        3.0
        + sd["document"] * generator.normal(size=(1, 1, documents))
        + sd["arm_seed"] * generator.normal(size=(arms, seeds, 1))
        + sd["arm_document"] * generator.normal(size=(arms, 1, documents))
        + sd["rest"] * generator.normal(size=shape)
    )


def test_two_arms_two_seeds_three_documents_come_out_as_by_hand() -> None:
    result, noise = effects(HAND, TOKENS, baseline=0)
    # Scores 3.15, 3.20 and 3.10, 3.14; differences −0.05 and −0.06.
    assert result.difference[1] == pytest.approx(-0.055)
    # Residuals after arm and seed are ± 0.0025: MSE = 4 · 0.0025² / 1; so 2·MSE/2 = 2.5e-5.
    assert noise.degrees == 1
    assert noise.residual_variance == pytest.approx(2.5e-5)
    # Documents: differences −4 −12 −4 and −6 −20 +2, less −0.05 and −0.06 per token: 1 −2 1 and 0 −8 8,
    # on average 0.5 −5 4.5; its variance of the mean is 3/2 · (0.25 + 25 + 20.25) / 400².
    both = 1.5 * 45.5 / 400**2
    # What document and seed vary in together: ± (0.5, 3, −3.5), 3 · 2 · (0.25 + 9 + 12.25) / (2 · 2) / 400².
    together = 3 * 2 * 21.5 / (1 * 2 * 2) / 400**2
    documents = both - together
    variance = 2.5e-5 + documents
    degrees = variance**2 / (2.5e-5**2 / 1 + both**2 / 2 + together**2 / 2)
    assert result.degrees[1] == pytest.approx(degrees)
    margin = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    assert (result.low[1], result.high[1]) == pytest.approx((-0.055 - margin, -0.055 + margin))
    assert result.p[1] == pytest.approx(2 * stats.t.sf(0.055 / math.sqrt(variance), degrees))


def test_without_variance_of_documents_two_arms_are_a_paired_t_test() -> None:
    scores = np.array([[3.10, 3.14, 3.05, 3.11], [3.08, 3.15, 3.01, 3.07]])
    amounts = np.repeat(scores[..., None], 30, axis=-1)
    result, noise = effects(amounts, np.ones(30), baseline=0)
    assert not noise.differs
    expected = stats.ttest_rel(scores[1], scores[0])
    interval = expected.confidence_interval(0.95)
    assert result.p[1] == pytest.approx(expected.pvalue)
    assert (result.low[1], result.high[1]) == pytest.approx((interval.low, interval.high))
    assert result.degrees[1] == pytest.approx(3)


def test_with_unequal_variances_and_no_variance_of_documents_it_is_welchs_t_test() -> None:
    scores = np.array([[3.100, 3.101, 3.099, 3.1005], [3.18, 3.02, 3.11, 3.27]])
    amounts = np.repeat(scores[..., None], 30, axis=-1)
    result, noise = effects(amounts, np.ones(30), baseline=0)
    assert noise.differs
    assert noise.equal_p == pytest.approx(stats.bartlett(*scores).pvalue)
    expected = stats.ttest_ind(scores[1], scores[0], equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert result.p[1] == pytest.approx(expected.pvalue)
    assert (result.low[1], result.high[1]) == pytest.approx((interval.low, interval.high))


def test_the_pooled_residual_is_that_of_a_two_way_analysis_of_variance() -> None:
    scores = sweep(4, 3, 50).mean(-1)
    _, noise = effects(np.repeat(scores[..., None], 5, axis=-1), np.ones(5), baseline=0)
    arm, seed, grand = scores.mean(1, keepdims=True), scores.mean(0, keepdims=True), scores.mean()
    assert noise.degrees == 3 * 2
    assert noise.residual_variance == pytest.approx(((scores - arm - seed + grand) ** 2).sum() / 6)


def test_with_one_seed_the_variance_is_the_documents_alone_and_there_is_no_p() -> None:
    amounts = sweep(3, 1, 40)
    result, _ = effects(amounts, np.ones(40), baseline=0)
    for arm in (1, 2):
        expected = stats.ttest_1samp(amounts[arm, 0] - amounts[0, 0], 0.0)
        interval = expected.confidence_interval(0.95)
        assert (result.low[arm], result.high[arm]) == pytest.approx((interval.low, interval.high))
    assert np.isnan(result.p).all()
    assert verdicts(result, 0.005)[1:].tolist() == ["seed noise unknown"] * 2


def test_arms_without_a_seed_use_the_seeds_in_common_with_the_baseline() -> None:
    amounts = sweep(4, 3, 40)
    amounts[1, 2] = np.nan
    amounts[2, :2] = np.nan
    result, noise = effects(amounts, np.ones(40), baseline=0)
    assert result.seeds.tolist() == [3, 2, 1, 3]
    assert result.difference[1] == pytest.approx((amounts[1, :2] - amounts[0, :2]).mean())
    assert result.difference[2] == pytest.approx((amounts[2, 2] - amounts[0, 2]).mean())
    assert noise.degrees == 9 - 4 - 3 + 1


def test_an_arm_that_shares_no_seed_with_the_baseline_has_no_difference() -> None:
    amounts = sweep(3, 4, 20)
    amounts[0, 2:] = np.nan
    amounts[1, :2] = np.nan
    result, _ = effects(amounts, np.ones(20), baseline=0)
    assert np.isnan(result.difference[1])
    assert np.isnan(result.p[1])
    assert verdicts(result, 0.005)[1] == "no seed in common"


def test_many_sweeps_at_once_come_out_as_one_by_one() -> None:
    sweeps = np.stack([sweep(4, 3, 25, seed) for seed in range(5)])
    together, _ = effects(sweeps, np.ones(25), baseline=1)
    for i, amounts in enumerate(sweeps):
        alone, _ = effects(amounts, np.ones(25), baseline=1)
        np.testing.assert_allclose(together.low[i], alone.low)
        np.testing.assert_allclose(together.p_adjusted[i], alone.p_adjusted)


def test_the_order_of_documents_does_not_matter_and_a_shared_shift_cancels() -> None:
    amounts, weights = sweep(3, 3, 30), np.random.default_rng(1).integers(50, 500, 30).astype(float)
    amounts *= weights
    result, _ = effects(amounts, weights, baseline=0)
    order = np.random.default_rng(2).permutation(30)
    shuffled, _ = effects(amounts[..., order], weights[order], baseline=0)
    shifted, _ = effects(amounts + np.arange(30.0), weights, baseline=0)
    np.testing.assert_allclose(shuffled.low, result.low, atol=1e-12)
    np.testing.assert_allclose(shifted.low, result.low, atol=1e-12)


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests_and_never_falls() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.005])
    # sorted .005·4 = .02, .01·3 = .03, .03·2 = .06, .04·1 → .06
    np.testing.assert_allclose(holm(p), [0.03, np.nan, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])


def test_holm_does_not_depend_on_the_order_of_the_arms() -> None:
    p = np.random.default_rng(0).uniform(size=12) ** 3
    order = np.random.default_rng(1).permutation(12)
    np.testing.assert_allclose(holm(p)[order], holm(p[order]))


@pytest.mark.parametrize(
    ("difference", "margin", "p", "expected"),
    [
        (-0.02, 0.004, 0.001, "better"),
        (+0.02, 0.004, 0.001, "worse"),
        (-0.005, 0.001, 0.001, "better"),
        (-0.02, 0.03, 0.2, "too noisy"),
        (-0.003, 0.001, 0.001, "no difference"),
        (+0.001, 0.003, 0.4, "no difference"),
        (+0.004, 0.002, 0.01, "too noisy"),
        (+0.001, 0.003, math.nan, "seed noise unknown"),
    ],
)
def test_a_verdict_needs_certainty_and_size(
    difference: float, margin: float, p: float, expected: str
) -> None:
    one = np.array([1])
    result = Effects(
        difference=one * difference,
        low=one * (difference - margin),
        high=one * (difference + margin),
        degrees=one * 10.0,
        p=one * p,
        p_adjusted=one * p,
        seeds=one,
    )
    assert verdicts(result, 0.005)[0] == expected


def test_identical_runs_are_no_difference_and_never_a_division_by_zero() -> None:
    amounts = np.ones((3, 2, 10))
    amounts[2] += 0.1
    result, _ = effects(amounts, np.ones(10), baseline=0)
    assert result.p[1] == 1
    assert result.p[2] < 1e-12
    assert verdicts(result, 0.005)[1:].tolist() == ["no difference", "worse"]


def test_one_document_leaves_an_interval_over_seeds() -> None:
    scores = np.array([[3.10, 3.14, 3.05], [3.08, 3.15, 3.01]])
    result, _ = effects(scores[..., None], np.ones(1), baseline=0)
    assert result.p[1] == pytest.approx(stats.ttest_rel(scores[1], scores[0]).pvalue)


def test_the_bootstrap_agrees_with_the_normal_interval_where_both_hold() -> None:
    amounts = sweep(2, 1, 400)
    low, high = bootstrap_interval(amounts, np.ones(400), baseline=0)
    paired = amounts[1, 0] - amounts[0, 0]
    margin = 1.96 * paired.std(ddof=1) / math.sqrt(400)
    assert low[1] == pytest.approx(paired.mean() - margin, abs=0.1 * margin)
    assert high[1] == pytest.approx(paired.mean() + margin, abs=0.1 * margin)
    assert (low[0], high[0]) == (0, 0)


def test_the_bootstrap_draws_seeds_as_well_as_documents() -> None:
    amounts = np.zeros((2, 3, 20))
    amounts[1] = np.array([0.0, 0.3, 0.6])[:, None]
    low, high = bootstrap_interval(amounts, np.ones(20), baseline=0, draws=4000)
    # The extremes are draws of one seed three times, 1/27 each: past the 2.5 % that an interval leaves out.
    assert (low[1], high[1]) == pytest.approx((0.0, 0.6))


def test_the_bootstrap_bears_missing_seeds() -> None:
    amounts = sweep(3, 3, 20)
    amounts[1, 0] = np.nan
    amounts[2] = np.nan
    low, high = bootstrap_interval(amounts, np.ones(20), baseline=0)
    assert low[1] < np.nanmean(amounts[1] - amounts[0]) < high[1]
    assert np.isnan(low[2])
