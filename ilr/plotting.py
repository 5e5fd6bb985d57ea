"""How the figures look: type that is readable on a TensorBoard card, colours that everyone can tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, told apart also by colour-blind readers, without yellow, which is too pale for lines."""
_MARKERS = "osD^vP*X"
MAP = "cividis"
GREY = "#9A9A9A"
HEIGHT, WIDTH = 3.1, 4.4
_DPI = 150
_SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "figure.dpi": _DPI,
    "savefig.dpi": _DPI,
    "axes.grid": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """Figures made inside have this project's type and resolution."""
    with rc_context(_SETTINGS):
        yield


def panels(count: int, share_y: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` axes in a row: one card wide for one, then wider."""
    figure = Figure(figsize=(WIDTH if count == 1 else 0.75 * WIDTH * count, HEIGHT))
    axes = figure.subplots(1, count, sharey=share_y, squeeze=False)
    return figure, list(axes[0])


def layer_style(layer: int, num_layers: int) -> dict[str, Any]:
    """Colour and marker of a layer, the same in every figure."""
    if num_layers <= len(COLOURS):
        colour: Any = COLOURS[layer]
    else:
        colour = colormaps[MAP](layer / (num_layers - 1))
    return {"color": colour, "marker": _MARKERS[layer % len(_MARKERS)], "markersize": 5}


def ink(share: float) -> str:
    """Text colour on a cell of the map, ``share`` of the way from its darkest to its lightest."""
    return "black" if share > 0.55 else "white"
