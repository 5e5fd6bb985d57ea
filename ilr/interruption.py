"""SIGINT and SIGTERM: save at the next optimiser-step boundary, then leave."""

import signal
from types import FrameType
from typing import Any

import lightning as L
import torch

from ilr.checkpoints import Checkpoints
from ilr.steps import StepCallback, validation_follows


class Interrupted(Exception):
    """Training was asked to stop, and has saved its state."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}; saved at step {step}")
        self.exit_code = 128 + signum


class Interruption(StepCallback):
    """Turns the first signal into a checkpoint and an `Interrupted`; a second one ends the process at once."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Take over the two signals."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._previous[signum] = signal.signal(signum, self._receive)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        print(
            f"\n{signal.Signals(signum).name}: saving at the end of this step; once more to stop at once",
            flush=True,
        )
        for other in (signal.SIGINT, signal.SIGTERM):
            signal.signal(other, signal.SIG_DFL)

    def after_step(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Save and leave, unless a validation follows: then after it."""
        if not validation_follows(trainer):
            self._leave(trainer)

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Leave after a validation, whose end has saved the state."""
        if trainer.state.fn == "fit":
            self._leave(trainer)

    def teardown(self, trainer: L.Trainer, module: L.LightningModule, stage: str) -> None:
        """Give the signals back."""
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous = {}

    def _leave(self, trainer: L.Trainer) -> None:
        received = self.received
        if trainer.world_size > 1:  # any process may have been signalled; all must save together
            own = torch.tensor(received or 0, device=trainer.strategy.root_device)
            received = int(trainer.strategy.reduce(own, reduce_op="max")) or None
        if received is not None:
            self.checkpoints.save(trainer)
            raise Interrupted(received, trainer.global_step)
