"""Models to measure an arm against: unrepeated ones of equal cost, and shared ones widened back. No torch.

An anchor is a decoder in which something is integer, so its cost is the nearest that exists; what is left
over is its mismatch, to be read beside every result.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from ilr.bounds import MOST_LAYERS, shown
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import Plan, make_plan

AnchorKind = Literal["deeper", "wider", "parameters", "widened"]
KINDS: dict[AnchorKind, str] = {
    "deeper": "unrepeated, equal training FLOPs by depth",
    "wider": "unrepeated, equal training FLOPs by width",
    "parameters": "unrepeated, equal non-embedding parameters by width",
    "widened": "the same sharing, widened back to the unshared parameters",
}
LARGEST = 2**20
"""Beyond this many features an anchor is of no use."""


@dataclass(frozen=True)
class Anchor:
    """A model of nearly equal cost: ``mismatch`` is (anchor - target) / target in what was to be equal."""

    kind: AnchorKind
    config: DecoderConfig
    plan: Plan
    target: int
    reached: int

    @property
    def mismatch(self) -> float:
        """Relative difference that whole sizes leave: +0.01 is 1 % more than the arm."""
        return self.reached / self.target - 1

    @property
    def quantity(self) -> str:
        """What was to be equal."""
        by_flops = self.kind in ("deeper", "wider")
        return "training FLOPs per token" if by_flops else "non-embedding parameters"


def anchor(kind: AnchorKind, config: DecoderConfig, plan: Plan) -> Anchor:
    """The anchor of this kind of the model (config, plan).

    deeper, wider: no bank entry is used twice, training FLOPs per token are equal, by the number of layers
    or by ``width``. parameters: the same with equal non-embedding parameters, by ``width``. widened: the
    same schedule and sharing with the parameters of the unshared model; sharing of the feed-forward alone
    widens ``ffn_width``, any other ``width``. Where ``width`` changes the feed-forward keeps its ratio to
    it, and ``width`` stays a multiple of ``num_heads`` (even heads for rope).

    Raises `InputError` for an unknown kind, and for widened without sharing.
    """
    if kind == "deeper":
        return _deeper(config, _flops(config, plan))
    if kind == "wider":
        return _fit(kind, _flops(config, plan), _by_width(config), _flops)
    if kind == "parameters":
        return _fit(kind, _parameters(config, plan), _by_width(config), _parameters)
    if kind != "widened":
        raise InputError(f"an anchor is one of {', '.join(KINDS)}; got {shown(kind)}")
    if not can_be_widened(plan):
        raise InputError(f"{plan.label} shares no weights: there is nothing to widen back")
    unshared = _parameters(config, make_plan(plan.segments, plan.num_layers))
    own_attention = plan.sharing.num_attention == plan.num_layers
    if own_attention:
        return _fit(kind, unshared, lambda size: (replace(config, ffn_width=size), plan), _parameters)
    step = _width_step(config)
    return _fit(kind, unshared, lambda size: (_widened(config, size * step), plan), _parameters)


def can_be_widened(plan: Plan) -> bool:
    """Whether the plan's layers have weights in common."""
    return min(plan.sharing.num_attention, plan.sharing.num_ffn) < plan.num_layers


def is_unrepeated(plan: Plan) -> bool:
    """Whether no bank entry is used twice: such a model has no unrepeated anchor but itself."""
    for kind in ("attention", "ffn"):
        used = [bank for visit in plan.visits if (bank := getattr(visit, kind)) is not None]
        if len(used) > len(set(used)):
            return False
    return True


def _fit(
    kind: AnchorKind,
    target: int,
    make: Callable[[int], tuple[DecoderConfig, Plan]],
    measure: Callable[[DecoderConfig, Plan], int],
) -> Anchor:
    """The size, from 1, whose measure is nearest to the target; the measure grows with the size."""
    above = 1
    while measure(*make(above)) < target:
        above *= 2
        if above > LARGEST:
            raise InputError(f"no {kind} anchor below {LARGEST:,} steps of the size reaches {target:,}")
    above = bisect_left(range(1, above), target, key=lambda size: measure(*make(size))) + 1
    sizes = [size for size in (above - 1, above) if size >= 1]
    best = min(sizes, key=lambda size: abs(measure(*make(size)) - target))
    config, plan = make(best)
    return Anchor(kind, config, plan, target, measure(config, plan))


def _deeper(config: DecoderConfig, target: int) -> Anchor:
    """The unrepeated stack whose training FLOPs are nearest: they grow with its layers by equal steps."""
    one, two = (_flops(*_unrepeated(config, num_layers)) for num_layers in (1, 2))
    whole = (target - one) // (two - one) + 1  # the last number of layers that does not exceed the target
    sizes = [size for size in (whole, whole + 1) if size >= 1]
    num_layers = min(sizes, key=lambda size: abs(one + (size - 1) * (two - one) - target))
    if num_layers > MOST_LAYERS:
        raise InputError(f"no deeper anchor of at most {MOST_LAYERS:,} layers reaches {target:,}")
    made, plan = _unrepeated(config, num_layers)
    return Anchor("deeper", made, plan, target, _flops(made, plan))


def _unrepeated(config: DecoderConfig, num_layers: int) -> tuple[DecoderConfig, Plan]:
    return replace(config, num_layers=num_layers, injection="none"), make_plan([1] * num_layers)


def _by_width(config: DecoderConfig) -> Callable[[int], tuple[DecoderConfig, Plan]]:
    step = _width_step(config)
    unrepeated, plan = _unrepeated(config, config.num_layers)
    return lambda size: (_widened(unrepeated, size * step), plan)


def _width_step(config: DecoderConfig) -> int:
    """What width has to be a multiple of."""
    return config.num_heads * (2 if config.positions == "rope" else 1)


def _widened(config: DecoderConfig, width: int) -> DecoderConfig:
    """Another width with the feed-forward in its old ratio to it, if given as a number in whole steps."""
    if config.ffn_width is None:
        return replace(config, width=width)
    shape = gcd(config.ffn_width, config.width)
    ffn_width = max(1, round(width * (config.ffn_width // shape) / (config.width // shape)))
    return replace(config, width=width, ffn_width=ffn_width)


def _flops(config: DecoderConfig, plan: Plan) -> int:
    return cost(config, plan).flops_per_token


def _parameters(config: DecoderConfig, plan: Plan) -> int:
    return cost(config, plan).parameters_non_embedding
