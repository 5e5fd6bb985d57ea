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
    due. The state holds the epoch and the position in it, counted in batches handed out: so the next one
    after a resume is the right one with any number of workers, and whatever epoch Lightning thinks it is.
    `limit` ends every epoch early, after whole accumulation windows: a number of batches (int), which must
    hold whole windows, or a share of them (float), which is rounded down to whole windows.
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
        limit: int | float = 1.0,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.blocks, self.batch_size, self.seed = blocks, batch_size, seed
        self.rank, self.world, self.accumulate = rank, world, accumulate
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.limit = limit
        self.epoch = 0
        self.position = 0
        if self.whole_length == 0:
            raise InputError(
                f"the train split has {len(blocks)} blocks of context {blocks.context}, one step of the "
                f"optimizer takes {self.global_batch * accumulate}: --data.batch_size {batch_size} × {world} "
                f"processes × {accumulate} accumulated"
            )
        if len(self) == 0 or (isinstance(limit, int) and len(self) not in (limit, self.whole_length)):
            raise InputError(
                f"--trainer.limit_train_batches {limit} does not hold whole steps of {accumulate} micro-batches "
                f"(--trainer.accumulate_grad_batches), at least one: an epoch has {self.whole_length} micro-batches"
            )

    @property
    def whole_length(self) -> int:
        """Micro-batches of an unlimited epoch for one process."""
        return micro_batches_per_epoch(len(self.blocks), self.global_batch, self.accumulate)

    def __len__(self) -> int:
        whole = self.whole_length
        limited = min(self.limit, whole) if isinstance(self.limit, int) else int(whole * self.limit)
        return limited // self.accumulate * self.accumulate

    @property
    def steps(self) -> int:
        """Optimiser steps of an epoch."""
        return len(self) // self.accumulate

    @property
    def global_batch(self) -> int:
        """Blocks of a micro-batch over all processes."""
        return self.batch_size * self.world

    @property
    def dropped_blocks(self) -> int:
        """Whole blocks that an epoch leaves out: short last batch, short accumulation window, limit."""
        return len(self.blocks) - len(self) * self.global_batch

    @property
    def tokens_per_epoch(self) -> int:
        """Targets of an epoch over all processes."""
        return len(self) * self.global_batch * self.blocks.context

    def describe(self) -> str:
        """What an epoch is made of and what it leaves out, in a line."""
        blocks, batch = self.blocks, self.global_batch
        micro_batches, short = divmod(len(blocks), batch)
        limited = self.whole_length - len(self)
        return (
            f"{len(blocks)} blocks of context {blocks.context}; an epoch is {len(self)} micro-batches of "
            f"{batch} blocks = {self.steps} steps = {self.tokens_per_epoch} tokens; it "
            f"leaves out {blocks.dropped_tokens} tokens (short last block), {short} blocks (short "
            f"last batch), {micro_batches - self.whole_length} micro-batches (short "
            "accumulation window)" + (f", {limited} micro-batches (limit)" if limited else "")
        )

    def __iter__(self) -> Iterator[Batch]:
        # Lightning may call iter() and restore the state after it: all is read at the first next().
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0
        batches = self.batch_indices(self.epoch)[self.position : len(self)]
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

    @property
    def _order(self) -> str:
        return f"{len(self.blocks)} blocks in batches of {self.global_batch}, seed {self.seed}"

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches of it handed out, and what the order is an order of; plain data."""
        return {"epoch": self.epoch, "position": self.position, "order": self._order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there at the next iteration; InputError amid an epoch of another order."""
        if state["order"] != self._order and 0 < state["position"] < len(self):
            raise InputError(
                f"the checkpoint lies in the middle of an epoch of {state['order']}; this run has "
                f"{self._order}, so the rest of that epoch is not defined (--data.batch_size × processes, "
                "--data.seed, the corpus)"
            )
        self.epoch, self.position = state["epoch"], state["position"]


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
