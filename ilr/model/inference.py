"""Measuring a module without leaving a trace on it."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, no gradients and nothing compiled inside (shapes vary, and derivatives are taken twice);
    afterwards every submodule has its own training flag back.
    """
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad(), _eagerly():
            yield
    finally:
        for part, training in flags:
            part.training = training


def _eagerly() -> AbstractContextManager[object]:
    """Run compiled functions uncompiled; importing the compiler takes seconds, so only where it is in use."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
