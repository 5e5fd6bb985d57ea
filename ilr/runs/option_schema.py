"""What the options that a program reads before their own parser does may be: checked as every file of ours."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, Field, create_model

from ilr.files.readers import validated
from ilr.runs.options import defaults_of
from ilr.runs.schema import Schema

_NAMES = str | list[str] | None
_CLASSES = str | dict[str, Any] | list[str | dict[str, Any]] | None
_LIMIT = int | float | None
_YES_OR_NO = (
    *(
        "benchmark",
        "inference_mode",
        "detect_anomaly",
        "barebones",
        "sync_batchnorm",
        "use_distributed_sampler",
    ),
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "enable_autolog_hparams"),
)
_COUNTS = (
    *("num_sanity_val_steps", "check_val_every_n_epoch", "log_every_n_steps"),
    "reload_dataloaders_every_n_epochs",
)
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
    "trainer.limit_predict_batches": _LIMIT,
    "trainer.accelerator": str | dict[str, Any],
    "trainer.strategy": str | dict[str, Any],
    "trainer.logger": _CLASSES | bool,
    "trainer.profiler": str | dict[str, Any] | None,
    "trainer.deterministic": bool | str | None,
    "trainer.fast_dev_run": bool | int | None,
    "trainer.default_root_dir": str | None,
    "trainer.model_registry": str | None,
    "trainer.gradient_clip_algorithm": str | None,
    "trainer.val_check_interval": int | float | str | dict[str, Any] | None,
    **{f"trainer.{name}": bool | None for name in _YES_OR_NO},
    **{f"trainer.{name}": int | None for name in _COUNTS},
    **dict.fromkeys(("val_every", "save_every", "log_every"), int),
    "seed_everything": bool | int | None,
    "test_after_fit": bool,
    "held_equal": str,
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
