"""Which checkpoint a command goes on from, and what it takes over from the run that made it.

A value that the user gives and that differs from the run's is used or refused by name, never ignored.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ilr.data.recorded import RunText
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.files.readers import read_yaml
from ilr.runs.checkpoints import Record, read_checkpoint
from ilr.runs.directory import RunDirectory, read_history
from ilr.runs.identity import same_number
from ilr.runs.option_schema import check_options
from ilr.runs.options import flat
from ilr.runs.schema import Settings
from ilr.runs.text import named_anew, text_of_run
from ilr.runs.trust import check_plain

FREE: dict[str, dict[str, set[str] | None]] = {
    "fit": {
        "model": set(),
        "data": set(),
        "trainer": {
            "max_steps",
            "max_epochs",
            "devices",
            "num_nodes",
            "max_time",
            "min_steps",
            "min_epochs",
        },
    },
    "validate": {
        "model": {"schedule", "val_precision", "compile", "recompute"},
        "data": None,
        "trainer": None,
    },
}
"""Options that may differ from the run's beside those that change no number, per command and section; None: all."""

TAKEN: dict[str, dict[str, frozenset[str]]] = {
    "validate": {
        "trainer": frozenset(
            {
                *("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins"),
                *("deterministic", "benchmark", "enable_progress_bar"),
            }
        ),
    },
}
"""Options that are taken over from the run, per command and section, where not all are: an evaluation needs nothing
that belongs to training, such as callbacks, loggers and profilers, and has nothing imported for them.
"""

OF_ONE_START = {"max_time"}
"""Options of the trainer that hold for the start that gives them, not for the run."""

STOPS = ("EarlyStopping", "Timer")
"""Callbacks that only end training: a run that they have stopped may go on without them, or with others."""

NAMES = frozenset({"corpus", "validation", "test", "tokenizer"})
"""Data options that name files: where a run knows its text by content, the same text may have another name."""


class AlreadyFinished(Exception):
    """There is nothing left to do."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Resume:
    """A checkpoint to go on from, its optimiser step, and the text that it was trained on."""

    path: Path
    step: int
    text: RunText | None


def find_resume(directory: RunDirectory, cfg: Any, given: dict[str, Any]) -> Resume | None:
    """Where `fit` goes on, or None for a new run; the configuration takes over what the run was given.

    Raises `InputError` where the directory holds a run and the user did not ask to go on, or what is left of one,
    and `AlreadyFinished` where the run has nothing left to do.
    """
    if leftovers := directory.leftovers():
        raise InputError(
            f"--run_dir {directory.path} holds no run but what is left of one without a config.yaml "
            f"({_listed(leftovers)}): remove it, or give another --run_dir"
        )
    if cfg.ckpt_path is not None:
        path = existing(cfg.ckpt_path)
        if path.parent.parent.resolve() != directory.path.resolve():
            raise InputError(f"--ckpt_path {path} belongs to another run than --run_dir {directory.path}")
        checkpoint = read_checkpoint(path)
    elif cfg.resume == "never":
        _refuse_to_overwrite(directory)
        return None
    else:
        found = Record.read(directory).newest_readable(directory)
        if found is None:
            _check_anew(directory)
            return None
        path, checkpoint = found
    stored = stored_values(directory, checkpoint)
    text = text_of_run(directory, checkpoint, stored.get("data", {}))
    take_over("fit", cfg, given, stored, NAMES if text is not None else frozenset())
    _keep_warmup(cfg, given, checkpoint)
    if text is not None and named_anew(given.get("data", {}), stored.get("data", {}), NAMES):
        text = replace(text, key=None)
    _check_unfinished(directory, cfg, checkpoint["ilr"].get("horizon"))
    read_history(directory.history)  # what cannot be read is said before anything changes
    return Resume(path, int(checkpoint["global_step"]), text)


def existing(path: str | Path) -> Path:
    """The path of a checkpoint file; raises `InputError` where there is none."""
    if not Path(path).is_file():
        raise InputError(f"no checkpoint file {path} (--ckpt_path)")
    return Path(path)


def stored_values(directory: RunDirectory, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The run's values by section: from its config.yaml where that lies beside, the model's from the checkpoint."""
    stored: dict[str, Any] = {}
    if directory.config.is_file():
        stored = read_yaml(directory.config, Settings, "the configuration").model_dump(exclude_unset=True)
        check_options(flat(stored), directory.config)
    hyperparameters = {
        key: value for key, value in checkpoint["hyper_parameters"].items() if not key.startswith("_")
    }
    return {**stored, "model": {**stored.get("model", {}), **hyperparameters}}


