"""The training order: a function of (seed, epoch), cut into batches for any number of processes."""

import numpy as np
import pytest

from ilr.data.order import epoch_batches, micro_batches_per_epoch, permutation


def test_a_permutation_depends_on_its_keys_and_on_nothing_else() -> None:
    first = permutation(1000, "data", 0, 0)
    np.random.seed(5)
    np.testing.assert_array_equal(first, permutation(1000, "data", 0, 0))
    assert sorted(first) == list(range(1000))
    others = [
        permutation(1000, *keys)
        for keys in (("data", 0, 1), ("data", 1, 0), ("split", 0, 0), ("data", "0", 0))
    ]
    assert all((other != first).mean() > 0.9 for other in others)


def test_the_order_is_the_same_on_every_machine_and_for_ever() -> None:
    # Pinned: another result would make every finished run another one.
    assert permutation(10, "data", 0, 0).tolist() == [3, 9, 0, 4, 2, 5, 8, 6, 7, 1]


def test_all_places_are_equally_likely() -> None:
    counts = np.zeros((5, 5))
    for epoch in range(4000):
        counts[np.arange(5), permutation(5, "data", 0, epoch)] += 1
    # Each cell is binomial(4000, 1/5): mean 800, standard deviation 25.
    assert np.abs(counts - 800).max() < 5 * 25


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_processes_share_the_global_batches_of_one_process(world: int, accumulate: int) -> None:
    together = epoch_batches(103, 7, 2, batch_size=2 * world, accumulate=accumulate)
    parts = [
        epoch_batches(103, 7, 2, batch_size=2, rank=rank, world=world, accumulate=accumulate)
        for rank in range(world)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), together)
    assert len(together) % accumulate == 0
    assert len(set(together.flat)) == together.size, "no block twice"


def test_accumulated_small_batches_are_the_big_batch_in_order() -> None:
    big = epoch_batches(64, 0, 0, batch_size=8)
    small = epoch_batches(64, 0, 0, batch_size=2, accumulate=4)
    np.testing.assert_array_equal(small.reshape(8, 8), big)


@pytest.mark.parametrize(
    ("blocks", "batch", "accumulate", "expected"), [(10, 2, 1, 5), (11, 2, 2, 4), (7, 4, 2, 0), (8, 4, 2, 2)]
)
def test_an_epoch_has_whole_accumulation_windows(
    blocks: int, batch: int, accumulate: int, expected: int
) -> None:
    assert micro_batches_per_epoch(blocks, batch, accumulate) == expected
    assert len(epoch_batches(blocks, 0, 0, batch_size=batch, accumulate=accumulate)) == expected
