"""Families of schedules and sharings, made instead of listed. No torch."""

from collections.abc import Iterator
from itertools import combinations, islice, pairwise
from typing import Any, Literal

from ilr.bounds import MOST_LAYERS, MOST_VISITS, check_count, shown
from ilr.errors import InputError
from ilr.model.plan import Sublayers
from ilr.model.sharing import Sharing

Schedule = list[int] | list[dict[str, Any]]
Family = Literal["all", "early", "late", "uniform", "extra"]
FAMILIES: tuple[str, ...] = ("all", "early", "late", "uniform", "extra")

LARGEST_FAMILY = 10_000
"""Schedules that one entry of a sweep may generate: more are never trained, and counting them would not end."""

MOST_ENTRIES = 10_000_000
"""Numbers that the schedules of one family may have together."""


def all_schedules(num_layers: int, depth: int) -> list[list[int]]:
    """Every way to spend ``depth`` visits in place on the layers, each at least once: C(depth-1, layers-1).

    Raises `InputError` for more than `LARGEST_FAMILY` of them, before any is made.
    """
    _check_depth(num_layers, depth)
    most = _most(num_layers)
    if (count := _binomial(depth - 1, num_layers - 1, most)) > most:
        raise _too_many("all", f"at least {count:,}", num_layers, depth)
    cuts = combinations(range(1, depth), num_layers - 1)
    return [[after - before for before, after in pairwise((0, *cut, depth))] for cut in cuts]


def early(num_layers: int, depth: int) -> list[list[int]]:
    """Those that never rise with the layer, without the uniform one, such as [4,2,1,1]."""
    _check_depth(num_layers, depth)
    most = _most(num_layers)
    found = list(islice(_partitions(depth - num_layers, num_layers), most + 2))
    if len(found) > most + 1:  # the uniform one is among them
        raise _too_many("early and late", f"more than {most:,}", num_layers, depth)
    every = ([1 + more for more in parts] + [1] * (num_layers - len(parts)) for parts in found)
    return sorted(times for times in every if times[0] > times[-1])


def late(num_layers: int, depth: int) -> list[list[int]]:
    """Those that never fall with the layer, without the uniform one."""
    return [times[::-1] for times in early(num_layers, depth)]


def uniform(num_layers: int, depth: int) -> list[list[int]]:
    """Every layer equally often; ``depth`` must be a multiple of the layers."""
    _check_depth(num_layers, depth, least=1)
    times, rest = divmod(depth, num_layers)
    if rest or not times:
        raise InputError(f"a uniform depth is a multiple of the {num_layers} layers, got {depth}")
    return [[times] * num_layers]


def extra(num_layers: int, sublayers: Sublayers = "both") -> list[Schedule]:
    """One more visit of each layer in turn, of both halves or of one alone."""
    check_count("num_layers", num_layers, MOST_LAYERS)
    if num_layers > _most(num_layers):
        raise _too_many("extra", f"{num_layers:,}", num_layers, num_layers + 1)
    return [_one_more(num_layers, layer, sublayers) for layer in range(num_layers)]


def sharings(num_layers: int) -> list[Any]:
    """Every sharing that has a name: the four modes, groups of M for each divisor M, sandwich."""
    check_count("num_layers", num_layers, MOST_LAYERS)
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
            raise InputError(f"generate: extra has the depth layers + 1; depth {shown(depth)} says otherwise")
        yield from extra(num_layers, sublayers)
        return
    if depth is None:
        raise InputError(f"generate: {family} needs a depth (number of visits)")
    makers = {"all": all_schedules, "early": early, "late": late, "uniform": uniform}
    if family not in makers:
        raise InputError(f"generate is one of {', '.join(FAMILIES)}; got {shown(family)}")
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


def _check_depth(num_layers: int, depth: int, least: int | None = None) -> None:
    check_count("num_layers", num_layers, MOST_LAYERS)
    check_count("depth", depth, MOST_VISITS)
    if depth < (num_layers if least is None else least):
        raise InputError(f"depth must be at least the {num_layers} layers, got {depth}")


def _most(num_layers: int) -> int:
    """Schedules of so many layers that a family may have."""
    return min(LARGEST_FAMILY, MOST_ENTRIES // num_layers)


def _binomial(n: int, k: int, most: int) -> int:
    """The binomial coefficient where it is at most ``most``; else a smaller number that is above it."""
    count = 1
    for chosen in range(1, min(k, n - k) + 1):
        count = count * (n - chosen + 1) // chosen
        if count > most:
            break
    return count


def _partitions(number: int, most_parts: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Every way to write ``number`` as at most so many parts above 0 that never rise, the largest parts first."""
    if number == 0:
        yield ()
        return
    if most_parts == 0:
        return
    # So many parts of this size or less have to reach the number.
    smallest = -(-number // most_parts)
    for part in range(number if largest is None else min(largest, number), smallest - 1, -1):
        for rest in _partitions(number - part, most_parts - 1, part):
            yield (part, *rest)


def _too_many(family: str, count: str, num_layers: int, depth: int) -> InputError:
    return InputError(
        f"generate: {family} makes {count} schedules of {num_layers} layers and {depth} visits, "
        f"at most {_most(num_layers):,} can be: give a smaller depth, or list schedules"
    )
