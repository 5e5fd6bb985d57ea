"""What a difference between arms is worth: its variance, interval, p and verdict.

A run's score is its total NLL over the scored tokens. The difference of an arm from the baseline,
averaged over seeds, varies for two reasons: other seeds would have given other runs, and other
documents another text. Both count here. Arrays may have leading axes (simulated sweeps); below A is
arms, S seeds, N documents.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
# A preliminary test of equal variances has to be lenient: at the usual .05 it misses, with two or
# three seeds, most arms that are far noisier than the others, and those then look certain.
EQUAL_VARIANCE_LEVEL = 0.25


@dataclass(frozen=True)
class SeedNoise:
    """How much runs of one arm differ by their seeds, in the unit of the score."""

    residual_variance: np.ndarray  # (...), arm × seed residual, pooled over arms; NaN with one seed
    degrees: int
    own_variance: np.ndarray  # (..., A), each arm's variance over its seeds
    own_degrees: np.ndarray  # (A,)
    equal_p: np.ndarray  # (...), Bartlett's test that the own variances are equal

    @property
    def differs(self) -> np.ndarray:
        """Whether arms have to be taken at their own variances."""
        return self.equal_p < EQUAL_VARIANCE_LEVEL


@dataclass(frozen=True)
class Effects:
    """Each arm's difference from the baseline, (..., A) each; the baseline itself has difference 0."""

    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray
    degrees: np.ndarray
    p: np.ndarray  # NaN for the baseline, and where the noise of seeds is unknown
    p_adjusted: np.ndarray
    seeds: np.ndarray  # (A,), seeds that the arm has in common with the baseline


def effects(amounts: np.ndarray, weights: np.ndarray, baseline: int) -> tuple[Effects, SeedNoise]:
    """Compare every arm with the baseline.

    The variance of a difference is that of seeds, 2·MSE/S by the pooled residual or, where the arms'
    variances differ, the sum of the two arms' own (Welch), plus that of documents; degrees of freedom
    by Satterthwaite, at most those of the two arms' seeds in Welch's case. With one seed it is that of
    documents alone, and there is no p.

    Args:
        amounts: NLL (..., A, S, N), NaN where an arm lacks a seed (in all leading axes alike).
        weights: Scored tokens (N,).
        baseline: Index of the arm to compare with.
    """
    scores = amounts.sum(-1) / weights.sum()  # (..., A, S)
    present = ~np.isnan(scores).reshape(-1, *scores.shape[-2:])[0]
    common = present & present[baseline]
    seeds = common.sum(-1)
    noise = seed_noise(scores, present)
    by_seed = np.where(common, scores - scores[..., [baseline], :], 0.0)
    difference = by_seed.sum(-1) / np.where(seeds > 0, seeds, np.nan)

    document, document_spread = _document_variance(amounts, weights, by_seed, common, baseline)
    seed, seed_spread = _seed_variance(noise, seeds, baseline)
    known = np.isfinite(seed)
    variance = document + np.where(known, seed, 0.0)
    spread = document_spread + np.where(known, seed_spread, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = np.where(spread > 0, variance**2 / spread, np.inf)
        # Welch's bound, held with documents too: two seeds that came out alike by luck would otherwise
        # leave the documents' many degrees, and certainty that is not there.
        bound = noise.own_degrees + noise.own_degrees[baseline]
        degrees = np.where(known & noise.differs[..., None], np.minimum(degrees, bound), degrees)
        t = np.where(difference == 0, 0.0, np.abs(difference) / np.sqrt(variance))
    margin = stats.t.ppf((1 + CONFIDENCE) / 2, degrees) * np.sqrt(variance)
    p = np.where(known, 2 * stats.t.sf(t, degrees), np.nan)
    p[..., baseline] = np.nan
    result = Effects(difference, difference - margin, difference + margin, degrees, p, holm(p), seeds)
    return result, noise


def seed_noise(scores: np.ndarray, present: np.ndarray) -> SeedNoise:
    """Residual of scores (..., A, S) after arm and seed effects, and the variance of each arm alone."""
    arms, seeds = present.shape
    arm, seed = np.nonzero(present)
    design = np.hstack([np.eye(arms)[arm], np.eye(seeds)[seed]])
    observed = scores[..., arm, seed]  # (..., cells)
    degrees = len(arm) - int(np.linalg.matrix_rank(design))
    residual = observed - observed @ (design @ np.linalg.pinv(design))
    pooled = (residual**2).sum(-1) / degrees if degrees else np.full(scores.shape[:-2], np.nan)

    counts = present.sum(-1)
    filled = np.where(present, scores, 0.0)
    deviation = np.where(present, scores - (filled.sum(-1) / counts)[..., None], 0.0)
    own = (deviation**2).sum(-1) / np.where(counts > 1, counts - 1, np.nan)
    repeated = np.flatnonzero(counts > 1)
    if len(repeated) < 2:
        equal_p = np.ones(scores.shape[:-2])
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            groups = [scores[..., i, present[i]] for i in repeated]
            equal_p = np.asarray(stats.bartlett(*groups, axis=-1).pvalue)
        equal_p = np.where(np.isnan(equal_p), 1.0, equal_p)
    return SeedNoise(pooled, degrees, own, counts - 1, equal_p)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's step-down adjustment along the last axis; NaN is not a test and stays NaN."""
    order = np.argsort(p, axis=-1)  # NaN last
    tests = np.isfinite(p).sum(-1, keepdims=True)
    scaled = np.take_along_axis(p, order, -1) * (tests - np.arange(p.shape[-1]))
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0), -1)
    return adjusted


