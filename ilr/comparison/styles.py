"""How an arm looks in every figure of a comparison: its colour and marker, and whether a legend names it."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ilr.plotting import COLOURS as PALETTE
from ilr.plotting import GREY

COLOURS = PALETTE[:6]
"""Black is the baseline's."""
_MARKERS = ("o", "s", "^", "D", "v", "P")
_BEST = 5
_SHORT = 18  # characters of a label that take full size


@dataclass(frozen=True)
class Style:
    """Unnamed arms are drawn alike, below the others."""

    colour: str
    marker: str
    named: bool

    @property
    def layer(self) -> float:
        """Drawing order."""
        return 3.0 if self.named else 2.0


def arm_styles(ranked: Sequence[str], baseline: str) -> dict[str, Style]:
    """Styles by label, in the order given (best first).

    The baseline is black; the others have a colour each where six suffice, else the best five have.
    """
    others = [label for label in ranked if label != baseline]
    coloured = others if len(others) <= len(COLOURS) else others[:_BEST]
    distinct = {
        label: Style(colour, marker, named=True)
        for label, colour, marker in zip(coloured, COLOURS, _MARKERS, strict=False)
    }
    distinct[baseline] = Style("black", "*", named=True)
    return {label: distinct.get(label, Style(GREY, ".", named=False)) for label in ranked}


def add_legend(figure: Figure, axes: Axes, styles: dict[str, Style]) -> None:
    """Name the named arms by rank, then what else has a label, beside the axes and never over the data."""
    unnamed = sum(not style.named for style in styles.values())
    if unnamed:
        axes.plot([], [], color=GREY, linewidth=0.8, marker=".", label=f"{unnamed} other arms")
    handles, labels = axes.get_legend_handles_labels()
    order = list(styles)
    by_rank = sorted(zip(labels, handles, strict=True), key=lambda pair: _rank(pair[0], order))
    names = [label for label, _ in by_rank]
    figure.legend(
        [handle for _, handle in by_rank], names, loc="outside right upper", fontsize=type_size(names)
    )


def type_size(labels: Sequence[str]) -> float:
    """Points in which labels leave most of a figure to its data, long as they may be."""
    return float(max(7.0, min(13.0, 13.0 * _SHORT / max(map(len, labels), default=1))))


def _rank(label: str, order: Sequence[str]) -> int:
    return order.index(label) if label in order else len(order)
