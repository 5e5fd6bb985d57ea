"""One bare training step: forward, backward, clipped gradient, fused AdamW, on one batch of random tokens."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ilr.bench.precision import autocast
from ilr.bench.variant import Precision, Variant
from ilr.model.compilation import execute
from ilr.model.decoder import Decoder
from ilr.training.optimiser import parameter_groups

CLIP = 1.0
"""Largest norm of the gradient."""


class TrainingStep:
    """A loss and its optimiser; called, it takes one step and returns the loss before it, a scalar."""

    def __init__(
        self,
        loss: Callable[[], Tensor],
        groups: Iterable[dict[str, Any]],
        precision: Precision,
        device: torch.device,
    ) -> None:
        self.loss, self.precision, self.device = loss, precision, device
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
        self.parameters: list[nn.Parameter] = [
            one for group in self.optimizer.param_groups for one in group["params"]
        ]

    def __call__(self) -> Tensor:
        """Take one step."""
        with autocast(self.precision, self.device):
            loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def training_step(variant: Variant, device: torch.device) -> TrainingStep:
    """A variant's step on this device."""
    decoder = Decoder(variant.config, variant.plan).to(device)
    execute(decoder, variant.compile, variant.recompute)
    inputs, targets = random_batch(
        variant.config.vocab_size, variant.batch_size, variant.config.context, device
    )

    def loss() -> Tensor:
        return decoder.nll_sum(inputs, targets) / targets.numel()

    groups = parameter_groups(decoder, weight_decay=0.1, repeated_weight_decay=None, decay_norms=False)
    return TrainingStep(loss, groups, variant.precision, device)


def random_batch(
    vocab_size: int, batch_size: int, context: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Inputs and targets (B, T): always the same tokens for the same sizes."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab_size, (batch_size, context + 1), generator=generator)
    return tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)
