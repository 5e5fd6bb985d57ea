"""Families of schedules and sharings, made instead of listed. No torch."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, Literal

from ilr.errors import InputError
from ilr.plan import Sublayers
from ilr.sharing import Sharing

Schedule = list[int] | list[dict[str, Any]]
Family = Literal["all", "early", "late", "uniform", "extra"]
FAMILIES: tuple[str, ...] = ("all", "early", "late", "uniform", "extra")


def all_schedules(num_layers: int, depth: int) -> list[list[int]]:
    """Every way to spend ``depth`` visits in place on the layers, each at least once: C(depth-1, layers-1)."""
    if depth < num_layers:
        raise InputError(f"depth must be at least the {num_layers} layers, got {depth}")
    cuts = combinations(range(1, depth), num_layers - 1)
    return [[after - before for before, after in pairwise((0, *cut, depth))] for cut in cuts]


def early(num_layers: int, depth: int) -> list[list[int]]:
    """Those that never rise with the layer, without the uniform one, such as [4,2,1,1]."""
    every = all_schedules(num_layers, depth)
    return [times for times in every if times == sorted(times, reverse=True) and times[0] > times[-1]]


def late(num_layers: int, depth: int) -> list[list[int]]:
    """Those that never fall with the layer, without the uniform one."""
    return [times[::-1] for times in early(num_layers, depth)]


def uniform(num_layers: int, depth: int) -> list[list[int]]:
    """Every layer equally often; ``depth`` must be a multiple of the layers."""
    times, rest = divmod(depth, num_layers)
    if rest or not times:
        raise InputError(f"a uniform depth is a multiple of the {num_layers} layers, got {depth}")
    return [[times] * num_layers]


def extra(num_layers: int, sublayers: Sublayers = "both") -> list[Schedule]:
    """One more visit of each layer in turn, of both halves or of one alone."""
    return [_one_more(num_layers, layer, sublayers) for layer in range(num_layers)]


def sharings(num_layers: int) -> list[Any]:
    """Every sharing that has a name: the four modes, groups of M for each divisor M, sandwich."""
    modes: list[Any] = ["none", "attention", "ffn", "all"]
    sizes = [size for size in range(2, num_layers) if num_layers % size == 0]
    found = [*(Sharing.groups(num_layers, size) for size in sizes)]
    if num_layers >= 3:
        found.append(Sharing.sandwich(num_layers))
    return modes + [banks(sharing) for sharing in found]


def banks(sharing: Sharing) -> dict[str, list[int]]:
    """A sharing as the option that describes it."""
    return {"attention": list(sharing.attention), "ffn": list(sharing.ffn)}


def generated(family: Family, num_layers: int, depth: int | None, sublayers: Sublayers) -> Iterator[Schedule]:
    """The schedules of a family; ``sublayers`` is for extra, ``depth`` for the others."""
    if family == "extra":
        if depth is not None:
            raise InputError(f"generate: extra has the depth layers + 1; depth {depth} says otherwise")
        yield from extra(num_layers, sublayers)
        return
    if depth is None:
        raise InputError(f"generate: {family} needs a depth (number of visits)")
    makers = {"all": all_schedules, "early": early, "late": late, "uniform": uniform}
    if family not in makers:
        raise InputError(f"generate is one of {', '.join(FAMILIES)}; got {family!r}")
    yield from makers[family](num_layers, depth)


def _one_more(num_layers: int, layer: int, sublayers: Sublayers) -> Schedule:
    if sublayers == "both":
        return [1 + (each == layer) for each in range(num_layers)]
    segments: list[dict[str, Any]] = []
    for each in range(num_layers):
        segments.append({"layers": [each]})
        if each == layer:
            segments.append({"layers": [each], "sublayers": sublayers})
    return segments