def verdicts(result: Effects, smallest: float) -> np.ndarray:
    """In words, (..., A): a difference counts if it is both beyond chance and at least `smallest`."""
    beyond_chance = result.p_adjusted < 1 - CONFIDENCE
    return np.select(
        [
            result.seeds == 0,
            np.isnan(result.p),
            beyond_chance & (result.difference <= -smallest),
            beyond_chance & (result.difference >= smallest),
            (result.low > -smallest) & (result.high < smallest),
        ],
        ["no seed in common", "seed noise unknown", "better", "worse", "no difference"],
        "too noisy",
    )


def _seed_variance(noise: SeedNoise, seeds: np.ndarray, baseline: int) -> tuple[np.ndarray, np.ndarray]:
    """Variance from seeds of each difference, and Satterthwaite's sum of variance² / degrees."""
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = 2 * noise.residual_variance[..., None] / seeds
        own = noise.own_variance / seeds
        own_spread = own**2 / noise.own_degrees
        reference = noise.own_variance[..., [baseline]] / seeds
        reference_spread = reference**2 / noise.own_degrees[baseline]
        differs = noise.differs[..., None]
        variance = np.where(differs, own + reference, pooled)
        spread = np.where(differs, own_spread + reference_spread, pooled**2 / noise.degrees)
    return variance, spread


def _document_variance(
    amounts: np.ndarray, weights: np.ndarray, by_seed: np.ndarray, common: np.ndarray, baseline: int
) -> tuple[np.ndarray, np.ndarray]:
    """Variance from documents of each difference, paired by document, and variance² / degrees.

    The spread of a document's difference, averaged over seeds, also holds what varies by document and
    seed together, and that is in the residual of the run scores already; it is taken out, never below 0.
    """
    total, count = weights.sum(), len(weights)
    if count < 2:
        return np.zeros(by_seed.shape[:-1]), np.zeros(by_seed.shape[:-1])
    paired = np.where(common[..., None], amounts - amounts[..., [baseline], :, :], 0.0)
    # What a document adds beyond its share of tokens; linear, since the score is a ratio of sums.
    beyond = (paired - by_seed[..., None] * weights) / total  # (..., A, S, N)
    seeds = np.where(common.sum(-1) > 0, common.sum(-1), np.nan)
    average = beyond.sum(-2) / seeds[:, None]
    both = (average**2).sum(-1) * count / (count - 1)
    interaction = np.where(common[..., None], beyond - average[..., None, :], 0.0)
    interaction_degrees = (seeds - 1) * (count - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        together = np.where(
            seeds > 1, (interaction**2).sum((-2, -1)) * count / (interaction_degrees * seeds), 0.0
        )
        together_spread = np.where(seeds > 1, together**2 / interaction_degrees, 0.0)
    spread = both**2 / (count - 1) + together_spread
    return np.maximum(both - together, 0.0), np.where(both > together, spread, 0.0)
