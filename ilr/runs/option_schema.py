"""What the options that a program reads before their own parser does may be: checked as every file of ours."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, Field, create_model

from ilr.runs.options import defaults_of
from ilr.runs.readers import validated
from ilr.runs.schema import Schema

_NAMES = str | list[str] | None
_CLASSES = str | dict[str, Any] | list[str | dict[str, Any]] | bool | None
_LIMIT = int | float | None
_OTHER: dict[str, Any] = {
    "data.corpus": str | list[str],
    "data.validation": _NAMES,
    "data.test": _NAMES,
    "data.tokenizer": str | None,
    "data.dataset_config": str | None,
    "data.revision": str | None,
    "data.max_documents": int | None,
    "data.max_train_tokens": int | None,
    "data.max_eval_tokens": int | None,
    "data.eval_contexts": list[int] | None,
    "data.splits": list[float],
    "model.schedule": Any,
    "model.sharing": Any,
    "model.betas": list[float],
    "model.warmup_steps": int | None,
    "model.repeated_weight_decay": float | None,
    "model.vocab_size": int | None,
    "model.num_kv_heads": int | None,
    "model.ffn_width": int | None,
    "model.embedding_width": int | None,
    "trainer.max_steps": int | None,
    "trainer.max_epochs": int | None,
    "trainer.min_steps": int | None,
    "trainer.min_epochs": int | None,
    "trainer.max_time": str | dict[str, Any] | None,
    "trainer.devices": int | str | list[int] | None,
    "trainer.num_nodes": int | None,
    "trainer.accumulate_grad_batches": int | None,
    "trainer.gradient_clip_val": float | None,
    "trainer.precision": str | int | None,
    "trainer.callbacks": _CLASSES,
    "trainer.plugins": _CLASSES,
    "trainer.overfit_batches": _LIMIT,
    **{f"trainer.limit_{split}_batches": _LIMIT for split in ("train", "val", "test")},
    "val_every": int,
}


def check_options(options: Mapping[str, Any], where: object) -> None:
    """Raise `InputError` for a value of another type than its option has; ``where`` names the place."""
    validated(dict(options), _schema(), where)


@cache
def _schema() -> type[BaseModel]:
    types: dict[str, Any] = {}
    for section in ("model", "data"):
        for key, default in defaults_of(section).items():
            if default is not None and not isinstance(default, tuple | list):
                types[f"{section}.{key}"] = type(default)
    types |= _OTHER
    entries: dict[str, Any] = {
        f"option_{number}": (kind, Field(default=None, alias=name))
        for number, (name, kind) in enumerate(types.items())
    }
    return create_model("OptionsOfFit", __base__=Schema, **entries)
