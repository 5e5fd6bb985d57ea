"""Batches that score a stated number of tokens, exactly."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from ilr.errors import InputError
from ilr.model.metrics import IGNORED

Batch = Mapping[str, Tensor]
"""``inputs``, ``targets`` (not scored: `IGNORED`) and ``documents`` (that of each target), (B, T)."""


def first_tokens(batches: Iterable[Batch], count: int, device: torch.device) -> Iterator[dict[str, Tensor]]:
    """The batches up to the one that holds the ``count``-th scored target, on the device.

    Targets after that one are ignored, rows that score nothing are left out. Raises `InputError` where there
    is no token to score.
    """
    left = count
    for batch in batches:
        if left <= 0:
            break
        targets = batch["targets"].to(device)
        scored = targets != IGNORED
        rank = scored.flatten().cumsum(0).view_as(scored)
        targets = torch.where(rank <= left, targets, IGNORED)
        rows = (targets != IGNORED).any(dim=1)
        if rows.any():
            left -= int((targets != IGNORED).sum())
            inputs, documents = batch["inputs"].to(device), batch["documents"].to(device)
            yield {"inputs": inputs[rows], "targets": targets[rows], "documents": documents[rows]}
    if left == count:
        raise InputError("there is no token to score in this text")
