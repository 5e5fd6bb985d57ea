"""Schedules of the field by name; each gives the segments that `make_plan` compiles. No torch."""

from collections.abc import Sequence

from ilr.bounds import MOST_LAYERS, MOST_VISITS, check_count
from ilr.errors import InputError
from ilr.model.plan import Segment


def intra_layer(times: Sequence[int]) -> list[Segment]:
    """Each layer reapplied in place (arXiv 2505.01855); uniform times are Takase's "sequence" (2104.06022)."""
    return [Segment((layer,), count) for layer, count in enumerate(times)]


def block(num_layers: int, times: int) -> list[Segment]:
    """The whole stack repeated: block recurrence, Universal Transformer (arXiv 1807.03819)."""
    check_count("num_layers", num_layers, MOST_LAYERS)
    return [Segment(tuple(range(num_layers)), times)]


def prelude_core_coda(prelude: int, core: int, coda: int, times: int) -> list[Segment]:
    """The first and the last layers once, the core between them repeated (arXiv 2502.05171)."""
    for name, count in (("prelude", prelude), ("core", core), ("coda", coda)):
        check_count(name, count, MOST_LAYERS, least=0)
    ends = prelude + core, prelude + core + coda
    runs = [(range(prelude), 1), (range(prelude, ends[0]), times), (range(*ends), 1)]
    return [Segment(tuple(layers), count) for layers, count in runs if layers]


def cycle(num_layers: int, depth: int) -> list[Segment]:
    """Takase's "cycle" (arXiv 2104.06022): layers in order, again from the first, until ``depth`` visits."""
    _check_depth(num_layers, depth)
    full, rest = divmod(depth, num_layers)
    return block(num_layers, full) + ([Segment(tuple(range(rest)))] if rest else [])


def reversed_cycle(num_layers: int, depth: int) -> list[Segment]:
    """Takase's "cycle (rev)" (arXiv 2104.06022): a cycle whose last run goes backwards.

    Six visits of three layers are 0, 1, 2, 2, 1, 0.
    """
    _check_depth(num_layers, depth)
    forward = (depth - 1) // num_layers
    last = depth - forward * num_layers
    backward = Segment(tuple(range(num_layers))[::-1][:last])
    return [*(block(num_layers, forward) if forward else []), backward]


def _check_depth(num_layers: int, depth: int) -> None:
    check_count("num_layers", num_layers, MOST_LAYERS)
    check_count("depth", depth, MOST_VISITS)
    if depth < num_layers:
        raise InputError(f"a cycle of {num_layers} layers needs at least {num_layers} visits, got {depth}")
