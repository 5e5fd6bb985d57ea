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
from ilr.comparison.runs import Curve, find_runs, read_all
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
    stopped: tuple[Path, ...]
    damaged: tuple[str, ...]
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
    found = find_runs(paths)
    with_result = [run for run in found.runs if run.status == "finished"]
    readings, unreadable = read_all(with_result)
    runs = [run for run in found.runs if run.status == "diverged" or run.path in readings]
    damaged = (*found.damaged, *unreadable)
    if not runs:
        left_out = f"{len(found.unfinished)} unfinished"
        left_out += f", {len(found.stopped)} stopped before the last step" if found.stopped else ""
        raise InputError("; ".join([f"no finished run found ({left_out})", *damaged]))
    arms, repeated = group(runs)
    reference = choose_baseline(arms, baseline)
    ranked = [arm for arm in arms if not arm.diverged]
    ranked_runs = [run for arm in ranked for run in arm.runs.values()]
    evaluation = evaluate(ranked, choose_split(ranked_runs, split), readings)
    index = ranked.index(reference)
    result, noise = effects(evaluation.amounts, evaluation.weights, index)
    bootstrap = bootstrap_interval(evaluation.amounts, evaluation.weights, index)
    curves = {run.path: readings[run.path].curve for run in ranked_runs}
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
        unfinished=found.unfinished,
        stopped=found.stopped,
        damaged=damaged,
        repeated=tuple(repeated),
    )
