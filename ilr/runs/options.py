"""The options of `ilr fit` as flat names (`model.width`), their defaults, and the decoder that they make. No torch."""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

import ilr
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan, make_plan

Options = dict[str, Any]

SECTIONS = ("model", "data", "trainer")
VOCABULARY = 4096
"""Entries of the tokenizer where no configuration says: the data module's default."""

_HOMES = {"model": ("training/module.py", "LanguageModel"), "data": ("data/module.py", "TextData")}


def flat(tree: Mapping[str, Any]) -> Options:
    """``{"model": {"width": 8}}`` as ``{"model.width": 8}``; names with a dot already stay."""
    options: Options = {}
    for name, value in tree.items():
        if name in SECTIONS and isinstance(value, Mapping):
            options.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            options[str(name)] = value
    return options


@cache
def defaults_of(section: str) -> Mapping[str, Any]:
    """The options of ``model`` or ``data`` with their defaults, read off the class that takes them: importing it
    takes seconds.
    """
    file, name = _HOMES[section]
    tree = ast.parse((Path(ilr.__file__).parent / file).read_text(encoding="utf-8"))
    (taker,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in taker.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [argument.arg for argument in init.args.args[1:]]
    values = [ast.literal_eval(default) for default in init.args.defaults]
    found = dict(zip(names, values, strict=True))
    if init.args.kwarg:
        found |= {one.name: one.default for one in fields(DecoderConfig) if one.default is not MISSING}
        found["vocab_size"] = None
    return found


def decoder_of(options: Mapping[str, Any]) -> tuple[DecoderConfig, Plan]:
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
