"""Gradients that float16 training keeps scaled up: which precision does so, and how they are brought back."""

import lightning as L
import torch
from lightning.pytorch.plugins import MixedPrecision


def gradient_scaler(trainer: L.Trainer) -> torch.amp.GradScaler | None:
    """The scaler of the trainer's precision; None where gradients are what they are."""
    plugin = trainer.precision_plugin
    return plugin.scaler if isinstance(plugin, MixedPrecision) else None


def unscale(trainer: L.Trainer, optimizer: torch.optim.Optimizer) -> None:
    """Make the optimiser's gradients true ones, once a step, before anything reads or changes them.

    Lightning does so itself, but for fused optimisers, whose own step divides by the scale; torch's scaler
    leaves that out where it has been done before.
    """
    scaler = gradient_scaler(trainer)
    if scaler is not None and optimizer.defaults.get("fused"):
        scaler.unscale_(optimizer)
