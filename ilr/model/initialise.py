"""How each weight starts: drawn from its own generator, so that compared runs start equal."""

import hashlib
import math
from typing import TYPE_CHECKING

import torch

from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan

if TYPE_CHECKING:
    from ilr.model.decoder import Decoder


def seed_for(*parts: object) -> int:
    """A seed that is a function of these parts alone, such as (seed, state-dict key)."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(*parts: object) -> torch.Generator:
    """A CPU generator seeded by `seed_for`."""
    return torch.Generator("cpu").manual_seed(seed_for(*parts))


@torch.no_grad()
def initialise(decoder: "Decoder", config: DecoderConfig, plan: Plan, seed: int) -> None:
    """Draw every matrix from a normal of mean 0 and standard deviation ``init_std``; norms start at 1.

    The output projections of attention and feed-forward, which write to the residual stream, are divided
    as ``residual_init`` says (`residual_divisor`). All is drawn in float32 on the CPU, whatever type or device the
    weights have or torch's defaults are; a weight of the meta device has nothing to be drawn into.
    """
    divisor = residual_divisor(config, plan)
    for key, weight in decoder.state_dict().items():
        if weight.is_meta:
            continue
        if weight.dim() == 1:
            weight.fill_(1.0)
            continue
        drawn = torch.empty(weight.shape, dtype=torch.float32, device="cpu")
        drawn.normal_(0.0, config.init_std, generator=generator_for(seed, key))
        if key.endswith((".output.weight", ".down.weight")):
            drawn /= divisor
        weight.copy_(drawn)


def residual_divisor(config: DecoderConfig, plan: Plan) -> float:
    """By what the residual projections' standard deviation is divided.

    plain: 1. layers: √(2·num_layers) (GPT-2). depth: √(sublayer applications executed), which is
    √(2·depth) where every visit runs both halves (arXiv 2502.05171 scales by executed depth).
    """
    applications = sum((visit.attention is not None) + (visit.ffn is not None) for visit in plan.visits)
    return {
        "plain": 1.0,
        "layers": math.sqrt(2 * config.num_layers),
        "depth": math.sqrt(applications),
    }[config.residual_init]
