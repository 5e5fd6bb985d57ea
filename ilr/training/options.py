"""The options of the training commands beside model, data and trainer, and the checks between them."""

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy

from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.files.plain_yaml import read_mapping
from ilr.model.config import DecoderConfig
from ilr.training.module import LanguageModel


def add_run_options(parser: LightningArgumentParser, command: str) -> None:
    """Add the options of ``command`` (fit, validate or test); intervals are optimiser steps."""
    parser.add_argument(
        "--run_dir",
        type=str | None,
        default=None,
        help="Directory of the run. Null, for fit: runs/CONFIG/LABEL-sSEED.",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="Import classes and functions that the run directory's configuration names.",
    )
    if command != "fit":
        parser.add_argument(
            "--weights",
            type=Literal["best", "last"],
            default="best",
            help="Which checkpoint of --run_dir.",
        )
        return
    parser.add_argument(
        "--resume",
        type=Literal["never", "auto"],
        default="never",
        help="auto: go on from the run directory's newest checkpoint; without one, begin.",
    )
    parser.add_argument("--val_every", type=int, default=200, help="Steps between validations.")
    parser.add_argument("--save_every", type=int, default=200, help="Steps between checkpoints.")
    parser.add_argument("--log_every", type=int, default=10, help="Steps between logged points.")
    parser.add_argument(
        "--test_after_fit",
        type=bool,
        default=True,
        help="Score the test split with last and best weights.",
    )
    parser.add_argument(
        "--held_equal",
        type=Literal["tokens", "flops"],
        default="tokens",
        help="What this run has in common with those that it is compared to; noted in the summary.",
    )


def check_configurations(arguments: Sequence[str]) -> None:
    """Read the files of --config once before the library does, whose messages name no file; `InputError`."""
    words = [word for word in arguments if word.startswith(("--config=", "-c="))]
    named = [word.partition("=")[2] for word in words]
    named += [after for word, after in pairwise(arguments) if word in ("--config", "-c")]
    for file in map(Path, named):
        if os.path.lexists(file):
            read_mapping(file, "configuration")


def settle_intervals(cfg: Any, given: dict[str, Any]) -> None:
    """Steps between events as Lightning counts them, in micro-batches."""
    for name in ("val_every", "save_every", "log_every"):
        if cfg[name] < 1:
            raise InputError(f"--{name} must be at least 1 step, got {cfg[name]}")
    asked = set(given.get("trainer", {})) & {
        "val_check_interval",
        "check_val_every_n_epoch",
        "log_every_n_steps",
    }
    mine = {
        "val_check_interval": "--val_every",
        "check_val_every_n_epoch": "--val_every",
        "log_every_n_steps": "--log_every",
    }
    for name in sorted(asked):
        if given["trainer"][name] not in (None, cfg.val_every * cfg.trainer.accumulate_grad_batches):
            raise InputError(f"--trainer.{name} counts other units: use {mine[name]} (optimiser steps)")
    cfg.trainer.val_check_interval = cfg.val_every * cfg.trainer.accumulate_grad_batches


def settle_length(trainer: Any) -> None:
    """Say what a limit of epochs that is null means to the Trainer, so that it is recorded so."""
    if trainer.max_epochs is None:
        unlimited = trainer.max_steps != -1 or trainer.max_time is not None
        trainer.max_epochs = -1 if unlimited else 1000


@contextmanager
def naming_options() -> Iterator[None]:
    """Put the option's name before a message about a model value."""
    try:
        yield
    except InputError as error:
        word = str(error).split()[0]
        known = (
            word in DecoderConfig.__dataclass_fields__ or word in inspect.signature(LanguageModel).parameters
        )
        raise InputError(f"--model.{error}" if known else f"--model.schedule: {error}") from error


@contextmanager
def naming_trainer() -> Iterator[None]:
    """Say in one line what the Trainer does not take: it raises errors of many types."""
    try:
        yield
    except InputError:
        raise
    except (
        MisconfigurationException,
        ModuleNotFoundError,
        RuntimeError,
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
    ) as error:
        raise InputError(f"--trainer: {' '.join(str(error).split())}") from error


@contextmanager
def naming_values(cfg: Any) -> Iterator[None]:
    """Say in one line which value of this configuration makes no object of its option's type: those of a run's files
    pass no parser, and a class may refuse what it is given.
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        if not (found := _MISFIT.search(str(error))):
            raise
        got = found["value"].strip()
        names = [
            f"--{section}.{key}"
            for section in ("model", "data", "trainer")
            for key, value in plain(cfg[section]).items()
            if str(value) == got
        ]
        lines = [line.strip(" -") for line in (found["reasons"] or found["expected"]).splitlines()]
        told = [line for line in dict.fromkeys(lines) if line.startswith(_TOLD) or "()" in line]
        raise InputError(f"{' or '.join(names) or 'an option'}: got {got}; {'; '.join(told[:3])}") from None


_TOLD = ("Expected", "Not a valid", "Problem", "Unexpected", "`")
_MISFIT = re.compile(
    r"\A(?:Does not validate.*?Errors:\n(?P<reasons>.*)\nGiven value type:[^\n]*\nGiven value: "
    r"|(?P<expected>Expected an? .*?)\. Got value: )(?P<value>.*)",
    re.DOTALL,
)
"""How jsonargparse says that a value is none of its option's types."""


def check_strategy(strategy: Any) -> None:
    """Refuse what would train wrongly or not at all, before anything starts."""
    names = ("auto", "ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")
    classes = (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy)
    if strategy in names if isinstance(strategy, str) else isinstance(strategy, classes):
        if getattr(strategy, "_tensor_parallel_size", 1) not in (1, "auto"):
            raise InputError("--trainer.strategy: tensor parallelism over repeated layers is not supported")
        return
    raise InputError(
        f"--trainer.strategy {strategy} is not supported: use auto, ddp, or ModelParallelStrategy (sharded weights, "
        "FSDP2); pipeline parallelism cannot hold a layer that runs again"
    )


def check_devices(accelerator: Any, devices: Any) -> None:
    """Refuse far more processes than processors: on CPU every device is a process with all of the model and data,
    and memory ends before anything is said. Two can be tried everywhere.
    """
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())
    most = max(2, os.cpu_count() or 1)
    if on_cpu and str(devices).isdecimal() and int(devices) > most:
        raise InputError(
            f"--trainer.devices {devices} would start as many processes on {os.cpu_count()} processors: "
            f"at most {most} here"
        )


def context_of(model: LanguageModel) -> int:
    """The context that the data are cut for: the model's."""
    return model.config.context
