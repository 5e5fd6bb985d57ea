"""Which blocks are seen when: a pure function of (seed, epoch), of nothing else."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def permutation(count: int, *keys: str | int) -> NDArray[np.int64]:
    """A permutation of 0 … count − 1 that depends on the keys alone.

    The keys (strings and integers) are hashed into the key of a Philox counter generator; its raw words
    are sorted. Raw words are stable over NumPy versions, `Generator.permutation` is not promised to be.
    """
    digest = hashlib.sha256(repr(keys).encode()).digest()
    words = np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)


def micro_batches_per_epoch(num_blocks: int, global_batch: int, accumulate: int) -> int:
    """Micro-batches of `global_batch` blocks (all processes together), in whole accumulation windows."""
    return num_blocks // (global_batch * accumulate) * accumulate


def epoch_batches(
    num_blocks: int,
    seed: int,
    epoch: int,
    *,
    batch_size: int,
    rank: int = 0,
    world: int = 1,
    accumulate: int = 1,
) -> NDArray[np.int64]:
    """Block indices of one epoch for one process, shape (micro-batches, batch_size).

    The permutation of (seed, epoch) is cut into global batches of `batch_size × world` blocks, of which a
    process takes its contiguous slice: so the global batches depend only on their size. What does not
    fill a whole accumulation window is dropped; another epoch drops other blocks.
    """
    order = permutation(num_blocks, "data", seed, epoch)
    micro_batches = micro_batches_per_epoch(num_blocks, batch_size * world, accumulate)
    used = order[: micro_batches * world * batch_size]
    return used.reshape(micro_batches, world, batch_size)[:, rank]
