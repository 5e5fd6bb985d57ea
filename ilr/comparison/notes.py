"""What has to be read before the table: the noise of seeds first, then what was compared and what was not."""

from collections.abc import Iterator

import numpy as np

from ilr.comparison.analysis import Comparison
from ilr.comparison.statistics import EQUAL_VARIANCE_LEVEL

# Arms count as equal in cost if they differ by no more than whole steps and integer sizes make them.
COST_TOLERANCE = 0.02


def notes(comparison: Comparison) -> list[str]:
    """One sentence or two each, most important first; plain text."""
    return [
        *_noise(comparison),
        *_terms(comparison),
        *(f"Warning: {warning}." for warning in comparison.evaluation.warnings),
        *(f"Warning: left out, its files cannot be used: {line}." for line in comparison.damaged),
        *_cost(comparison),
        *_left_out(comparison),
    ]


def _noise(comparison: Comparison) -> Iterator[str]:
    noise, unit = comparison.noise, comparison.evaluation.figure
    if not noise.degrees:
        yield (
            "Seed noise floor: unknown, no two arms share two seeds. Intervals are labelled documents only: "
            "they leave out that another seed gives another model, so nothing here shows a schedule's effect."
        )
        return
    own = np.sqrt(noise.own_variance[np.isfinite(noise.own_variance)])
    yield (
        f"Seed noise floor: sd {np.sqrt(noise.residual_variance):.2g} {unit} (arm × seed residual, "
        f"{noise.degrees} degree{'s' * (noise.degrees > 1)} of freedom); the arms' own sd over seeds goes from "
        f"{own.min():.2g} to {own.max():.2g}."
    )
    if noise.differs:
        yield (
            f"The arms' seed variances differ (Bartlett's test, p = {noise.equal_p:.2g}, below the lenient "
            f"{EQUAL_VARIANCE_LEVEL:.2g} of a preliminary test): intervals use the two arms' own variances "
            "(Welch). Two or three seeds hardly show a variance; more seeds for the noisy arms help most."
        )
    others = np.arange(len(comparison.evaluation.arms)) != comparison.baseline
    margins = (comparison.result.high - comparison.result.low)[others] / 2
    if np.isfinite(margins).any():
        yield f"The median 95 % interval is ± {np.nanmedian(margins):.2g}; smaller differences do not show."


def _terms(comparison: Comparison) -> Iterator[str]:
    evaluation, arms = comparison.evaluation, comparison.evaluation.arms
    share = (arms[0].first.share_of_split or {}).get(evaluation.split, 1)
    part = "" if share == 1 else f"the first {100 * share:.3g} % of "
    yield (
        f"Compared on {part}the {evaluation.split} split, {len(evaluation.weights)} documents, "
        f"{sum(len(arm.runs) for arm in arms)} runs of {len(arms)} arms, against the baseline "
        f"{comparison.baseline_arm.label}. Δ in {evaluation.figure}, below 0 is better; p by Holm over the "
        f"arms; differences under {comparison.smallest:g} count as none."
    )
    if evaluation.split == "validation":
        yield "Not every run was tested: this is the validation split, which may have chosen the settings."
    uneven = [arm.label for arm in arms if len(arm.runs) != len(evaluation.seeds)]
    if uneven:
        yield (
            f"Not every arm has every seed ({_some(uneven)}): "
            "Δ is over the seeds in common with the baseline, means are over all seeds of the arm."
        )
    if len(evaluation.weights) == 1:
        yield "There is one document: the intervals cover seeds only."


def _cost(comparison: Comparison) -> Iterator[str]:
    table = comparison.table
    spreads = {
        "tokens": table["tokens"].max() / table["tokens"].min() - 1,
        "training FLOPs": table["training_flops"].max() / table["training_flops"].min() - 1,
    }
    if min(spreads.values()) > COST_TOLERANCE:
        listed = ", ".join(f"{name} up to {spread:.0%} apart" for name, spread in spreads.items())
        yield f"Warning: the arms are equal neither in tokens nor in training FLOPs ({listed})."


def _left_out(comparison: Comparison) -> Iterator[str]:
    if len(comparison.diverged):
        described = [
            f"{row.label} ({row.diverged_seeds} of {row.seeds} seeds)"
            for row in comparison.diverged.itertuples()
        ]
        yield f"Diverged, listed and not ranked: {', '.join(described)}."
    if comparison.stopped:
        names = [str(path) for path in comparison.stopped]
        yield f"Stopped before their last step, can go on, not compared ({len(names)}): {_some(names)}."
    if comparison.unfinished:
        names = [str(path) for path in comparison.unfinished]
        yield f"Unfinished, not compared ({len(names)}): {_some(names)}."
    if comparison.repeated:
        names = [str(path) for path in comparison.repeated]
        yield f"Left out, another run has the same configuration and seeds ({len(names)}): {_some(names)}."


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
