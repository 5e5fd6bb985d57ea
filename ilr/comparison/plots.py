"""The comparison as figures, for 6 arms or for 60, large enough in type for a small card."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ilr.comparison.analysis import Comparison
from ilr.comparison.arms import Arm

# Okabe and Ito's colours, told apart also by colour-blind readers; yellow is too pale for lines.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_GREY = "#B0B0B0"
_VERDICT_STYLES = {
    "better": ("#0072B2", "o"),
    "worse": ("#D55E00", "s"),
    "no difference": ("#009E73", "D"),
    "too noisy": ("#808080", "x"),
    "seed noise unknown": ("#808080", "x"),
}
_TYPE: dict[Any, Any] = {
    "font.size": 12,
    "legend.fontsize": 10,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}
_SIZE = (6.4, 4.6)
_FEW, _BEST = len(_COLOURS), 5


@dataclass(frozen=True)
class _Style:
    colour: str
    marker: str
    named: bool


def draw(comparison: Comparison, most_effects: int | None = None) -> dict[str, Figure]:
    """All figures by name. `most_effects` bounds the rows of the last one, for a card of fixed size."""
    with rc_context(_TYPE):
        return {
            "perplexity_by_tokens": curves(comparison, "tokens"),
            "perplexity_by_flops": curves(comparison, "training_flops"),
            "perplexity_by_parameters": by_parameters(comparison),
            "effects": effect_intervals(comparison, most_effects),
        }


def curves(comparison: Comparison, against: Literal["tokens", "training_flops"]) -> Figure:
    """Validation during training, one line per arm: mean over seeds, with their range as a band."""
    figure, axes = _figure()
    styles = _styles(comparison)
    tops = []
    for arm in _drawing_order(comparison, styles):
        spent, low, mean, high = _mean_curve(comparison, arm, against)
        if not len(spent):
            continue
        style = styles[arm.label]
        width = 2.0 if style.named else 0.8
        axes.plot(spent, mean, color=style.colour, linewidth=width, label=arm.label if style.named else None)
        if style.named:
            axes.plot(spent[-1:], mean[-1:], style.marker, color=style.colour)
            axes.fill_between(spent, low, high, color=style.colour, alpha=0.15, linewidth=0)
        tops.append(np.interp(spent[0] + (spent[-1] - spent[0]) / 5, spent, high))
    if tops:
        # The first steps are hundreds of times worse than the end and would flatten the rest.
        axes.set_ylim(top=max(tops))
    axes.set_xlabel({"tokens": "training tokens", "training_flops": "training FLOPs"}[against])
    axes.set_ylabel(f"validation {_quantity(comparison)}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _legend(axes, styles, "upper right")
    return figure


def by_parameters(comparison: Comparison) -> Figure:
    """Final figure against parameters, with the arms that no other beats in both."""
    figure, axes = _figure()
    styles = _styles(comparison)
    parameters = comparison.table["parameters"].to_numpy(float)
    scores, spreads = _final(comparison)
    labels = list(comparison.table["label"])
    for i in sorted(range(len(labels)), key=lambda i: styles[labels[i]].named):
        style = styles[labels[i]]
        axes.errorbar(
            parameters[i],
            scores[i],
            yerr=None if np.isnan(spreads[i]) else spreads[i],
            fmt=style.marker,
            color=style.colour,
            markersize=8 if style.named else 5,
            label=labels[i] if style.named else None,
        )
    front = pareto_front(parameters, scores)
    axes.step(
        parameters[front], scores[front], where="post", color="black", linestyle=":", label="Pareto front"
    )
    axes.set_xlabel("parameters")
    axes.set_ylabel(f"{comparison.evaluation.split} {_quantity(comparison)}")
    if parameters.max() > 5 * parameters.min():
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(0.08)
    _legend(axes, styles, "best")
    return figure


def effect_intervals(comparison: Comparison, most: int | None) -> Figure:
    """Difference of each arm from the baseline with its 95 % interval, best on top."""
    table = comparison.table[comparison.table["delta"].notna()].sort_values("delta", ignore_index=True)
    left_out = 0
    if most is not None and len(table) > most:
        left_out = len(table) - most
        table = pd.concat([table.head(most // 2), table.tail(most - most // 2)], ignore_index=True)
    figure = Figure(figsize=(_SIZE[0], max(_SIZE[1], 1.6 + 0.26 * len(table))))
    axes = figure.add_subplot()
    axes.axvspan(-comparison.smallest, comparison.smallest, color="black", alpha=0.08, linewidth=0)
    axes.axvline(0, color="black", linewidth=1)
    for verdict, rows in table.groupby("verdict", sort=False):
        colour, marker = _VERDICT_STYLES.get(str(verdict), (_GREY, "x"))
        reach = [rows["delta"] - rows["delta_low"], rows["delta_high"] - rows["delta"]]
        axes.errorbar(
            rows["delta"], rows.index, xerr=reach, fmt=marker, color=colour, label=verdict, capsize=2
        )
    axes.set_yticks(range(len(table)), table["label"], fontsize=12 if len(table) <= 12 else 9)
    axes.set_ylim(len(table) - 0.4, -0.6)
    _bound_by_most(axes, table)
    unit = comparison.evaluation.figure
    axes.set_xlabel(
        f"Δ {comparison.evaluation.split} loss against {comparison.baseline_arm.label}\n({unit}; band: ± δ)"
    )
    if left_out:
        axes.axhline(most // 2 - 0.5 if most else 0, color="black", linestyle="--", linewidth=0.8)
        axes.set_title(f"{left_out} arms between are left out", fontsize=10)
    if len(table):
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0 + 0.3 * bool(left_out) / len(table)), ncols=2
        )
    return figure


def pareto_front(cost: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Indices, by rising cost, of the points that no other point beats in both (lower is better)."""
    order = np.lexsort((score, cost))
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], score[order][:-1]]))
    return order[score[order] < best_before]


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE)
    axes = figure.add_subplot()
    axes.grid(alpha=0.25)
    return figure, axes


