"""The options of a run as flat names (`model.width`), laid over each other, and what they make. No torch."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from ilr.errors import InputError
from ilr.files.plain_yaml import read_mapping
from ilr.model.config import DecoderConfig
from ilr.runs.identity import SEEDS
from ilr.runs.option_schema import check_options
from ilr.runs.options import SECTIONS, Options, defaults_of, flat

PLAIN = ("val_every", "save_every", "log_every", "test_after_fit")
"""Options of `ilr fit` outside the sections that a sweep may set; the others are the sweep's own business."""


BATCH_SIZE = 8
"""Blocks in a training batch where no configuration says: the data module's default."""


def read_base(files: Iterable[Path]) -> Options:
    """The options of training configurations, the later laid over the earlier."""
    options: Options = {}
    for file in files:
        found = flat(read_mapping(file, "configuration"))
        check_options(found, file)
        options.update(found)
    return options


def checked_overrides(tree: object, where: str) -> Options:
    """Options that a sweep file sets, flat; ``where`` names the place in a message."""
    if not isinstance(tree, Mapping):
        raise InputError(f"{where} is a mapping of options such as {{model.width: 64}}, got {tree!r}")
    options = flat(tree)
    for name in options:
        section, _, key = name.partition(".")
        if name in SEEDS:
            raise InputError(f"{where}: {name} is not for a sweep to set; its seeds are: seeds: [0, 1]")
        if not (name in PLAIN or (section in SECTIONS and key)):
            allowed = ", ".join([*(f"{section}.…" for section in SECTIONS), *PLAIN])
            raise InputError(f"{where}: unknown key {name!r}; an option is one of {allowed}")
        if section in ("model", "data") and key not in (known := defaults_of(section)):
            close = get_close_matches(key, known, n=1)
            meant = f"; did you mean {section}.{close[0]}?" if close else ""
            raise InputError(f"{where}: unknown key {name!r}: {section} has no such option{meant}")
    check_options(options, where)
    return options


def tokens_per_step(options: Options, config: DecoderConfig) -> int:
    """Targets of one optimiser step, over all micro-batches and, where their number is given, devices."""
    devices = options.get("trainer.devices")
    processes = devices if isinstance(devices, int) and devices > 0 else 1
    processes *= int(options.get("trainer.num_nodes") or 1)
    blocks = options.get("data.batch_size", BATCH_SIZE) * (
        options.get("trainer.accumulate_grad_batches") or 1
    )
    return int(blocks * config.context * processes)


def steps_of(options: Options) -> int | None:
    """Optimiser steps, or None where the length of the text decides."""
    steps = options.get("trainer.max_steps")
    return int(steps) if steps is not None and int(steps) > 0 else None


def tokens_of(options: Options, config: DecoderConfig) -> int | None:
    """Training tokens: exact with a number of steps, else at most those that the text is cut to, else None."""
    steps, cut = steps_of(options), options.get("data.max_train_tokens")
    if steps is not None:
        return steps * tokens_per_step(options, config)
    epochs = options.get("trainer.max_epochs", 1)
    return int(cut * epochs) if cut and epochs and epochs > 0 else None
