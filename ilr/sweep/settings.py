"""The options of a run as flat names (`model.width`), laid over each other, and what they make. No torch."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import ilr
from ilr.config import DecoderConfig
from ilr.errors import InputError
from ilr.plan import Plan, make_plan
from ilr.plan_command import VOCABULARY
from ilr.runs.plain_yaml import read_mapping

Options = dict[str, Any]

SECTIONS = ("model", "data", "trainer")
PLAIN = ("val_every", "save_every", "log_every", "test_after_fit")
"""Options of `ilr fit` outside the sections that a sweep may set; the others are the sweep's own business."""

SEEDS = ("seed_everything", "model.init_seed", "model.dropout_seed", "data.seed")
_HOMES = {"model": ("training.py", "LanguageModel"), "data": ("data/module.py", "TextData")}

BATCH_SIZE = 8
"""Blocks in a training batch where no configuration says: the data module's default."""


def read_base(files: Iterable[Path]) -> Options:
    """The options of training configurations, the later laid over the earlier."""
    options: Options = {}
    for file in files:
        options.update(flat(read_mapping(file, "configuration")))
    return options


def flat(tree: Mapping[str, Any]) -> Options:
    """``{"model": {"width": 8}}`` as ``{"model.width": 8}``; names with a dot already stay."""
    options: Options = {}
    for name, value in tree.items():
        if name in SECTIONS and isinstance(value, Mapping):
            options.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            options[str(name)] = value
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
        if section in _HOMES and key not in (known := options_of(section)):
            close = get_close_matches(key, known, n=1)
            meant = f"; did you mean {section}.{close[0]}?" if close else ""
            raise InputError(f"{where}: unknown key {name!r}: {section} has no such option{meant}")
    return options


@cache
def options_of(section: str) -> tuple[str, ...]:
    """The options of ``model`` or ``data``, read off the class that takes them: importing it takes seconds."""
    file, name = _HOMES[section]
    tree = ast.parse((Path(ilr.__file__).parent / file).read_text(encoding="utf-8"))
    (taker,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in taker.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    own = tuple(argument.arg for argument in [*init.args.args[1:], *init.args.kwonlyargs])
    return own + (tuple(DecoderConfig.__dataclass_fields__) if init.args.kwarg else ())


def decoder_of(options: Options) -> tuple[DecoderConfig, Plan]:
    """The decoder and the plan that these options describe; the vocabulary is the one asked for."""
    sizes = {
        field.name: options[f"model.{field.name}"]
        for field in fields(DecoderConfig)
        if f"model.{field.name}" in options
    }
    vocabulary = options.get("model.vocab_size") or options.get("data.vocab_size") or VOCABULARY
    config = DecoderConfig(**{**sizes, "vocab_size": vocabulary})
    if "model.schedule" not in options:
        raise InputError("no schedule: give one in the arm or in the base configuration")
    return config, make_plan(
        options["model.schedule"], config.num_layers, options.get("model.sharing", "none")
    )


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
