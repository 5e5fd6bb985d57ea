"""Callbacks that act on optimiser steps: Lightning's own hooks run once a micro-batch."""

from abc import ABC, abstractmethod
from typing import Any

import lightning as L
from lightning.pytorch.utilities.types import STEP_OUTPUT


class StepCallback(L.Callback, ABC):
    """Calls `after_step` where a micro-batch has completed an optimiser step."""

    _step_before = -1

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the step, to see whether the micro-batch completes one."""
        self._step_before = trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Act, if the micro-batch has completed a step."""
        if trainer.global_step > self._step_before:
            self.after_step(trainer, module)

    @abstractmethod
    def after_step(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """What to do after each optimiser step, before the validation that may follow."""


def validation_follows(trainer: L.Trainer) -> bool:
    """Whether Lightning validates after this micro-batch: its own rule, asked a moment earlier."""
    fit = trainer.fit_loop
    assert fit._data_fetcher is not None
    return fit.epoch_loop._should_check_val_fx(fit._data_fetcher)
