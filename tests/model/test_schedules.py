"""The named schedules of the field give the orders that their papers write out."""

from typing import Any

import pytest

from ilr.model.plan import Segment, make_plan
from ilr.model.schedules import block, cycle, intra_layer, prelude_core_coda, reversed_cycle


def order(schedule: list[Segment]) -> list[int]:
    return [visit.layer for visit in make_plan(schedule).visits]


@pytest.mark.parametrize(
    ("schedule", "layers"),
    [
        (intra_layer([3, 2, 1, 1]), [0, 0, 0, 1, 1, 2, 3]),
        (intra_layer([2, 2, 2]), [0, 0, 1, 1, 2, 2]),  # Takase's sequence, 3 layers and 6 visits
        (cycle(3, 6), [0, 1, 2, 0, 1, 2]),  # Takase's cycle
        (reversed_cycle(3, 6), [0, 1, 2, 2, 1, 0]),  # Takase's cycle (rev)
        (cycle(3, 3), [0, 1, 2]),
        (cycle(3, 8), [0, 1, 2, 0, 1, 2, 0, 1]),
        (reversed_cycle(3, 9), [0, 1, 2, 0, 1, 2, 2, 1, 0]),
        (reversed_cycle(3, 7), [0, 1, 2, 0, 1, 2, 2]),
        (reversed_cycle(3, 3), [2, 1, 0]),
        (block(3, 2), [0, 1, 2, 0, 1, 2]),
        (block(1, 3), [0, 0, 0]),
        (prelude_core_coda(1, 2, 1, 3), [0, 1, 2, 1, 2, 1, 2, 3]),
        (prelude_core_coda(2, 1, 2, 2), [0, 1, 2, 2, 3, 4]),
        (prelude_core_coda(0, 2, 1, 2), [0, 1, 0, 1, 2]),
        (prelude_core_coda(0, 2, 0, 2), [0, 1, 0, 1]),
    ],
    ids=str,
)
def test_a_named_schedule_runs_the_layers_in_its_written_order(schedule: Any, layers: list[int]) -> None:
    assert order(schedule) == layers


def test_repeated_runs_are_passes_of_one_segment() -> None:
    assert [(one.segment, one.repetition) for one in make_plan(block(2, 3)).passes()] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    core = [(one.segment, one.repetition) for one in make_plan(prelude_core_coda(1, 2, 1, 2)).passes()]
    assert core == [(0, 0), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize("helper", [cycle, reversed_cycle])
def test_a_cycle_shorter_than_its_layers_is_refused(helper: Any) -> None:
    with pytest.raises(ValueError, match="a cycle of 3 layers needs at least 3 visits, got 2"):
        helper(3, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: intra_layer([2, 0]), "times must be a whole number of at least 1, got 0"),
        (lambda: block(2, 0), "times must be a whole number of at least 1, got 0"),
        (lambda: prelude_core_coda(1, 2, 1, 0), "times must be a whole number of at least 1, got 0"),
        (lambda: block(0, 2), "num_layers must be a whole number of at least 1, got 0"),
    ],
)
def test_counts_below_one_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