def take_over(
    command: str,
    cfg: Any,
    given: dict[str, Any],
    stored: dict[str, Any],
    names: frozenset[str] = frozenset(),
) -> None:
    """Set the options that are the run's and that the user has not given; raises `InputError` for given ones that
    differ where they may not. ``names``: data options of which a given value is let through.
    """
    conflicts = []
    options = flat(plain(stored))
    for section, free in FREE[command].items():
        values, own = cfg[section], given.get(section, {})
        known = {key: value for key, value in (stored.get(section) or {}).items() if key in values}
        wanted = TAKEN.get(command, {}).get(section, known.keys() - OF_ONE_START)
        taken = {key: value for key, value in known.items() if key not in own and key in wanted}
        if not cfg.trust:
            check_plain(section, taken, "the run's configuration")
        for key, value in known.items():
            if key in taken:
                values[key] = value
            elif free is None or key in free or key not in own or (section == "data" and key in names):
                continue
            # A class is given without its defaults, and recorded with them.
            elif not any(
                same_number(
                    f"{section}.{key}", _without_stops(plain(one[key])), _without_stops(plain(value)), options
                )
                for one in (own, values)
            ):
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


def _keep_warmup(cfg: Any, given: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    """Of a run that is made longer, the warm-up stays what it was: a share of the steps of the run's beginning."""
    longer = given.get("trainer", {}).keys() & {"max_steps", "max_epochs"}
    if longer and cfg.model.warmup_steps is None and cfg.model.lr_schedule == "constant":
        cfg.model.warmup_steps = round(cfg.model.warmup_ratio * checkpoint["ilr"]["horizon"])


def _without_stops(value: Any) -> Any:
    """A list of callbacks without those that only end training; other values as they are."""
    if not isinstance(value, list):
        return value
    named = [(entry.get("class_path", "") if isinstance(entry, dict) else "", entry) for entry in value]
    return [entry for name, entry in named if str(name).rpartition(".")[2] not in STOPS] or None


def _check_anew(directory: RunDirectory) -> None:
    """Whether a run without a recorded checkpoint may begin again."""
    summary = directory.summary()
    if summary is not None and summary["status"] in ("finished", "diverged"):
        _already(directory, summary)
    files = sorted(directory.checkpoints.glob("*.ckpt"))
    if len(files) > 1:  # one alone was just written when the run was killed
        raise InputError(
            f"{directory.checkpoints} holds checkpoints ({_listed(files)}) but no record.json that says which is "
            "whose: go on from one with --ckpt_path FILE, or remove them to begin anew"
        )


def _listed(paths: list[Path], most: int = 3) -> str:
    names = ", ".join(path.name for path in paths[:most])
    return names + (f" and {len(paths) - most} more" if len(paths) > most else "")


def _already(directory: RunDirectory, summary: dict[str, Any]) -> NoReturn:
    done = f"{summary['status']} at step {summary['steps']}"
    if summary["status"] == "diverged":
        raise AlreadyFinished(f"{directory.path}: {done}; nothing to do", 3)
    raise AlreadyFinished(f"{directory.path}: already {done}; nothing to do", 0)


def _refuse_to_overwrite(directory: RunDirectory) -> None:
    if directory.has_run():
        summary = directory.summary()
        state = f"{summary['status']} at step {summary['steps']}" if summary else "not finished"
        raise InputError(
            f"--run_dir {directory.path} already holds a run ({state}): go on with --resume auto, "
            "or give another --run_dir"
        )


def _check_unfinished(directory: RunDirectory, cfg: Any, horizon: Any) -> None:
    summary = directory.summary()
    if summary is None or summary["status"] == "stopped":
        return
    # Earlier versions called a run finished that a limit of time had stopped before the steps asked for.
    if summary["status"] == "finished" and isinstance(horizon, int) and summary["steps"] < horizon:
        return
    steps, epochs = cfg.trainer.max_steps, cfg.trainer.max_epochs
    longer = steps > summary["steps"] if steps > 0 else (epochs or 0) > round(summary["epochs"] or 0)
    if summary["status"] == "diverged" or not longer:
        _already(directory, summary)
    if cfg.model.lr_schedule != "constant":
        raise InputError(
            f"{directory.path} is {summary['status']} at step {summary['steps']} and cannot be extended: its "
            f"{cfg.model.lr_schedule} learning rate ended there (model.lr_schedule constant can be extended)"
        )
