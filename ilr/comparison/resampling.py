"""Bootstrap interval of each difference, over documents and seeds at once.

A second opinion that assumes no normal distribution. With few seeds it is too narrow, since two or
three runs cannot show how far a fourth would lie; hence it stands beside the interval by t.
"""

import numpy as np

from ilr.comparison.statistics import CONFIDENCE

_BATCH = 200


def bootstrap_interval(
    amounts: np.ndarray, weights: np.ndarray, baseline: int, draws: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval (A,), (A,) of each arm's difference from the baseline.

    Every draw takes seeds and documents with replacement, the same for all arms, so that they stay paired.

    Args:
        amounts: NLL (A, S, N), NaN where an arm lacks a seed.
        weights: Scored tokens (N,).
        baseline: Index of the arm to compare with.
        draws: Number of resamples.
        seed: Of the resampling itself.
    """
    generator = np.random.default_rng(seed)
    arms, seeds, documents = amounts.shape
    paired = amounts - amounts[[baseline]]
    common = ~np.isnan(paired[..., 0])
    flat = np.where(common[..., None], paired, 0.0).reshape(arms * seeds, documents)
    differences = []
    for start in range(0, draws, _BATCH):
        size = min(_BATCH, draws - start)
        picked = generator.multinomial(documents, np.full(documents, 1 / documents), size)
        scores = (picked @ flat.T / (picked @ weights)[:, None]).reshape(size, arms, seeds)
        chosen = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size)
        with np.errstate(invalid="ignore"):  # a draw may hold none of the seeds in common: NaN
            differences.append(np.einsum("bs,bas->ba", chosen, scores) / (chosen @ common.T))
    outside = (1 - CONFIDENCE) / 2
    all_draws = np.concatenate(differences)
    usable = ~np.isnan(all_draws).all(0)
    low, high = np.full(arms, np.nan), np.full(arms, np.nan)
    low[usable], high[usable] = np.nanquantile(all_draws[:, usable], [outside, 1 - outside], axis=0)
    return low, high
