"""The smallest true difference that a planned sweep would find, from how many seeds and documents it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from ilr.comparison.arms import choose_baseline, group
from ilr.comparison.evaluation import choose_split, evaluate
from ilr.comparison.runs import find_runs, read_all
from ilr.comparison.statistics import CONFIDENCE, seed_noise

POWER = 0.8
LEVEL = 1 - CONFIDENCE
SEED_SD = 0.01
DOCUMENT_SD = 0.05
"""Noise where nothing says: a first look saw seed sds from 0.001 to 0.04 nats."""


@dataclass(frozen=True)
class Noise:
    """What moves a score besides the arm, in nats per token, and where these figures come from.

    ``seed_sd`` is between runs of one arm; ``document_sd`` is of one document's paired difference between two
    arms. The documents count alike; ``documents`` is their number where it has been seen.
    """

    seed_sd: float
    document_sd: float
    source: str
    documents: int | None = None


def assumed(seed_sd: float | None) -> Noise:
    """Noise with this sd of seeds, or a usual one; `ilr compare` says the real one."""
    if seed_sd is None:
        return Noise(SEED_SD, DOCUMENT_SD, "noise assumed")
    return Noise(seed_sd, DOCUMENT_SD, "noise of seeds as given, of documents assumed")


def measured(directories: Sequence[Path]) -> Noise | None:
    """The noise of finished runs, or None where they are too few to tell: two arms with two seeds."""
    found = find_runs(directories).runs
    readings, _ = read_all(run for run in found if run.status == "finished")
    runs = [run for run in found if run.status == "diverged" or run.path in readings]
    arms = [arm for arm in group(runs)[0] if not arm.diverged and len(arm.runs) > 1]
    if len(arms) < 2:
        return None
    split = choose_split([run for arm in arms for run in arm.runs.values()], "auto")
    evaluation = evaluate(arms, split, readings)
    scores = evaluation.scores
    noise = seed_noise(scores, ~np.isnan(scores))
    if not np.isfinite(noise.residual_variance):
        return None
    baseline = evaluation.arms.index(choose_baseline(arms, None))
    others = np.arange(len(arms)) != baseline
    paired = (evaluation.amounts - evaluation.amounts[baseline])[others]  # (A-1, S, N)
    beyond = paired - paired.sum(-1, keepdims=True) * evaluation.weights / evaluation.weights.sum()
    share = np.nanmean(beyond, axis=1) / evaluation.weights.mean()  # (A-1, N), nats per token
    return Noise(
        seed_sd=float(np.sqrt(noise.residual_variance)),
        document_sd=float(np.sqrt((share**2).sum(-1).mean() / max(share.shape[-1] - 1, 1))),
        source=f"noise measured on {len(runs)} finished runs",
        documents=share.shape[-1],
    )


def detectable(noise: Noise, arms: int, seeds: int, documents: int | None) -> float:
    """Difference from the baseline, in nats per token, found with a probability of 80 %.

    As `ilr compare` tests it: variance 2·MSE/S of seeds with (A-1)(S-1) degrees of freedom plus that of the
    documents with N-1, Satterthwaite, Holm's first step over the A-1 arms. Without a second seed it is NaN:
    such a sweep cannot tell an arm from a seed. Where arms seem to differ in noise, compare asks for more.
    """
    if seeds < 2 or arms < 2:
        return float("nan")
    by_seeds = 2 * noise.seed_sd**2 / seeds
    by_documents = noise.document_sd**2 / documents if documents and documents > 1 else 0.0
    spread = by_seeds**2 / ((arms - 1) * (seeds - 1))
    if documents and documents > 1:
        spread += by_documents**2 / (documents - 1)
    variance = by_seeds + by_documents
    degrees = variance**2 / spread if spread else np.inf
    level = LEVEL / (arms - 1)
    quantiles = stats.t.ppf(1 - level / 2, degrees) + stats.t.ppf(POWER, degrees)
    return float(quantiles * np.sqrt(variance))
