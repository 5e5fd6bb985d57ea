"""What an arm spends until it is as good as the baseline ends up."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ilr.comparison.arms import Arm
from ilr.comparison.runs import Curve, Figure


@dataclass(frozen=True)
class Spent:
    """Means over seeds; infinite where a seed never gets there, NaN where unknown."""

    training_flops: float
    seconds: float


def spent_to_reach(arm: Arm, baseline: Arm, curves: Mapping[Path, Curve], figure: Figure) -> Spent:
    """Over the seeds in common, each against the baseline's last validation loss with that seed.

    Seconds are tokens at the run's mean speed.
    """
    flops, seconds = [], []
    for seeds in sorted(arm.runs.keys() & baseline.runs.keys()):
        run = arm.runs[seeds]
        curve, reference = curves[run.path], curves[baseline.runs[seeds].path].scores(figure)
        target = reference[-1] if len(reference) else np.nan
        flops.append(first_crossing(curve.training_flops, curve.scores(figure), target))
        tokens = first_crossing(curve.tokens, curve.scores(figure), target)
        seconds.append(tokens / run.tokens_per_second if run.tokens_per_second else np.nan)
    return Spent(_mean(flops), _mean(seconds))


def first_crossing(spent: np.ndarray, loss: np.ndarray, target: float) -> float:
    """Where a loss first is at or below the target, linear between points.

    Infinite where it never is, NaN where there is nothing to tell from.
    A validation that gave no number is passed over.
    """
    spent, loss = spent[np.isfinite(loss)], loss[np.isfinite(loss)]
    if not len(loss) or np.isnan(target):
        return float("nan")
    below = np.flatnonzero(loss <= target)
    if not len(below):
        return float("inf")
    i = int(below[0])
    if i == 0:
        return float(spent[0])
    return float(np.interp(-target, -loss[i - 1 : i + 1], spent[i - 1 : i + 1]))


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
