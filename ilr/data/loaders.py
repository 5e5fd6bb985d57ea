"""Loaders: the training order with its position, and evaluation blocks in order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from ilr.data.blocks import NO_BLOCK, Batch, EvaluationBlocks, TrainingBlocks
from ilr.data.order import epoch_batches, micro_batches_per_epoch
from ilr.errors import InputError


def _same(batch: Any) -> Any:
    """Stands for collating: the data sets make whole batches themselves."""
    return batch


def _loader(
    blocks: TrainingBlocks | EvaluationBlocks, batches: NDArray[np.int64], num_workers: int, pin_memory: bool
) -> DataLoader[Batch]:
    """A DataLoader over batches of block indices (micro-batches, B).

    Its own generator: without one, each new iterator would draw from the global one and so shift
    whatever else is drawn there.
    """
    return DataLoader(
        blocks,
        batch_sampler=batches.tolist(),
        collate_fn=_same,
        num_workers=num_workers,
        pin_memory=pin_memory,
        generator=torch.Generator(),
    )


class TrainLoader:
    """Batches of one epoch after another, each epoch in its own order, from any position.

    Iterating goes on from the current position to the end of the current epoch; then the next epoch is
    due. `state_dict()` is {"epoch", "position"}, where position counts the batches handed out, so Lightning
    (which keeps it in checkpoints) resumes at the next one, with any number of workers. Lightning tells
    the epoch through `sampler.set_epoch`; that only ever moves forward.
    """

    def __init__(
        self,
        blocks: TrainingBlocks,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        accumulate: int = 1,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.blocks, self.batch_size, self.seed = blocks, batch_size, seed
        self.rank, self.world, self.accumulate = rank, world, accumulate
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.epoch = 0
        self.position = 0
        if len(self) == 0:
            raise InputError(
                f"the train split has {len(blocks)} blocks of context {blocks.context}, one step of the "
                f"optimizer takes {batch_size * world * accumulate}: --data.batch_size {batch_size} × {world} "
                f"processes × {accumulate} accumulated"
            )

    def __len__(self) -> int:
        """Micro-batches of an epoch for one process."""
        return micro_batches_per_epoch(len(self.blocks), self.batch_size * self.world, self.accumulate)

    def __iter__(self) -> Iterator[Batch]:
        # Lightning calls iter() before it tells the epoch: all is read at the first next().
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0
        batches = self.batch_indices(self.epoch)[self.position :]
        for batch in _loader(self.blocks, batches, self.num_workers, self.pin_memory):
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def batch_indices(self, epoch: int) -> NDArray[np.int64]:
        """Block indices of an epoch's batches for this process, (micro-batches, batch_size)."""
        return epoch_batches(
            len(self.blocks),
            self.seed,
            epoch,
            batch_size=self.batch_size,
            rank=self.rank,
            world=self.world,
            accumulate=self.accumulate,
        )

    def state_dict(self) -> dict[str, int]:
        """Epoch and batches of it handed out."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; at the next iter()."""
        self.epoch, self.position = state["epoch"], state["position"]

    @property
    def sampler(self) -> "TrainLoader":
        """Itself: where Lightning looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch, unless it has begun already or is past."""
        if epoch > self.epoch:
            self.epoch, self.position = epoch, 0


class EvaluationLoader:
    """The blocks of a split in order; a process takes every world-th, none twice.

    All batches of all processes have one shape, and all processes equally many: filled up with rows
    whose targets are all IGNORED.
    """

    def __init__(
        self,
        blocks: EvaluationBlocks,
        *,
        batch_size: int,
        rank: int = 0,
        world: int = 1,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.blocks, self.batch_size = blocks, batch_size
        self.rank, self.world = rank, world
        self.num_workers, self.pin_memory = num_workers, pin_memory

    def __len__(self) -> int:
        return -(-len(self.blocks) // (self.world * self.batch_size))

    def batch_indices(self) -> NDArray[np.int64]:
        """Block indices, (batches, batch_size), NO_BLOCK for rows that fill up."""
        indices = np.full(len(self) * self.batch_size, NO_BLOCK, dtype=np.int64)
        own = np.arange(self.rank, len(self.blocks), self.world)
        indices[: len(own)] = own
        return indices.reshape(len(self), self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return iter(_loader(self.blocks, self.batch_indices(), self.num_workers, self.pin_memory))
