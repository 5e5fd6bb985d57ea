"""Figures of what each visit does; several analyses stand side by side on common scales."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from ilr.analysis.record import QUANTITIES, Analysis
from ilr.plotting import GREY, MAP, ink, layer_style, panels, styled

DRAWN = tuple(name for name in QUANTITIES if name not in ("cosine_before", "jacobian_norm_max"))
"""Quantities that get a figure; the others are in the table and the scalars."""
MATRICES = ("cosine", "cka")
_MOST_TICKS, _MOST_WRITTEN = 18, 9
# Beyond this ratio of largest to smallest the first visit alone would fill a linear axis.
_LINEAR_RATIO = 6


def draw(analyses: Sequence[Analysis]) -> dict[str, Figure]:
    """All figures by name: one per quantity that some analysis has, and the two matrices."""
    with styled():
        figures = {
            name: by_visit(analyses, name) for name in DRAWN if any(_known(one, name) for one in analyses)
        }
        figures |= {kind: matrices(analyses, kind) for kind in MATRICES}
    return figures


def by_visit(analyses: Sequence[Analysis], name: str) -> Figure:
    """One quantity over the visits in order, a line per layer through its iterations."""
    figure, all_axes = panels(len(analyses))
    for axes, one in zip(all_axes, analyses, strict=True):
        values = np.array(one.figures.get(name, [None] * len(one.layers)), dtype=float)
        where = np.arange(len(values))
        known = np.isfinite(values)
        if known.all():
            axes.plot(where, values, color=GREY, linewidth=0.8, zorder=1)
        num_layers = max(one.layers) + 1
        for layer in dict.fromkeys(one.layers):
            own = known & (np.array(one.layers) == layer)
            if own.any():
                style = layer_style(layer, num_layers)
                axes.plot(where[own], values[own], linewidth=1.8, label=f"layer {layer}", **style)
        axes.set_xlim(-0.5, len(values) - 0.5)
        _name_visits(axes, one.visits)
        axes.set_xlabel("visit (layer.iteration)")
        axes.set_title(_title(one, name))
        axes.grid(alpha=0.25)
        axes.tick_params(labelleft=True)
        if num_layers <= 8 and known.any():
            axes.legend(handlelength=1.2, borderpad=0.3)
    all_axes[0].set_ylabel(QUANTITIES[name].axis)
    _scale(all_axes, [_known(one, name) for one in analyses])
    return figure


def matrices(analyses: Sequence[Analysis], kind: str) -> Figure:
    """Likeness of every two states as heat maps: ``kind`` cosine or cka."""
    figure, all_axes = panels(len(analyses), share_y=False)
    values = [np.array(one.cosine if kind == "cosine" else one.cka, dtype=float) for one in analyses]
    # From the tenth below: most states are alike, and a scale from 0 would hide how they differ.
    low = min(0.9, np.floor(10 * min(float(matrix.min()) for matrix in values)) / 10)
    for axes, one, matrix in zip(all_axes, analyses, values, strict=True):
        image = axes.imshow(matrix, cmap=MAP, vmin=low, vmax=1)
        _name_visits(axes, one.states)
        _name_visits(axes, one.states, vertical=True)
        if len(matrix) <= _MOST_WRITTEN:
            for (i, j), value in np.ndenumerate(matrix):
                share = (value - low) / (1 - low)
                text = f"{value:.2f}".replace("0.", ".")
                axes.text(j, i, text, ha="center", va="center", fontsize=7, color=ink(share))
        axes.set_xlabel("state after visit (layer.iteration)")
        axes.set_title(f"{one.label}, {one.tokens:,} tokens")
    label = "mean cosine between states" if kind == "cosine" else "linear CKA between states"
    figure.colorbar(image, ax=all_axes, label=label, shrink=0.9)
    return figure


def _title(one: Analysis, name: str) -> str:
    if name.startswith("attention"):
        return f"{one.label}, {one.attention_tokens:,} tokens"
    if name.startswith("jacobian"):
        return f"{one.label}, {one.jacobian_positions:,} positions"
    return f"{one.label}, {one.tokens:,} tokens"


def _known(one: Analysis, name: str) -> list[float]:
    return [value for value in one.figures.get(name, []) if value is not None]


def _name_visits(axes: Axes, names: Sequence[str], vertical: bool = False) -> None:
    step = -(-len(names) // _MOST_TICKS)
    ticks = range(0, len(names), step)
    labels = [names[i] for i in ticks]
    if vertical:
        axes.set_yticks(ticks, labels, fontsize=8)
    else:
        axes.set_xticks(ticks, labels, fontsize=8, rotation=90 if len(ticks) > 9 else 0)


def _scale(all_axes: Sequence[Axes], values: Sequence[Sequence[float]]) -> None:
    """Common limits: from 0 where the values reach near it, logarithmic where they span decades."""
    every = [value for one in values for value in one]
    low, high = min(every), max(every)
    if low > 0 and high > _LINEAR_RATIO * low:
        axis = all_axes[0].yaxis
        all_axes[0].set_yscale("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_formatter(NullFormatter())
        return
    if 0 <= low < high / 2:
        all_axes[0].set_ylim(bottom=0)
    all_axes[0].yaxis.set_major_locator(MaxNLocator(6))
