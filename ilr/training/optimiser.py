"""AdamW's parameter groups and the learning-rate schedule."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from ilr.bounds import MOST_STEPS, check_at_least_zero, check_count, check_positive, check_share, shown
from ilr.errors import InputError
from ilr.model.decoder import Decoder

LRSchedule = Literal["cosine", "constant"]


def parameter_groups(
    decoder: Decoder, weight_decay: float, repeated_weight_decay: float | None, decay_norms: bool
) -> list[dict[str, Any]]:
    """Every parameter exactly once, in groups named by their decay.

    Norms (and other vectors) are not decayed unless ``decay_norms``. Matrices that the plan runs more than
    once are decayed by ``repeated_weight_decay`` where that is given: a shared weight's gradient is the sum
    over its visits, its decay is not.
    """
    runs = Counter[nn.Module]()
    for visit in decoder.plan.visits:
        runs.update(decoder.attention[i] for i in (visit.attention,) if i is not None)
        runs.update(decoder.ffn[i] for i in (visit.ffn,) if i is not None)
    repeated = {parameter for module, count in runs.items() if count > 1 for parameter in module.parameters()}
    groups: dict[str, list[nn.Parameter]] = {"matrices": [], "repeated matrices": [], "vectors": []}
    for parameter in decoder.parameters():
        kind = (
            "vectors" if parameter.dim() < 2 else "repeated matrices" if parameter in repeated else "matrices"
        )
        groups[kind].append(parameter)
    decays = {
        "matrices": weight_decay,
        "repeated matrices": weight_decay if repeated_weight_decay is None else repeated_weight_decay,
        "vectors": weight_decay if decay_norms else 0.0,
    }
    return [
        {"params": parameters, "weight_decay": decays[kind], "name": kind}
        for kind, parameters in groups.items()
        if parameters
    ]


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale the gradients down to a norm of at most ``limit`` over all of them; their norm before that, a scalar."""
    chosen = [parameter for parameter in parameters if parameter.grad is not None]
    norm = get_total_norm([parameter.grad for parameter in chosen if parameter.grad is not None])
    if limit < math.inf:
        clip_grads_with_norm_(chosen, limit, norm)
    return norm


def learning_rate_factor(
    kind: LRSchedule, warmup_steps: int, horizon: int, floor: float
) -> Callable[[int], float]:
    """Factor on the peak learning rate as a function of optimiser steps already taken.

    Step number n (from 1) of the warm-up uses n / warmup_steps, so the peak is reached at step
    ``warmup_steps``; then half a cosine down to ``floor`` at step ``horizon`` (arXiv 1608.03983), or constant.
    """
    if kind == "cosine" and warmup_steps >= horizon:
        raise InputError(
            f"the warm-up must be shorter than the {horizon} steps of training, got {warmup_steps}"
        )

    def factor(taken: int) -> float:
        step = taken + 1
        if step <= warmup_steps:
            return step / warmup_steps
        if kind == "constant":
            return 1.0
        progress = min(1.0, (step - warmup_steps) / (horizon - warmup_steps))
        return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))

    return factor


def check_optimisation(
    learning_rate: float,
    warmup_ratio: float,
    warmup_steps: int | None,
    min_lr_ratio: float,
    extra_steps: int,
    weight_decay: float,
    repeated_weight_decay: float | None = None,
    betas: tuple[float, float] = (0.9, 0.95),
    adam_eps: float = 1e-8,
) -> None:
    """Raise `InputError` for a value that no training can use."""
    check_positive("learning_rate", learning_rate)
    for name, share in (("warmup_ratio", warmup_ratio), ("min_lr_ratio", min_lr_ratio)):
        check_share(name, share)
    for name, count in (("warmup_steps", warmup_steps), ("extra_steps", extra_steps)):
        if count is not None:
            check_count(name, count, MOST_STEPS, least=0)
    for name, amount in (
        ("weight_decay", weight_decay),
        ("repeated_weight_decay", repeated_weight_decay),
        ("adam_eps", adam_eps),
    ):
        if amount is not None:
            check_at_least_zero(name, amount)
    if len(betas) != 2:
        raise InputError(f"betas must be two numbers, got {shown(betas)}")
    for beta in betas:
        check_share("betas", beta, below=True)
