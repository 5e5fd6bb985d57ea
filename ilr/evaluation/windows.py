"""Which tokens are predicted in which window: every token but the first of a sequence, each exactly once.

The targets of a sequence, tokens 1, 2, …, lie in blocks of ``window``. The first block is predicted in one go.
In each later one the windows advance by ``stride``, the last of a block by what is left of it:

    window 8, stride 3    block 0: predicts 1–8 from 0
                          block 1: predicts 9–11 from 3, 12–14 from 6, 15–16 from 8
                          block 2: predicts 17–19 from 11, …

So stride = window gives disjoint blocks, and any smaller stride gives no token less context than they do;
past the first block every token has a context of at least window − stride + 1 tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ilr.errors import InputError

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """One window or, as arrays of shape (B,), several: it reads from ``start`` on and predicts the tokens
    ``first`` to ``last``; all counted in tokens of sequence number ``sequence``.
    """

    sequence: Numbers
    start: Numbers
    first: Numbers
    last: Numbers


class Windows:
    """The windows over sequences of these lengths, numbered; none is kept in memory."""

    def __init__(self, lengths: Numbers, window: int, stride: int) -> None:
        check_windows(window, stride)
        self.lengths, self.window, self.stride = np.asarray(lengths, dtype=np.int64), window, stride
        self._per_block = -(-window // stride)
        targets = np.maximum(self.lengths - 1, 0)
        blocks, rest = np.divmod(np.maximum(targets - window, 0), window)
        counts = (targets > 0) + blocks * self._per_block + -(-rest // stride)
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, numbers: Numbers) -> Window:
        """Windows of these numbers (B,)."""
        sequence = np.searchsorted(self._ends, numbers, side="right")
        begin = np.where(sequence > 0, self._ends[sequence - 1], 0)
        block, step = np.divmod(numbers - begin - 1, self._per_block)
        initial = numbers == begin
        block, step = np.where(initial, 0, block + 1), np.where(initial, 0, step)
        reach = np.where(initial, self.window, np.minimum((step + 1) * self.stride, self.window))
        end = block * self.window + reach
        return Window(
            sequence=sequence,
            start=end - self.window,
            first=block * self.window + step * self.stride + 1,
            last=np.minimum(end, self.lengths[sequence] - 1),
        )


def check_windows(window: int, stride: int) -> None:
    """Raise `InputError` unless 1 ≤ stride ≤ window."""
    if not 1 <= stride <= window:
        raise InputError(
            f"--window must be at least 1 and --stride between 1 and the window, got window {window} and "
            f"stride {stride}"
        )
