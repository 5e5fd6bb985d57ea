"""One row per arm, numbers only: what `comparison.csv` holds and every other form is made from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ilr.comparison.arms import Arm
from ilr.comparison.evaluation import Evaluation
from ilr.comparison.reach import spent_to_reach
from ilr.comparison.runs import Curve
from ilr.comparison.statistics import Effects


def comparison_table(
    evaluation: Evaluation,
    baseline: int,
    result: Effects,
    bootstrap: tuple[np.ndarray, np.ndarray],
    verdict: Sequence[str],
    curves: Mapping[Path, Curve],
) -> pd.DataFrame:
    """The ranked arms, best first. Differences and intervals are in the evaluation's figure."""
    per_token = evaluation.figure == "nats per token"
    score = np.nanmean(evaluation.scores, axis=1)
    reference = evaluation.arms[baseline]
    rows = []
    for i, arm in enumerate(evaluation.arms):
        is_baseline = i == baseline
        spent = spent_to_reach(arm, reference, curves, evaluation.figure)
        rows.append(
            _configuration(arm)
            | {
                "split": evaluation.split,
                "figure": evaluation.figure,
                "nll_mean": score[i] if per_token else np.nan,
                "nll_sd": _sd(evaluation.scores[i]) if per_token else np.nan,
                "perplexity": perplexity(score[i]) if per_token else np.nan,
                "bits_per_byte": np.nanmean(evaluation.bits_per_byte[i]),
                "bits_per_byte_sd": _sd(evaluation.bits_per_byte[i]),
                "delta": np.nan if is_baseline else result.difference[i],
                "delta_low": np.nan if is_baseline else result.low[i],
                "delta_high": np.nan if is_baseline else result.high[i],
                "interval_covers": "" if is_baseline else _covers(result, i, len(evaluation.weights)),
                "bootstrap_low": np.nan if is_baseline else bootstrap[0][i],
                "bootstrap_high": np.nan if is_baseline else bootstrap[1][i],
                "p": result.p[i],
                "p_adjusted": result.p_adjusted[i],
                "verdict": "baseline" if is_baseline else verdict[i],
                "flops_to_baseline": spent.training_flops,
                "seconds_to_baseline": spent.seconds,
            }
        )
    order = np.argsort(score, kind="stable")
    return pd.DataFrame([rows[i] for i in order])


def perplexity(loss: np.ndarray) -> np.ndarray:
    """Perplexities of losses in nats per token; infinite above about 709."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(loss))


def diverged_table(arms: Sequence[Arm]) -> pd.DataFrame:
    """Arms with a diverged seed: what they are, and no figure, not even of the seeds that ended well."""
    return pd.DataFrame([_configuration(arm) | {"verdict": "diverged"} for arm in arms])


def _configuration(arm: Arm) -> dict[str, object]:
    runs = list(arm.runs.values())
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second]
    return {
        "label": arm.label,
        "sharing": _text(arm.first.sharing),
        "positions": arm.first.positions,
        "injection": _text(arm.first.injection),
        "learning_rate": arm.first.learning_rate,
        "depth": arm.first.depth,
        "seeds": len(runs),
        "diverged_seeds": len(arm.diverged),
        "parameters": arm.first.parameters,
        "flops_per_token": arm.first.flops_per_token,
        "tokens": max(run.tokens for run in runs),
        "training_flops": max(run.training_flops for run in runs),
        "tokens_per_second": float(np.mean(speeds)) if speeds else np.nan,
        "held_equal": arm.first.held_equal or "",
    }


def _sd(scores: np.ndarray) -> float:
    known = scores[~np.isnan(scores)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else np.nan


def _covers(result: Effects, arm: int, num_documents: int) -> str:
    if num_documents == 1:
        return "" if np.isnan(result.p[arm]) else "seeds only"
    return "documents only" if np.isnan(result.p[arm]) else "seeds and documents"


def _text(value: object) -> str:
    return "none" if value in (None, False, "") else str(value)
