"""Checkpoints of a run: written whole, recorded by path, step and value, found again, never by a fixed name."""

import zipfile
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
from ilr.files import plain_json
from ilr.files.lock import check_held
from ilr.files.readers import read_json
from ilr.files.text import MissingFile
from ilr.runs.directory import RunDirectory, atomic_write
from ilr.runs.schema import CheckpointRecord
from ilr.training.module import LanguageModel
from ilr.training.step_callback import StepCallback, validation_follows

KEPT = 2
"""Newest checkpoints kept, so that one cut short by a crash leaves the one before it."""


OWN = "step-????????*.ckpt"
"""Names of the checkpoints that a run writes and deletes; a copy under another name stays."""

KEYS: dict[str, type] = {"global_step": int, "state_dict": dict, "hyper_parameters": dict, "ilr": dict}
"""What every checkpoint of this project holds, among other things."""


class AtomicCheckpointIO(CheckpointIO):
    """Writes beside the target, syncs and renames: a checkpoint is whole or absent."""

    def __init__(self) -> None:
        self.inner = TorchCheckpointIO()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the checkpoint under ``path``; raises `InputError` where the disk does not take it."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(Path(path), "wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"cannot write the checkpoint {path}: {_reason(error)}; earlier checkpoints are intact"
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

    def cut(self, step: int) -> "Record":
        """The record as it was after this step: what was saved later belongs to steps that are taken again."""
        best = self.best if self.best is not None and self.best.step <= step else None
        return Record([saved for saved in self.last if saved.step <= step], best)

    def newest_readable(self, directory: RunDirectory) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that can be read, and its content; damaged ones are named in a warning and passed
        over. None where the record names none; raises `InputError` where all are damaged.
        """
        saved = {one.step: one for one in (self.best, *self.last) if one is not None}
        damages = []
        for step in sorted(saved, reverse=True):
            path = directory.checkpoints / saved[step].file
            try:
                return path, read_checkpoint(path)
            except InputError as error:
                damages.append(str(error))
                rank_zero_warn(f"{error}; going back to the one before it")
        if damages:
            raise InputError(f"no checkpoint of {directory.path} can be read: {'; '.join(damages)}")
        return None

    def chosen(self, directory: RunDirectory, weights: str) -> tuple[Path, dict[str, Any]]:
        """The checkpoint that ``weights`` (best or last) means, and its content. Raises `InputError` where there is
        none, or where it is damaged; a damaged last one gives way to the one before it, with a warning.
        """
        found = None
        if weights == "last":
            found = self.newest_readable(directory)
        elif self.best is not None:
            path = directory.checkpoints / self.best.file
            found = path, read_checkpoint(path)
        if found is None:
            raise InputError(f"the run directory {directory.path} has no {weights} checkpoint")
        return found


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content on the CPU, its checksums verified.

    Raises `InputError` where it is missing, damaged or not one of ours.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch reads without the checksums that it writes
        if broken is not None:
            raise InputError(f"the checkpoint {path} is damaged: {broken} has another checksum")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read the checkpoint {path}: {error.strerror}") from None
    except Exception as error:  # a cut or foreign file fails in many ways
        if not zipfile.is_zipfile(path):  # what torch says of it would speak of mmap
            raise InputError(f"{path} is no checkpoint, or one that was cut short") from error
        raise InputError(f"cannot read the checkpoint {path}: {' '.join(str(error).split())}") from error
    return _ours(path, checkpoint)


def _ours(path: Path, checkpoint: Any) -> dict[str, Any]:
    if not isinstance(checkpoint, dict):
        raise InputError(
            f"{path} is not a checkpoint of this project: it holds a {type(checkpoint).__name__}"
        )
    wrong = [key for key, kind in KEYS.items() if not isinstance(checkpoint.get(key), kind)]
    if wrong:
        found = ", ".join(map(str, list(checkpoint)[:6])) + (", …" if len(checkpoint) > 6 else "")
        raise InputError(
            f"{path} is not a checkpoint of this project: it has the keys {found}; needed are {', '.join(KEYS)}"
        )
    return checkpoint


class Checkpoints(StepCallback, Checkpoint):
    """Keeps the two newest checkpoints and the best by val/loss, at optimiser-step boundaries only.

    The newest are saved every ``every`` steps, after each validation and at the end. A NaN never wins and
    never blocks; weights that are not finite are not saved.
    """

    def __init__(self, directory: RunDirectory, every: int, resume_step: int | None = None) -> None:
        self.directory, self.every = directory, every
        # What a new run finds here is not its own.
        self.record = Record([]) if resume_step is None else Record.read(directory).cut(resume_step)

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

    def on_fit_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Keep no more than the record names: a start that was killed while it pruned may have left some."""
        if trainer.is_global_zero and self.record.last:
            self._prune()

    def save(self, trainer: L.Trainer, val_loss: float | None = None) -> None:
        """Save the state after this step as the newest, and as the best where it is."""
        check_held(self.directory.path)
        step = trainer.global_step
        if not _finite(trainer):
            rank_zero_warn(f"the weights are not finite at step {step}: no checkpoint saved")
            return
        known = {saved.step: saved for saved in self.record.last}
        file = f"step-{step:08d}.ckpt"
        if step not in known or val_loss is not None:
            saved = Saved(file, step, val_loss)
            trainer.save_checkpoint(self.directory.checkpoints / saved.file)
            self.record.last = [*(s for s in self.record.last if s.step < step), saved]
        if val_loss is not None and val_loss == val_loss and _improves(val_loss, self.record.best):
            self.record.best = Saved(file, step, val_loss)
        if trainer.is_global_zero:
            self._prune()

    def _prune(self) -> None:
        self.record.last = self.record.last[-KEPT:]
        kept = {saved.file for saved in (*self.record.last, self.record.best) if saved is not None}
        self.record.write(self.directory)
        for path in self.directory.checkpoints.glob(OWN):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _reason(error: OSError | RuntimeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _improves(val_loss: float, best: Saved | None) -> bool:
    return best is None or best.val_loss is None or val_loss < best.val_loss


def _finite(trainer: L.Trainer) -> bool:
    parameters = trainer.lightning_module.parameters()
    return all(bool(torch.isfinite(parameter.detach()).all()) for parameter in parameters)
