"""Figures of one set of weights under many schedules."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ilr.analysis.choice import Landscape, LayerCurve, PairMap, best_within, front
from ilr.analysis.schedules import Evaluated, Row
from ilr.plotting import GREY, MAP, ink, layer_style, panels, styled

_MOST_PAIRS = 15
_MOST_WRITTEN = 36


def draw(evaluated: Evaluated, landscape: Landscape, budget: float) -> dict[str, Figure]:
    """All figures by name: loss against cost, one line per layer, a map for every two layers."""
    trained = evaluated.rows[0]
    curves, pairs = landscape.curves(), landscape.pairs()
    with styled():
        figures = {"schedules_cost": against_cost(evaluated.rows, trained, budget)}
        if curves:
            figures["schedules_layers"] = sensitivity(curves, landscape, trained)
        for pair in pairs[:_MOST_PAIRS]:
            name = f"schedules_layers_{pair.layers[0]}_{pair.layers[1]}"
            figures[name] = heat_map(pair, landscape, trained)
    return figures


def against_cost(rows: Sequence[Row], trained: Row, budget: float) -> Figure:
    """Loss over forward FLOPs of every schedule, with those that no other beats in both."""
    figure, (axes,) = panels(1)
    best = front(rows)
    axes.plot([_cost(row) for row in rows], [row.loss for row in rows], ".", color=GREY, label="schedules")
    axes.step(
        [_cost(row) for row in best],
        [row.loss for row in best],
        where="post",
        color="#0072B2",
        marker="o",
        markersize=4,
        label="best for its cost",
    )
    axes.plot(
        [_cost(trained)],
        [trained.loss],
        "*",
        color="#D55E00",
        markersize=13,
        label=f"as trained: {trained.label}",
    )
    chosen = best_within(rows, trained, budget)
    if chosen is not None and chosen != trained:
        label = f"best within {budget:g}×: {chosen.label}"
        axes.plot([_cost(chosen)], [chosen.loss], "D", color="#009E73", markersize=7, label=label)
    losses = np.array([row.loss for row in rows])
    # A few ruined schedules would flatten the rest.
    high = min(losses.max(), np.quantile(losses, 0.75) + 2 * (np.quantile(losses, 0.75) - losses.min()))
    margin = 0.06 * (high - losses.min()) or 0.01
    axes.set_ylim(losses.min() - margin, max(high, trained.loss) + margin)
    axes.set_xlabel("forward cost (MFLOP/token)")
    axes.set_ylabel("loss (nats/token)")
    axes.grid(alpha=0.25)
    axes.legend(handlelength=1.2, borderpad=0.3)
    return figure


def sensitivity(curves: Sequence[LayerCurve], landscape: Landscape, trained: Row) -> Figure:
    """Loss by the times that one layer is visited, the others held."""
    figure, (axes,) = panels(1)
    for curve in curves:
        style = layer_style(curve.layer, landscape.num_layers)
        axes.plot(curve.times, curve.losses, linewidth=1.8, label=f"layer {curve.layer}", **style)
    axes.axhline(trained.loss, color=GREY, linestyle=":", label="as trained")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"times that the layer is visited (others: {_held(landscape)})")
    axes.set_ylabel("loss (nats/token)")
    axes.set_title(f"trained as {trained.label}")
    axes.grid(alpha=0.25)
    axes.legend(handlelength=1.2, borderpad=0.3)
    return figure


def heat_map(pair: PairMap, landscape: Landscape, trained: Row) -> Figure:
    """Loss by the times that two layers are visited, the others held; the held cell is framed."""
    figure, (axes,) = panels(1)
    one, other = pair.layers
    image = axes.imshow(pair.losses, cmap=MAP, origin="lower", aspect="auto")
    axes.set_xticks(range(len(pair.times[1])), list(map(str, pair.times[1])))
    axes.set_yticks(range(len(pair.times[0])), list(map(str, pair.times[0])))
    low, high = np.nanmin(pair.losses), np.nanmax(pair.losses)
    if pair.losses.size <= _MOST_WRITTEN:
        for (i, j), value in np.ndenumerate(pair.losses):
            if np.isfinite(value):
                share = (value - low) / ((high - low) or 1)
                axes.text(j, i, f"{value:.3f}", ha="center", va="center", fontsize=8, color=ink(share))
    at = pair.times[1].index(landscape.held[other]), pair.times[0].index(landscape.held[one])
    corner = (at[0] - 0.5, at[1] - 0.5)
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5, clip_on=False))
    axes.set_xlabel(f"times that layer {other} is visited")
    axes.set_ylabel(f"times that layer {one} is visited")
    axes.set_title(f"trained as {trained.label}; frame: {_held(landscape)}")
    figure.colorbar(image, ax=axes, label="loss (nats/token)")
    return figure


def _held(landscape: Landscape) -> str:
    return "-".join(map(str, landscape.held))


def _cost(row: Row) -> float:
    return row.forward_flops_per_token / 1e6
