"""SIGINT and SIGTERM: save at the next optimiser-step boundary, then leave."""

import signal
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.types import STEP_OUTPUT

from ilr.runs.checkpoints import Checkpoints
from ilr.training.step_callback import StepCallback, validation_follows


class Interrupted(Exception):
    """Training was asked to stop, and has saved its state."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}; saved at step {step}")
        self.exit_code = 128 + signum


class Interruption(StepCallback, Checkpoint):
    """Turns the first signal into a checkpoint and an `Interrupted`; a second one ends the process at once.

    Whatever asks the trainer to stop within an accumulation window is heard at the window's end: a state saved
    between would have lost half a gradient. Lightning calls those of the type `Checkpoint` last: here, after all
    who may ask for a stop, and after `Checkpoints`, with which a validation is saved.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.received: int | None = None
        self._asked_to_stop = False
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Take over the two signals."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._previous[signum] = signal.signal(signum, self._receive)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Put a stop off until the step is complete."""
        asked, complete = self._asked_to_stop or trainer.should_stop, trainer.global_step > self._step_before
        trainer.should_stop, self._asked_to_stop = asked and complete, asked and not complete
        super().on_train_batch_end(trainer, module, outputs, batch, batch_idx)

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
