"""NLL of a linear head without its logits: some rows at a time, forward and backward.

Whole logits are the largest tensors of a step (B · T · V values in float32, about three times over). Here the
gradient of each chunk of rows is taken as soon as its loss is known, so that the logits of one chunk exist at
a time. It runs under autocast too, which torch's own `linear_cross_entropy` (2.13) does not.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ilr.model.metrics import IGNORED, token_nll

ROWS = {"cpu": 512}
"""Rows of a chunk by kind of device: on CPU 512 measured best or close to it (128 to 2,048 tried)."""
ROWS_ELSEWHERE = 4096


def linear_nll(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """NLL of each target under the logits features · weightᵀ, (B, T), without gradients.

    ``features`` (B, T, D), ``weight`` (V, D), ``targets`` (B, T): see `token_nll`, whose result it equals.
    """
    with torch.no_grad():
        rows, head = _as_product(features).flatten(0, -2), _as_product(weight)
        chunks = [
            token_nll(F.linear(rows[part], head), targets.flatten()[part]) for part in _chunks(features)
        ]
    return torch.cat(chunks).view(targets.shape)


def linear_nll_sum(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Sum of `linear_nll`, a scalar in float32 or wider, with gradients for features and weight.

    Between forward and backward pass it keeps those gradients, B · T · D and V · D values.
    """
    if not torch.is_grad_enabled():
        return linear_nll(features, weight, targets).sum()
    total: Tensor = _LinearNLLSum.apply(features, weight, targets)  # type: ignore[no-untyped-call]
    return total


class _LinearNLLSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        rows, head = _as_product(features).flatten(0, -2), _as_product(weight)
        wide = torch.promote_types(rows.dtype, torch.float32)
        of_rows = torch.empty_like(rows)
        of_head = torch.zeros_like(head, dtype=wide)
        losses = []
        with torch.autocast(features.device.type, enabled=False):
            for part in _chunks(features):
                aims = targets.flatten()[part, None]
                scored, aims = aims != IGNORED, aims.clamp(min=0)
                log_likelihood = F.log_softmax(F.linear(rows[part], head), dim=-1, dtype=wide)
                losses.append(-log_likelihood.gather(1, aims) * scored)
                # The gradient of a row's NLL: its probabilities, less 1 at the target; in the same place.
                slope = log_likelihood.exp_()
                slope.scatter_add_(1, aims, torch.full_like(losses[-1], -1.0))
                slope = slope.to(rows.dtype)
                # What is not scored is left out of the narrow operands, not of the wide one.
                of_rows[part] = (slope @ head) * scored
                if slope.dtype == wide:
                    of_head.addmm_(slope.T, rows[part] * scored)
                else:
                    of_head += slope.T @ (rows[part] * scored)
        ctx.save_for_backward(of_rows.view(features.shape), of_head)
        ctx.types = features.dtype, weight.dtype
        return torch.cat(losses).sum()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        of_features, of_weight = ctx.saved_tensors
        of_type, weight_type = ctx.types
        return (of_features * upstream).to(of_type), (of_weight * upstream).to(weight_type), None


def _as_product(tensor: Tensor) -> Tensor:
    """The tensor in the type of matrix products: autocast's where it is on."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def _chunks(features: Tensor) -> Iterator[slice]:
    rows = ROWS.get(features.device.type, ROWS_ELSEWHERE)
    for begin in range(0, features.shape[:-1].numel(), rows):
        yield slice(begin, begin + rows)
