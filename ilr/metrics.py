"""The one definition of NLL, and the figures derived from it."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
"""Target id that is not scored: the one value used by data, loss and metrics."""


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """NLL of each target in nats, (B, T) float32 (float64 for float64 logits), 0 where `IGNORED`.

    ``logits`` (B, T, V) of any floating type are widened before the log-softmax; ``targets`` (B, T) int64.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(wide.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return nll.view(targets.shape)


def perplexity(loss: float) -> float:
    """Exp of a mean NLL in nats; inf where that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nll: float, num_bytes: int) -> float:
    """Total NLL in nats over the UTF-8 bytes of the original text, in bits per byte."""
    return total_nll / math.log(2) / num_bytes
