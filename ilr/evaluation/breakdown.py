"""NLL by position in the window, and by deciles of training frequency."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilr.evaluation.measure import Counts, Floats, Sums

DECILES = 10
_CHUNK = 1 << 24


@dataclass(frozen=True)
class PositionBin:
    """Tokens predicted from ``first`` to ``last`` tokens: how many, and their mean NLL (None without any)."""

    first: int
    last: int
    tokens: int
    loss: float | None

    @property
    def label(self) -> str:
        """The range as text."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Decile:
    """A tenth of the training stream, ``number`` 1 being its most frequent tokens.

    ``types``: token ids in it. ``train_share``: their actual share of the training stream. ``most`` and
    ``least``: occurrences there of its commonest and its rarest id. ``tokens`` and ``loss``: as in `PositionBin`.
    """

    number: int
    types: int
    train_share: float
    most: int
    least: int
    tokens: int
    loss: float | None


def position_bins(sums: Sums) -> list[PositionBin]:
    """Ranges 1, 2, 3–4, 5–8, … of the number of tokens that the prediction saw."""
    window = len(sums.position_nll)
    bins, first = [], 1
    while first <= window:
        last = min(window, 1 if first == 1 else 2 * (first - 1))
        chosen = slice(first - 1, last)
        nll, tokens = sums.position_nll[chosen].sum(), sums.position_tokens[chosen].sum()
        bins.append(PositionBin(first, last, int(tokens), _mean(nll, tokens)))
        first = last + 1
    return bins


def position_losses(sums: Sums) -> list[float | None]:
    """Mean NLL of the tokens that were predicted from 1, 2, … tokens."""
    return [_mean(nll, tokens) for nll, tokens in zip(sums.position_nll, sums.position_tokens, strict=True)]


def frequencies(stream: NDArray[Any], vocab_size: int) -> Counts:
    """Occurrences of each id in a stream, (V,)."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for begin in range(0, len(stream), _CHUNK):
        counts += np.bincount(stream[begin : begin + _CHUNK], minlength=vocab_size)
    return counts


def decile_of(counts: Counts) -> Counts:
    """The decile 0 … 9 of each id (V,): by falling frequency, each decile a tenth of all occurrences.

    Equal frequencies are ordered by id. An id is never cut: it belongs to the decile in which the middle of
    its occurrences lies, so one that is very frequent may leave a decile empty. Ids that never occur belong
    to the last.
    """
    order = np.lexsort((np.arange(len(counts)), -counts))
    sorted_counts = counts[order]
    middle = np.cumsum(sorted_counts) - sorted_counts / 2
    deciles = np.empty(len(counts), dtype=np.int64)
    deciles[order] = np.minimum(np.floor(middle * DECILES / counts.sum()), DECILES - 1)
    deciles[counts == 0] = DECILES - 1
    return deciles


def frequency_deciles(sums: Sums, counts: Counts) -> list[Decile]:
    """Scored tokens and NLL of each decile of the training frequencies ``counts`` (V,)."""
    deciles = decile_of(counts)
    nll = np.bincount(deciles, weights=sums.token_nll, minlength=DECILES)
    found = []
    for number in range(DECILES):
        inside = deciles == number
        tokens = int(sums.token_counts[inside].sum())
        found.append(
            Decile(
                number=number + 1,
                types=int(inside.sum()),
                train_share=float(counts[inside].sum() / counts.sum()),
                most=int(counts[inside].max(initial=0)),
                least=int(counts[inside].min()) if inside.any() else 0,
                tokens=tokens,
                loss=_mean(nll[number], tokens),
            )
        )
    return found


def _mean(nll: Floats | float, tokens: Counts | int) -> float | None:
    return float(nll / tokens) if tokens else None
