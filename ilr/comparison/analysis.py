"""From directories to a comparison: the one function behind `ilr compare`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from ilr.comparison import SMALLEST_EFFECT
from ilr.comparison.arms import Arm, choose_baseline, group
from ilr.comparison.evaluation import Evaluation, choose_split, evaluate
from ilr.comparison.resampling import bootstrap_interval
from ilr.comparison.runs import Curve, find_runs, read_curve
from ilr.comparison.statistics import Effects, SeedNoise, effects, verdicts
from ilr.comparison.table import comparison_table, diverged_table
from ilr.errors import InputError


@dataclass(frozen=True)
class Comparison:
    """Everything that is told, drawn or written about some finished runs."""

    evaluation: Evaluation
    baseline: int
    result: Effects
    noise: SeedNoise
    smallest: float
    table: pd.DataFrame  # ranked arms, best first
    diverged: pd.DataFrame
    curves: dict[Path, Curve]
    unfinished: tuple[Path, ...]
    repeated: tuple[Path, ...]

    @property
    def baseline_arm(self) -> Arm:
        """The arm that the others are measured against."""
        return self.evaluation.arms[self.baseline]


def compare(
    paths: Iterable[Path],
    baseline: str | None = None,
    split: Literal["auto", "validation", "test"] = "auto",
    smallest: float = SMALLEST_EFFECT,
) -> Comparison:
    """Compare the finished runs at or below these paths.

    Args:
        paths: Run directories, or directories above them.
        baseline: Label of the arm to measure against; by default the plain model.
        split: Text to compare on; by default test where every run was tested on it.
        smallest: Smallest difference of interest, in the unit that arms are ranked by.
    """
    if not smallest > 0:
        raise InputError(f"--delta must be above 0, got {smallest}")
    runs, unfinished = find_runs(paths)
    if not runs:
        raise InputError(f"no finished run found ({len(unfinished)} unfinished)")
    arms, repeated = group(runs)
    reference = choose_baseline(arms, baseline)
    ranked = [arm for arm in arms if not arm.diverged]
    ranked_runs = [run for arm in ranked for run in arm.runs.values()]
    evaluation = evaluate(ranked, choose_split(ranked_runs, split))
    index = ranked.index(reference)
    result, noise = effects(evaluation.amounts, evaluation.weights, index)
    bootstrap = bootstrap_interval(evaluation.amounts, evaluation.weights, index)
    curves = {run.path: read_curve(run) for run in ranked_runs}
    verdict = [str(word) for word in np.atleast_1d(verdicts(result, smallest))]
    return Comparison(
        evaluation=evaluation,
        baseline=index,
        result=result,
        noise=noise,
        smallest=smallest,
        table=comparison_table(evaluation, index, result, bootstrap, verdict, curves),
        diverged=diverged_table([arm for arm in arms if arm.diverged]),
        curves=curves,
        unfinished=tuple(unfinished),
        repeated=tuple(repeated),
    )
