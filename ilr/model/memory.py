"""What a model needs at least, by its closed-form cost, and what the machine has; no torch.

Planning a model costs nothing and is not bounded here. Making it is: what no memory of this machine could hold
is refused before anything is allocated, with the option that makes it so large.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import Plan

Kept = Literal["all", "streams", "none"]
"""Activations that stay for the backward pass: all, one residual stream per visit, or none (no training)."""

_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Use:
    """How a model is used.

    ``rows`` of ``context`` tokens are in memory at a time, in each of ``processes``. ``copies``: numbers per weight
    (1: the weight; 4: also its gradient and AdamW's two moments). ``weight_bytes`` and ``value_bytes`` are those of
    a weight and of an activation.
    """

    rows: int = 1
    context: int = 1
    processes: int = 1
    copies: int = 1
    kept: Kept = "none"
    weight_bytes: int = 4
    value_bytes: int = 4


def machine_bytes() -> int:
    """Bytes of memory that this process could have: the machine's, or its container's limit."""
    import psutil  # the plan command does without

    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # no limit, or another system
        return total


def needed_bytes(config: DecoderConfig, plan: Plan, use: Use) -> tuple[int, int]:
    """The least that weights and activations need, in bytes of all processes together.

    Activations are counted without what recomputation or compilation could save, so that nothing is refused that
    could be held: with ``kept`` streams one residual stream per visit, else what eager training keeps.
    """
    spent = cost(config, plan, bytes_per_value=use.value_bytes)
    values = {
        "all": spent.activation_bytes_per_token,
        "streams": plan.depth * config.width * use.value_bytes,
        "none": 2 * config.width * use.value_bytes,
    }[use.kept]
    activations = use.rows * use.context * (values + 16)  # and the ids of inputs and targets
    if config.positions == "alibi":
        activations += config.num_heads * use.context**2 * use.value_bytes
    return spent.parameters * use.weight_bytes * use.copies * use.processes, activations * use.processes


def check_memory(config: DecoderConfig, plan: Plan, use: Use, available: int | None = None) -> None:
    """Raise `InputError` where this use of the model could not be held; ``available`` bytes, or the machine's."""
    weights, activations = needed_bytes(config, plan, use)
    available = machine_bytes() if available is None else available
    if weights + activations <= available:
        return
    number = f"{weights // (use.weight_bytes * use.copies * use.processes):,} parameters"
    held = f"{number} with gradients and AdamW's moments" if use.copies > 1 else number
    processes = "" if use.processes == 1 else f" in {use.processes} processes"
    raise InputError(
        f"this does not fit: {held} need {_size(weights)}, activations of {use.rows:,} x {use.context:,} tokens "
        f"through {plan.depth:,} visits at least {_size(activations)}{processes}; there are {_size(available)} of "
        f"memory. The largest number is {_largest(config, plan, use)}"
    )


def training_use(
    rows: int, context: int, precision: object, recompute: str, compile: str, processes: int = 1
) -> Use:
    """How training uses a model, in the least bytes that this precision, recomputation and compilation need."""
    name = str(precision)
    kept: Kept = "all" if recompute == "none" and compile == "none" else "streams"
    half = "16" in name
    return Use(
        rows=rows,
        context=context,
        processes=processes,
        copies=4,
        kept=kept,
        weight_bytes=2 if half and "true" in name else 8 if "64" in name else 4,
        value_bytes=2 if half else 8 if "64" in name else 4,
    )


def check_batches(rows: int, contexts: Sequence[int]) -> None:
    """Raise `InputError` for evaluation batches whose ids alone could not be held; longer contexts get fewer rows."""
    tokens = max(contexts[0] * rows, *contexts, 1)
    available = machine_bytes()
    if (needed := 3 * 8 * tokens) > available:  # inputs, targets and documents
        raise InputError(
            f"evaluation batches of {tokens:,} tokens need {_size(needed)} for their ids alone, there are "
            f"{_size(available)} of memory: give a smaller --data.eval_batch_size or --data.eval_contexts"
        )


def most_workers() -> int:
    """Worker processes that may be asked for: each has a copy of the program, and more than processors help little."""
    return max(16, 4 * (os.cpu_count() or 1))


def _largest(config: DecoderConfig, plan: Plan, use: Use) -> str:
    """The option that is furthest above its default."""
    usual = DecoderConfig(vocab_size=4096)
    found = {
        f"--model.width {config.width}": config.width / usual.width,
        f"--model.ffn_width {config.sizes.ffn}": config.sizes.ffn / usual.sizes.ffn,
        f"--model.embedding_width {config.sizes.embedding}": config.sizes.embedding / usual.width,
        f"--model.num_layers {config.num_layers}": config.num_layers / usual.num_layers,
        f"the depth {plan.depth} of --model.schedule": plan.depth / 7,
        f"the vocabulary {config.vocab_size}": config.vocab_size / usual.vocab_size,
        f"--model.context {use.context}": use.context / usual.context,
        f"--data.batch_size {use.rows}": use.rows / 8,
    }
    return max(found, key=lambda name: found[name])


def _size(number: int) -> str:
    """Bytes in words."""
    for unit, size in (("TB", 10**12), ("GB", 10**9)):
        if number >= size:
            return f"{number / size:,.4g} {unit}" if number < 10**18 else f"{number // size:,} {unit}"
    return f"{number / 10**6:,.1f} MB"
