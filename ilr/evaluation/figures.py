"""The tables by position and by frequency as figures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ilr.evaluation.breakdown import Decile, PositionBin
from ilr.evaluation.record import Record
from ilr.plotting import GREY, layer_style, panels, styled

_LINE = layer_style(0, 2)
_UNIT = "loss (nats/token)"


def draw(record: Record) -> dict[str, Figure]:
    """A figure for each table that the record has, by name."""
    drawn = {}
    with styled():
        if record.position_bins is not None and record.loss_by_position is not None:
            figure, (axes,) = panels(1)
            _positions(axes, record.position_bins, record.loss_by_position)
            axes.set_title(_title(record))
            drawn["loss_by_position"] = figure
        if record.frequency_deciles is not None:
            figure, (axes,) = panels(1)
            _deciles(axes, record.frequency_deciles)
            axes.set_title(_title(record))
            drawn["loss_by_frequency"] = figure
    return drawn


def _title(record: Record) -> str:
    mode = "documents alone" if record.documents_alone else "stream"
    return f"{record.schedule}, {record.split}, {mode}, window {record.window}, stride {record.stride}"


def _positions(axes: Axes, bins: Sequence[PositionBin], losses: Sequence[float | None]) -> None:
    there = [(place, loss) for place, loss in enumerate(losses, start=1) if loss is not None]
    places, each = zip(*there, strict=True)
    axes.scatter(places, each, s=6, color=GREY, linewidths=0, label="each position")
    filled = [(one, one.loss) for one in bins if one.loss is not None]
    middles = [(one.first * one.last) ** 0.5 for one, _ in filled]
    axes.plot(middles, [loss for _, loss in filled], **_LINE, label="mean of 1, 2, 3-4, 5-8, …")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("context of the prediction (tokens)")
    axes.set_ylabel(_UNIT)
    axes.legend(frameon=False)


def _deciles(axes: Axes, deciles: Sequence[Decile]) -> None:
    filled = [(one.number, one.loss) for one in deciles if one.loss is not None]
    numbers, losses = zip(*filled, strict=True)
    axes.bar(numbers, losses, color=_LINE["color"], width=0.8)
    axes.set_xticks([one.number for one in deciles])
    axes.set_xlim(0.4, len(deciles) + 0.6)
    axes.set_xlabel("tenth of the training stream (1: most frequent tokens)")
    axes.set_ylabel(_UNIT)
