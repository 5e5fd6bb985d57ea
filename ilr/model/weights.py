"""Weights from elsewhere against those of a model: both names and both shapes are said where they do not fit."""

from collections.abc import Container, Mapping

import torch
from torch import Tensor

from ilr.errors import InputError

_LISTED = 4


def fitting(given: Mapping[str, Tensor], own: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The given weights under the names of a model's own, all of them and no others.

    A head that a model with tied embeddings does not have is left out where it equals the embedding. Raises
    `InputError`, which names ``source`` and both names or shapes, where the two do not fit.
    """
    chosen = without_tied_head(given, own)
    unknown = [name for name in chosen if name not in own]
    missing = [name for name in own if name not in chosen]
    if unknown or missing:
        raise InputError(
            f"{source} does not fit this model: it has {_some(unknown)} where the model has {_some(missing)}"
        )
    for name, tensor in chosen.items():
        if not isinstance(tensor, Tensor) or tensor.shape != own[name].shape:
            found = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(
                f"{source} does not fit this model: its {name} is {found}, the model's is {tuple(own[name].shape)}"
            )
        if tensor.layout != torch.strided:
            raise InputError(
                f"{source} does not fit this model: its {name} is {tensor.layout}, allowed: dense"
            )
    return chosen


def without_tied_head(given: Mapping[str, Tensor], own: Container[str]) -> dict[str, Tensor]:
    """The given weights without a head that a model of these names has not, where it equals their embedding."""
    embeddings = [name for name in given if name.endswith(("embed_tokens.weight", "embedding.weight"))]
    return {
        name: tensor
        for name, tensor in given.items()
        if name in own
        or not name.endswith("head.weight")
        or not any(torch.equal(tensor, given[embedding]) for embedding in embeddings)
    }


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "nothing else"
