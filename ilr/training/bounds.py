"""Bounds of the training commands' numbers, compared before anything is built: seeds, counts, memory."""

from typing import Any

import torch

from ilr.bounds import MOST_STEPS, check_at_least_zero, check_count, check_seed
from ilr.data.tokenizer import SMALLEST_VOCABULARY
from ilr.model.config import DecoderConfig
from ilr.model.memory import check_memory, machine_bytes, training_use
from ilr.model.plan import Plan


def check_seeds(cfg: Any) -> None:
    """Raise `InputError` for a seed that some generator does not accept."""
    if cfg.seed_everything is not True:  # true: one is drawn
        check_seed("--seed_everything", cfg.seed_everything)
    for section, name in (("model", "init_seed"), ("model", "dropout_seed"), ("data", "seed")):
        if cfg[section][name] is not None:
            check_seed(f"--{section}.{name}", cfg[section][name])


def check_trainer_numbers(trainer: Any) -> None:
    """Raise `InputError` for a number of the Trainer that no training can use."""
    check_count("--trainer.accumulate_grad_batches", trainer.accumulate_grad_batches)
    check_count("--trainer.num_nodes", trainer.num_nodes, 2**14)
    for name in ("max_steps", "max_epochs"):
        value = trainer[name]
        if value is not None and value != -1:
            check_count(f"--trainer.{name} (-1: no limit)", value, MOST_STEPS)
    for name in ("min_steps", "min_epochs"):
        if trainer[name] is not None:
            check_count(f"--trainer.{name}", trainer[name], MOST_STEPS, least=0)
    if trainer.gradient_clip_val is not None:
        check_at_least_zero("--trainer.gradient_clip_val", trainer.gradient_clip_val)


def check_planned_memory(cfg: Any, config: DecoderConfig, plan: Plan) -> None:
    """Refuse a training on processors that could not be held, before the data are prepared.

    The vocabulary counts with what every tokenizer has, as a small text gives fewer entries than asked for;
    `LanguageModel.configure_model` asks again with the real one.
    """
    check_count("--data.batch_size", cfg.data.batch_size)
    on_cpu = cfg.trainer.accelerator == "cpu" or (
        cfg.trainer.accelerator == "auto" and not torch.accelerator.is_available()
    )
    if not on_cpu:
        return
    sizes = {**vars(config), "vocab_size": cfg.model.vocab_size or SMALLEST_VOCABULARY}
    use = training_use(
        cfg.data.batch_size, config.context, cfg.trainer.precision, cfg.model.recompute, cfg.model.compile
    )
    check_memory(DecoderConfig(**sizes), plan, use)


def device_bytes(device: torch.device, shards: int) -> int:
    """Memory of this device, and of as many like it as hold shards of the weights; on processors the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) * shards
    return machine_bytes()
