"""What a table of schedules says: which layer matters, and which schedule is best for its cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ilr.analysis.schedules import Row


@dataclass(frozen=True)
class LayerCurve:
    """Loss by the times that one layer is visited, all others held."""

    layer: int
    times: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class PairMap:
    """Loss (times of ``layers[0]``, times of ``layers[1]``), all others held; NaN where not evaluated."""

    layers: tuple[int, int]
    times: tuple[tuple[int, ...], tuple[int, ...]]
    losses: np.ndarray


class Landscape:
    """The short-form schedules of a table as a function of the times of each layer.

    Layers that are not varied are held at the trained schedule's times, or at the nearest that the table
    has (``held``).
    """

    def __init__(self, rows: Sequence[Row], trained_times: Sequence[int]) -> None:
        self.losses = {
            tuple(row.schedule): row.loss for row in rows if all(isinstance(t, int) for t in row.schedule)
        }
        self.num_layers = len(trained_times)
        self.times = tuple(tuple(sorted({times[layer] for times in self.losses})) for layer in self._layers)
        self.held = tuple(
            min(self.times[layer], key=lambda t: abs(t - trained_times[layer]), default=0)
            for layer in self._layers
        )

    @property
    def _layers(self) -> range:
        return range(self.num_layers)

    def curves(self) -> list[LayerCurve]:
        """One per layer that the table varies while the others are held."""
        curves = []
        for layer in self._layers:
            known = [(t, self._loss({layer: t})) for t in self.times[layer]]
            points = [(t, loss) for t, loss in known if loss is not None]
            if len(points) > 1:
                times, losses = zip(*points, strict=True)
                curves.append(LayerCurve(layer, times, losses))
        return curves

    def pairs(self) -> list[PairMap]:
        """One per two layers that the table varies together while the others are held."""
        maps = []
        for one, other in combinations(self._layers, 2):
            axes = (self.times[one], self.times[other])
            found = [[self._loss({one: a, other: b}) for b in axes[1]] for a in axes[0]]
            losses = np.array(found, dtype=float)
            if min(losses.shape) > 1 and np.isfinite(losses).mean() > 0.5:
                maps.append(PairMap((one, other), axes, losses))
        return maps

    def _loss(self, changed: dict[int, int]) -> float | None:
        return self.losses.get(tuple(changed.get(layer, self.held[layer]) for layer in self._layers))


def front(rows: Sequence[Row]) -> list[Row]:
    """By rising cost, the schedules that no other one beats in both cost and loss."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.forward_flops_per_token, row.loss)):
        if not kept or row.loss < kept[-1].loss:
            kept.append(row)
    return kept


def best_within(rows: Sequence[Row], trained: Row, budget: float) -> Row | None:
    """The lowest loss for at most ``budget`` times the forward FLOPs of the trained schedule, or None."""
    limit = budget * trained.forward_flops_per_token
    affordable = [row for row in rows if row.forward_flops_per_token <= limit]
    return min(affordable, key=lambda row: row.loss, default=None)
