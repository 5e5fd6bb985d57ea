"""Which checkpoint a command goes on from, and what it takes over from the run that made it.

A value that the user gives and that differs from the run's is used or refused by name, never ignored.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from ilr.checkpoints import Record
from ilr.errors import InputError
from ilr.parser import plain
from ilr.run_directory import RunDirectory

FREE: dict[str, dict[str, set[str] | None]] = {
    "fit": {
        "model": {"vocab_size", "compile", "recompute"},
        "data": {"num_workers", "cache_dir", "eval_batch_size"},
        "trainer": {
            "max_steps",
            "max_epochs",
            "devices",
            "num_nodes",
            "strategy",
            "accelerator",
            "enable_progress_bar",
        },
    },
    "validate": {
        "model": {"schedule", "val_precision", "compile", "recompute"},
        "data": None,
        "trainer": None,
    },
}
"""Options that may differ from the run's, per command and section; None: all of them."""

IDENTITY = (
    "corpus",
    "dataset_config",
    "dataset_split",
    "revision",
    "document",
    "column",
    "format",
    "splits",
    "split_seed",
    "duplicates",
)
"""Data options that decide which text is read: where one changes, the run's own tokenizer must be given."""


class AlreadyFinished(Exception):
    """There is nothing left to do."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Resume:
    """A checkpoint to go on from, and its optimiser step."""

    path: Path
    step: int


def find_resume(directory: RunDirectory, cfg: Any, given: dict[str, Any]) -> Resume | None:
    """Where `fit` goes on, or None for a new run; the configuration takes over what the run was given.

    Raises `InputError` where the directory holds a run and the user did not ask to go on, and
    `AlreadyFinished` where the run has nothing left to do.
    """
    if cfg.ckpt_path is not None:
        path = _existing(cfg.ckpt_path)
        if path.parent.parent.resolve() != directory.path.resolve():
            raise InputError(f"--ckpt_path {path} belongs to another run than --run_dir {directory.path}")
    elif cfg.resume == "never":
        _refuse_to_overwrite(directory)
        return None
    else:
        found = Record.read(directory).newest_readable(directory)
        if found is None:
            return None
        path = found
    checkpoint = read_checkpoint(path)
    _take_over("fit", cfg, given, _stored(directory, checkpoint))
    _check_unfinished(directory, cfg)
    return Resume(path, int(checkpoint["global_step"]))


def adopt_checkpoint(cfg: Any, given: dict[str, Any]) -> tuple[RunDirectory, str]:
    """For `validate` and `test`: set the checkpoint and what it was trained with; say which it is.

    ``--ckpt_path`` names a file; ``--run_dir`` with ``--weights`` best or last asks the run's record.
    Another ``--model.schedule`` than the trained one evaluates the same weights under that schedule.
    """
    path = _chosen(cfg)
    directory = RunDirectory(path.parent.parent)
    checkpoint = read_checkpoint(path)
    stored = _stored(directory, checkpoint)
    other_text = any(key in given.get("data", {}) for key in IDENTITY)
    _take_over("validate", cfg, given, stored)
    if other_text and "tokenizer" not in given.get("data", {}) and directory.tokenizer.is_file():
        cfg.data.tokenizer = str(directory.tokenizer)
    cfg.model.vocab_size = stored["model"]["vocab_size"]
    cfg.ckpt_path = str(path)
    trained, asked = plain(stored["model"]["schedule"]), plain(cfg.model.schedule)
    under = f"schedule {trained}" if trained == asked else f"schedule {asked} (trained under {trained})"
    return directory, f"{path}, step {checkpoint['global_step']}, {under}"


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content on the CPU; raises `InputError` where it is damaged or not one of ours."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a cut or foreign file fails in many ways
        if not zipfile.is_zipfile(path):  # what torch says of it would speak of mmap
            raise InputError(f"{path} is no checkpoint, or one that was cut short") from error
        raise InputError(f"cannot read the checkpoint {path}: {error}") from error
    if not isinstance(checkpoint, dict) or "ilr" not in checkpoint:
        raise InputError(f"{path} is not a checkpoint of this project")
    return checkpoint


def _chosen(cfg: Any) -> Path:
    if cfg.ckpt_path is not None:
        return _existing(cfg.ckpt_path)
    if cfg.run_dir is None:
        raise InputError(
            "nothing to evaluate: give --ckpt_path FILE, or --run_dir DIR with --weights best or last"
        )
    directory = RunDirectory(Path(cfg.run_dir))
    if not directory.has_run():
        raise InputError(f"--run_dir {directory.path} is not a run directory")
    record = Record.read(directory)
    if cfg.weights == "best" and record.best is not None:
        return _existing(directory.checkpoints / record.best.file)
    newest = record.newest_readable(directory) if cfg.weights == "last" else None
    if newest is None:
        raise InputError(f"--run_dir {directory.path} has no {cfg.weights} checkpoint")
    return newest


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise InputError(f"no checkpoint file {path} (--ckpt_path)")
    return Path(path)


def _stored(directory: RunDirectory, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The run's values by section: from its config.yaml where that lies beside, the model's from the checkpoint."""
    stored = yaml.safe_load(directory.config.read_text()) if directory.config.is_file() else {}
    return {**stored, "model": {**stored.get("model", {}), **checkpoint["hyper_parameters"]}}


def _take_over(command: str, cfg: Any, given: dict[str, Any], stored: dict[str, Any]) -> None:
    conflicts = []
    for section, free in FREE[command].items():
        values, own = cfg[section], given.get(section, {})
        for key, value in (stored.get(section) or {}).items():
            if key not in values:
                continue
            if key not in own:
                values[key] = value
            elif free is not None and key not in free and plain(own[key]) != plain(value):
                conflicts.append(f"--{section}.{key} is {plain(own[key])}, the run has {plain(value)}")
    if "seed_everything" in given and given["seed_everything"] != stored.get(
        "seed_everything", given["seed_everything"]
    ):
        conflicts.append(
            f"--seed_everything is {given['seed_everything']}, the run has {stored['seed_everything']}"
        )
    elif "seed_everything" in stored:
        cfg.seed_everything = stored["seed_everything"]
    for key in ("val_every", "save_every", "log_every", "test_after_fit", "held_equal"):
        if key in stored and key in cfg and key not in given:
            cfg[key] = stored[key]
    if conflicts:
        raise InputError("this checkpoint's run was made with other values: " + "; ".join(conflicts))


def _refuse_to_overwrite(directory: RunDirectory) -> None:
    if directory.has_run():
        summary = directory.summary()
        state = f"{summary['status']} at step {summary['steps']}" if summary else "not finished"
        raise InputError(
            f"--run_dir {directory.path} already holds a run ({state}): go on with --resume auto, "
            "or give another --run_dir"
        )


def _check_unfinished(directory: RunDirectory, cfg: Any) -> None:
    summary = directory.summary()
    if summary is None:
        return
    done = f"{summary['status']} at step {summary['steps']}"
    if summary["status"] == "diverged":
        raise AlreadyFinished(f"{directory.path}: {done}; nothing to do", 3)
    steps, epochs = cfg.trainer.max_steps, cfg.trainer.max_epochs
    longer = steps > summary["steps"] if steps > 0 else (epochs or 0) > round(summary["epochs"])
    if not longer:
        raise AlreadyFinished(f"{directory.path}: already {done}; nothing to do", 0)
    if cfg.model.lr_schedule != "constant":
        raise InputError(
            f"{directory.path} is {done} and cannot be extended: its {cfg.model.lr_schedule} learning rate ended "
            "there (model.lr_schedule constant can be extended)"
        )
