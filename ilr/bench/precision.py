"""A precision as torch has it: the type of matrix products, and the context in which they run so."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ilr.bench.variant import Precision


def product_type(precision: Precision) -> torch.dtype:
    """The type that matrix products run in."""
    return torch.bfloat16 if precision == "bf16-mixed" else torch.float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Products in this precision, weights in float32."""
    dtype = product_type(precision)
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)
