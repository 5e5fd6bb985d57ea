"""Blocks of context + 1 tokens cut from a stream at stride context, fetched as whole batches."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ilr.data.tokens import DocumentTable, TokenFile
from ilr.errors import InputError
from ilr.model.metrics import IGNORED

Batch = dict[str, Tensor]

NO_BLOCK = -1
"""Block index of a row that only fills up a batch, document index of a target past the end."""


class TrainingBlocks(Dataset[Batch]):
    """The whole blocks of a stream: block i is tokens[i × context : i × context + context + 1].

    Neighbours share one token, so each token but the first is a target once. The short rest of the stream
    is left out.
    """

    def __init__(self, stream: TokenFile, context: int, split: str) -> None:
        self.stream, self.context = stream, context
        self.num_blocks = max(0, len(stream) - 1) // context
        if self.num_blocks == 0:
            raise InputError(
                f"the {split} split has {len(stream)} tokens, fewer than one block of context {context} + 1; "
                "give more text or a smaller --data.context"
            )

    def __len__(self) -> int:
        return self.num_blocks

    @property
    def dropped_tokens(self) -> int:
        """Targets behind the last whole block."""
        return len(self.stream) - 1 - self.num_blocks * self.context

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> Batch:
        """A batch: `inputs` and `targets` int64 (B, T), `blocks` int64 (B,)."""
        tokens = self.stream.array
        starts = [index * self.context for index in indices]
        rows = np.stack([tokens[start : start + self.context + 1] for start in starts])
        inputs = torch.from_numpy(rows[:, :-1].astype(np.int64))
        targets = torch.from_numpy(rows[:, 1:].astype(np.int64))
        return {"inputs": inputs, "targets": targets, "blocks": torch.tensor(indices)}


class EvaluationBlocks(Dataset[Batch]):
    """All blocks of a stream, the short last one filled up: N tokens give N − 1 scored targets.

    Targets past the end are IGNORED, inputs there 0. The index NO_BLOCK gives a row of nothing but that.
    """

    def __init__(self, stream: TokenFile, table: DocumentTable, context: int, split: str) -> None:
        self.stream, self.context = stream, context
        self._starts = table.start
        if len(stream) < 2:
            raise InputError(
                f"the {split} split has {len(stream)} tokens, nothing to score at context {context}: at "
                "least 2 are needed; give it a share in --data.splits or its own text"
            )
        self.num_blocks = -(-(len(stream) - 1) // context)

    def __len__(self) -> int:
        return self.num_blocks

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> Batch:
        """A batch as in training, with `documents` int64 (B, T): the document of each target, or NO_BLOCK."""
        rows = np.zeros((len(indices), self.context + 1), dtype=np.int64)
        lengths = np.zeros(len(indices), dtype=np.int64)
        for row, index in enumerate(indices):
            if index != NO_BLOCK:
                tokens = self._tokens(index)
                rows[row, : len(tokens)] = tokens
                lengths[row] = len(tokens)
        blocks = np.array(indices, dtype=np.int64)
        positions = blocks[:, None] * self.context + np.arange(1, self.context + 1)  # (B, T), of the targets
        there = np.arange(1, self.context + 1) < lengths[:, None]
        documents = np.searchsorted(self._starts, positions, side="right") - 1
        return {
            "inputs": torch.from_numpy(np.ascontiguousarray(rows[:, :-1])),
            "targets": torch.from_numpy(np.where(there, rows[:, 1:], IGNORED)),
            "documents": torch.from_numpy(np.where(there, documents, NO_BLOCK)),
            "blocks": torch.from_numpy(blocks),
        }

    def _tokens(self, index: int) -> NDArray[Any]:
        start = index * self.context
        return self.stream.array[start : start + self.context + 1]
