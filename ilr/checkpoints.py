"""Checkpoints of a run: written whole, recorded by path, step and value, found again, never by a fixed name."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.utilities import rank_zero_warn

from ilr.errors import InputError
from ilr.run_directory import RunDirectory, atomic_write
from ilr.runs import plain_json
from ilr.runs.files import MissingFile
from ilr.runs.readers import read_json
from ilr.runs.schema import CheckpointRecord
from ilr.steps import StepCallback, validation_follows
from ilr.training import LanguageModel

KEPT = 2
"""Newest checkpoints kept, so that one cut short by a crash leaves the one before it."""


class AtomicCheckpointIO(CheckpointIO):
    """Writes beside the target, syncs and renames: a checkpoint is whole or absent."""

    def __init__(self) -> None:
        self.inner = TorchCheckpointIO()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the checkpoint under ``path``; raises `InputError` where the disk does not take it."""
        partial = Path(f"{path}.partial")
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except (OSError, RuntimeError) as error:
            partial.unlink(missing_ok=True)
            raise InputError(
                f"cannot write the checkpoint {path}: {error}; earlier checkpoints are intact"
            ) from error

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint of plain data."""
        return self.inner.load_checkpoint(
            path, map_location or (lambda storage, _: storage), weights_only=True
        )

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint file."""
        self.inner.remove_checkpoint(path)


@dataclass(frozen=True)
class Saved:
    """One checkpoint of a record: its file name, optimiser step, and val/loss (None: not validated there)."""

    file: str
    step: int
    val_loss: float | None = None


@dataclass
class Record:
    """The checkpoints that a run directory holds: the newest last, and the best by val/loss."""

    last: list[Saved]
    best: Saved | None = None

    @classmethod
    def read(cls, directory: RunDirectory) -> "Record":
        """The record of a run directory; empty where there is none. Raises `InputError` for a damaged one."""
        try:
            found = read_json(directory.checkpoints / "record.json", CheckpointRecord)
        except MissingFile:
            return cls([])
        best = found.best
        return cls(
            [Saved(saved.file, saved.step, saved.val_loss) for saved in found.last],
            None if best is None else Saved(best.file, best.step, best.val_loss),
        )

    def write(self, directory: RunDirectory) -> None:
        """Replace the record file."""
        with atomic_write(directory.checkpoints / "record.json") as file:
            file.write(plain_json.dumps(asdict(self), indent=1))

    def newest_readable(self, directory: RunDirectory) -> Path | None:
        """The newest checkpoint that can be read; a damaged one is named in a warning and passed over."""
        for saved in reversed(self.last):
            path = directory.checkpoints / saved.file
            try:
                torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except Exception as error:  # a cut file fails in many ways: zip, pickle, missing, short read
                rank_zero_warn(
                    f"the checkpoint {path} cannot be read ({error}); going back to the one before it"
                )
                continue
            return path
        return None


class Checkpoints(StepCallback, Checkpoint):
    """Keeps the two newest checkpoints and the best by val/loss, at optimiser-step boundaries only.

    The newest are saved every ``every`` steps, after each validation and at the end. A NaN never wins and
    never blocks; weights that are not finite are not saved.
    """

    def __init__(self, directory: RunDirectory, every: int) -> None:
        self.directory, self.every = directory, every
        self.record = Record.read(directory)

    def after_step(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Save every ``every`` steps, unless a validation follows: then after it."""
        if trainer.global_step % self.every == 0 and not validation_follows(trainer):
            self.save(trainer)

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Save, and keep as the best where val/loss is lower than ever."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        assert isinstance(module, LanguageModel)
        self.save(trainer, module.scores["val"].loss)

    def save(self, trainer: L.Trainer, val_loss: float | None = None) -> None:
        """Save the state after this step as the newest, and as the best where it is."""
        step = trainer.global_step
        if not _finite(trainer):
            rank_zero_warn(f"the weights are not finite at step {step}: no checkpoint saved")
            return
        known = {saved.step: saved for saved in self.record.last}
        if step not in known or val_loss is not None:
            saved = Saved(f"step-{step:08d}.ckpt", step, val_loss)
            trainer.save_checkpoint(self.directory.checkpoints / saved.file)
            self.record.last = [*(s for s in self.record.last if s.step < step), saved]
        if val_loss is not None and val_loss == val_loss and _improves(val_loss, self.record.best):
            self.record.best = Saved(f"step-{step:08d}.ckpt", step, val_loss)
        if trainer.is_global_zero:
            self._prune()

    def _prune(self) -> None:
        self.record.last = self.record.last[-KEPT:]
        kept = {saved.file for saved in (*self.record.last, self.record.best) if saved is not None}
        self.record.write(self.directory)
        for path in self.directory.checkpoints.glob("*.ckpt*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _improves(val_loss: float, best: Saved | None) -> bool:
    return best is None or best.val_loss is None or val_loss < best.val_loss


def _finite(trainer: L.Trainer) -> bool:
    parameters = trainer.lightning_module.parameters()
    return all(bool(torch.isfinite(parameter.detach()).all()) for parameter in parameters)
