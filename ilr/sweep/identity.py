"""When two runs are the same: the effective configuration as plain data, and its digest. No torch."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from ilr.config import DecoderConfig
from ilr.sweep.arms import Arm
from ilr.sweep.file import Seeds
from ilr.sweep.settings import SEEDS, Options

NOT_IDENTITY = {
    "model": {"schedule", "sharing", "init_seed", "dropout_seed", "vocab_size", "compile", "recompute"},
    "data": {"seed", "cache_dir", "num_workers", "eval_batch_size"},
}
"""As in the summary: seeds stand apart, schedule and sharing count by their operands, the rest changes no number."""

IDENTITY_OF_TRAINER = ("max_steps", "max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision")
SAID_ELSEWHERE = {"num_layers", "vocab_size"}
"""Sizes that the operands and the number of bank entries say already, or the data's options."""


def identity(arm: Arm, options: Options, seeds: Seeds) -> dict[str, Any]:
    """What decides a run's numbers: operands, sizes, the options that matter, seeds."""
    config, plan = arm.config, arm.plan
    sizes = {name: value for name, value in vars(config).items() if name not in SAID_ELSEWHERE}
    sizes.update(
        num_kv_heads=config.sizes.kv_heads, ffn_width=config.sizes.ffn, embedding_width=config.sizes.embedding
    )
    if config.residual_init == "layers":
        sizes["num_layers"] = config.num_layers
    same: dict[str, Any] = {
        "operands": [list(operands) for operands in plan.operands],
        "banks": [plan.sharing.num_attention, plan.sharing.num_ffn],
        **{f"model.{name}": value for name, value in sizes.items()},
        **{name: value for name, value in options.items() if _counts(name) and name not in SEEDS},
        "seeds": [seeds.init, seeds.data],
    }
    if config.injection != "none":
        same["injections"] = plan.injections
    return json.loads(json.dumps(same, sort_keys=True))


def digest(same: dict[str, Any]) -> str:
    """Equal for equal identities."""
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterable[str]:
    """Where two identities differ, in words."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield f"{name} is {theirs.get(name)} there and {ours.get(name)} here"


def _counts(name: str) -> bool:
    section, _, key = name.partition(".")
    if section == "trainer":
        return key in IDENTITY_OF_TRAINER
    return section in NOT_IDENTITY and key not in NOT_IDENTITY[section] and not _is_size(section, key)


def _is_size(section: str, key: str) -> bool:
    """Already there with every default filled in."""
    return section == "model" and key in DecoderConfig.__dataclass_fields__
