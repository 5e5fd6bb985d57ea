"""The comparison as figures, for 6 arms or for 60, with type that a card of 4 × 2 inches can show."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from ilr.comparison.analysis import Comparison
from ilr.comparison.arms import Arm
from ilr.comparison.styles import Style, add_legend, arm_styles, type_size
from ilr.comparison.table import perplexity
from ilr.plotting import GREY

_VERDICT_STYLES = {
    "better": ("#0072B2", "o"),
    "worse": ("#D55E00", "s"),
    "no difference": ("#009E73", "D"),
    "too noisy": ("#606060", "v"),
    "seed noise unknown": ("#606060", "v"),
}
_TYPE: dict[Any, Any] = {
    "font.size": 12,
    "legend.fontsize": 10,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
}
_SIZE = (8.2, 4.2)

BEYOND = 1e100
"""A figure that is not drawn: no axis could show it beside others. The table has it."""


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
    halfway, ends = [], []
    for arm in comparison.evaluation.arms:
        spent, low, mean, high = _mean_curve(comparison, arm, against)
        drawn = high < BEYOND
        spent, low, mean, high = spent[drawn], low[drawn], mean[drawn], high[drawn]
        if not len(spent):
            continue
        style = styles[arm.label]
        look: dict[str, Any] = {"color": style.colour, "marker": style.marker, "zorder": style.layer}
        if style.named:
            axes.plot(spent, mean, markevery=[-1], markersize=8, linewidth=2, label=arm.label, **look)
            axes.fill_between(spent, low, high, color=style.colour, alpha=0.15, linewidth=0)
        else:
            axes.plot(spent, mean, markevery=[-1], linewidth=0.8, **look)
        ends.append(low[-1])
        halfway.append(np.interp((spent[0] + spent[-1]) / 2, spent, high))
    if halfway:
        # Early losses are far higher and would flatten the differences.
        bottom, top = min(ends), max(halfway)
        axes.set_ylim(bottom - 0.06 * (top - bottom), top)
    axes.set_xlabel({"tokens": "training tokens", "training_flops": "training FLOPs"}[against])
    axes.set_ylabel(f"validation {_quantity(comparison)}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    add_legend(figure, axes, styles)
    return figure


def by_parameters(comparison: Comparison) -> Figure:
    """Final figure against parameters, with the arms that no other beats in both."""
    figure, axes = _figure()
    styles = _styles(comparison)
    parameters = comparison.table["parameters"].to_numpy(float)
    scores, spreads = _final(comparison)
    for label, size, score, spread in zip(styles, parameters, scores, spreads, strict=True):
        if not score < BEYOND:
            continue
        style = styles[label]
        axes.errorbar(
            size,
            score,
            yerr=spread if style.named and spread < BEYOND else None,
            fmt=style.marker,
            color=style.colour,
            markersize=8 if style.named else 5,
            zorder=style.layer,
            label=label if style.named else None,
        )
    front = pareto_front(parameters, scores)
    front = front[scores[front] < BEYOND]
    edge = np.append(front, front[-1:])  # the best stays unbeaten up to the largest
    reach = np.append(parameters[front], [parameters.max()] * bool(len(front)))
    axes.step(reach, scores[edge], where="post", color="black", linestyle=":", label="Pareto front")
    axes.set_xlabel("parameters")
    axes.set_ylabel(f"{comparison.evaluation.split} {_quantity(comparison)}")
    if parameters.max() > 5 * parameters.min():
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(0.08)
    add_legend(figure, axes, styles)
    return figure


def effect_intervals(comparison: Comparison, most: int | None) -> Figure:
    """Difference of each arm from the baseline with its 95 % interval, best on top."""
    table = comparison.table[comparison.table["delta"].notna()].sort_values("delta", ignore_index=True)
    left_out = 0
    if most is not None and len(table) > most:
        left_out = len(table) - most
        table = pd.concat([table.head(most // 2), table.tail(most - most // 2)], ignore_index=True)
    figure = Figure(figsize=(_SIZE[0], max(_SIZE[1], 1.4 + 0.3 * len(table))))
    axes = figure.add_subplot()
    if most is not None and left_out:
        axes.axhline(most // 2 - 0.5, color="black", linestyle="--", linewidth=0.8)
    axes.axvspan(-comparison.smallest, comparison.smallest, color="black", alpha=0.08, linewidth=0)
    axes.axvline(0, color="black", linewidth=1)
    for verdict, rows in table.groupby("verdict", sort=False):
        colour, marker = _VERDICT_STYLES.get(str(verdict), (GREY, "x"))
        reach = [rows["delta"] - rows["delta_low"], rows["delta_high"] - rows["delta"]]
        axes.errorbar(
            rows["delta"], rows.index, xerr=reach, fmt=marker, color=colour, label=verdict, capsize=2
        )
    axes.set_yticks(range(len(table)), table["label"], fontsize=type_size(list(table["label"])))
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _bound_by_most(axes, table)
    unit = comparison.evaluation.figure
    axes.set_xlabel(
        f"Δ {comparison.evaluation.split} loss against {comparison.baseline_arm.label}\n({unit}; band: ± δ)"
        + (f"\n{left_out} arms left out at the line" if left_out else "")
    )
    if len(table):
        figure.legend(loc="outside right upper")
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


def _styles(comparison: Comparison) -> dict[str, Style]:
    return arm_styles(list(comparison.table["label"]), comparison.baseline_arm.label)


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
    shown = perplexity if figure == "nats per token" else np.asarray
    return spent, shown(scores.min(0)), shown(scores.mean(0)), shown(scores.max(0))


def _quantity(comparison: Comparison) -> str:
    return "perplexity" if comparison.evaluation.figure == "nats per token" else "bits per byte"


def _final(comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Each arm's figure and its standard deviation over seeds, in the order of the table."""
    if _quantity(comparison) == "bits per byte":
        columns = comparison.table["bits_per_byte"], comparison.table["bits_per_byte_sd"]
    else:
        score = comparison.table["perplexity"]
        columns = score, score * comparison.table["nll_sd"]  # first order: d exp(x) = exp(x) dx
    return columns[0].to_numpy(float), columns[1].to_numpy(float)


def _bound_by_most(axes: Axes, table: pd.DataFrame) -> None:
    """Show every difference and most intervals whole: one very noisy arm must not flatten the others."""
    ends = table[["delta_low", "delta_high"]].abs().max(axis=1)
    if len(table):
        bound = 1.1 * max(table["delta"].abs().max(), ends.quantile(0.8))
        axes.set_xlim(max(axes.get_xlim()[0], -bound), min(axes.get_xlim()[1], bound))
