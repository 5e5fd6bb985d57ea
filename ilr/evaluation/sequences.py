"""What is scored without looking outside of it, as batches: a whole stream, or each document alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ilr.data.blocks import NO_BLOCK
from ilr.data.tokens import DocumentTable
from ilr.evaluation.windows import Numbers, Windows
from ilr.model.metrics import IGNORED

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Sequences:
    """Sequences of tokens out of a stream: ``lengths`` tokens from ``offsets`` on.

    Where ``separator`` is not None it stands in place of each sequence's first token. ``document_starts``: where
    documents begin in the stream.
    """

    stream: NDArray[Any]
    document_starts: Numbers
    offsets: Numbers
    lengths: Numbers
    separator: int | None

    @classmethod
    def whole(cls, stream: NDArray[Any], table: DocumentTable) -> "Sequences":
        """The stream as one sequence, attention crossing document boundaries: as in training."""
        return cls(stream, table.start, np.zeros(1, dtype=np.int64), np.array([len(stream)]), None)

    @classmethod
    def documents(cls, stream: NDArray[Any], table: DocumentTable, separator: int) -> "Sequences":
        """Each document by itself behind a separator: all of its tokens are scored, its own separator too."""
        return cls(stream, table.start, table.start - 1, table.tokens + 1, separator)

    def batches(self, window: int, stride: int, batch_size: int) -> Iterator[Batch]:
        """Batches (B, T) of ``inputs``, ``targets`` and ``documents`` (that of each target).

        A stream has T = ``window`` throughout. Documents that fit into a shorter power of two have that T,
        and as many more rows: a few shapes instead of mostly padding. Rows that only fill up are IGNORED.
        """
        widths = self._widths(window)
        for width in np.unique(widths).tolist():
            chosen = np.flatnonzero(widths == width)
            windows = Windows(self.lengths[chosen], width, min(stride, width))
            rows = batch_size * max(1, window // width)
            for begin in range(0, len(windows), rows):
                numbers = np.arange(begin, min(begin + rows, len(windows)))
                yield self._batch(windows, chosen, numbers, rows)

    @property
    def num_targets(self) -> int:
        """Tokens that are predicted, whatever the windows."""
        return int(np.maximum(self.lengths - 1, 0).sum())

    def _widths(self, window: int) -> Numbers:
        """T for each sequence: the smallest power of two that holds its targets, at most the window."""
        if self.separator is None:
            return np.full(len(self.lengths), window)
        targets = np.maximum(self.lengths - 1, 1)
        return np.minimum(window, 2 ** np.ceil(np.log2(targets)).astype(np.int64))

    def _batch(self, windows: Windows, chosen: Numbers, numbers: Numbers, rows: int) -> Batch:
        one = windows[numbers]
        lengths = self.lengths[chosen][one.sequence]
        offsets = self.offsets[chosen][one.sequence]
        places = one.start[:, None] + np.arange(windows.window + 1)  # (B, T + 1), within the sequence
        there = places < lengths[:, None]
        where = np.where(there, offsets[:, None] + places, 0)
        tokens = np.where(there, self.stream[np.maximum(where, 0)].astype(np.int64), 0)
        if self.separator is not None:
            tokens[places == 0] = self.separator
        targets, predicted = tokens[:, 1:], places[:, 1:]
        scored = (predicted >= one.first[:, None]) & (predicted <= one.last[:, None])
        documents = np.searchsorted(self.document_starts, where[:, 1:], side="right") - 1
        return {
            "inputs": _filled(tokens[:, :-1], rows, 0),
            "targets": _filled(np.where(scored, targets, IGNORED), rows, IGNORED),
            "documents": _filled(np.where(scored, documents, NO_BLOCK), rows, NO_BLOCK),
        }


def _filled(values: Numbers, rows: int, filler: int) -> Tensor:
    whole = np.full((rows, values.shape[1]), filler, dtype=np.int64)
    whole[: len(values)] = values
    return torch.from_numpy(whole)