def _styles(comparison: Comparison) -> dict[str, _Style]:
    """The baseline in black, every other arm in a colour where these suffice, else the best few."""
    baseline = comparison.baseline_arm.label
    others = [label for label in comparison.table["label"] if label != baseline]
    coloured = others if len(others) <= _FEW else others[:_BEST]
    styles = {label: _Style(_GREY, ".", named=False) for label in others}
    for label, colour, marker in zip(coloured, _COLOURS, _MARKERS, strict=False):
        styles[label] = _Style(colour, marker, named=True)
    return styles | {baseline: _Style("black", "*", named=True)}


def _drawing_order(comparison: Comparison, styles: dict[str, _Style]) -> Iterable[Arm]:
    """Unnamed arms below the named ones; these in order of rank, which is the legend's."""
    by_label = {arm.label: arm for arm in comparison.evaluation.arms}
    return (
        by_label[label] for label in sorted(comparison.table["label"], key=lambda label: styles[label].named)
    )


def _legend(axes: Axes, styles: dict[str, _Style], place: Literal["best", "upper right"]) -> None:
    unnamed = sum(not style.named for style in styles.values())
    if unnamed:
        axes.plot([], [], color=_GREY, linewidth=0.8, marker=".", label=f"{unnamed} other arms")
    axes.legend(loc=place)


def _mean_curve(
    comparison: Comparison, arm: Arm, against: Literal["tokens", "training_flops"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Position, lowest, mean and highest over seeds, at the validations of the arm's first run."""
    every = [comparison.curves[run.path] for run in arm.runs.values()]
    spent = np.asarray(getattr(every[0], against))
    if not all(len(curve.tokens) for curve in every):
        return (np.empty(0),) * 4
    figure = comparison.evaluation.figure
    scores = np.array([np.interp(spent, getattr(curve, against), curve.scores(figure)) for curve in every])
    shown = np.exp if figure == "nats per token" else np.asarray
    return spent, shown(scores.min(0)), shown(scores.mean(0)), shown(scores.max(0))


def _quantity(comparison: Comparison) -> str:
    return "perplexity" if comparison.evaluation.figure == "nats per token" else "bits per byte"


def _final(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Each arm's figure and its standard deviation over seeds, in the order of the table."""
    if _quantity(comparison) == "bits per byte":
        columns = comparison.table["bits_per_byte"], comparison.table["bits_per_byte_sd"]
    else:
        perplexity = comparison.table["perplexity"]
        columns = perplexity, perplexity * comparison.table["nll_sd"]  # first order: d exp(x) = exp(x) dx
    return columns[0].to_numpy(float), columns[1].to_numpy(float)


def _bound_by_most(axes: Axes, table: pd.DataFrame) -> None:
    """Show every difference and most intervals whole: one very noisy arm must not flatten the others."""
    ends = table[["delta_low", "delta_high"]].abs().max(axis=1)
    if len(table):
        bound = 1.1 * max(table["delta"].abs().max(), ends.quantile(0.8))
        axes.set_xlim(max(axes.get_xlim()[0], -bound), min(axes.get_xlim()[1], bound))
