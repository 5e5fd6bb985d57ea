"""All views of a checkpoint in one pass over its batches; memory does not grow with their number."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ilr.analysis.attention import AttentionMaps
from ilr.analysis.batches import Batch, first_tokens
from ilr.analysis.geometry import Geometry
from ilr.analysis.jacobian import POSITIONS, visit_norms
from ilr.analysis.lens import Lens
from ilr.analysis.movement import Movement
from ilr.analysis.record import Analysis
from ilr.analysis.trace import trace
from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.model.inference import evaluating
from ilr.model.metrics import IGNORED
from ilr.model.plan import Plan


@dataclass(frozen=True)
class Extent:
    """How much is looked at.

    Args:
        tokens: Scored tokens, from the beginning of the text.
        lens: Whether to predict after every visit.
        attention_tokens: Of these tokens, how many to compute attention maps for, in whole rows. 0: none.
        jacobian_positions: How many positions to take Jacobians over, 128 a row at most. 0: none.
    """

    tokens: int = 65_536
    lens: bool = True
    attention_tokens: int = 8_192
    jacobian_positions: int = 256

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InputError(f"tokens must be at least 1, got {self.tokens}")
        for name in ("attention_tokens", "jacobian_positions"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")


def analyse(
    decoder: Decoder,
    batches: Iterable[Batch],
    extent: Extent | None = None,
    plan: Plan | None = None,
    *,
    progress: Callable[[int], object] | None = None,
) -> Analysis:
    """What each visit of the plan (default: the decoder's) does to the first tokens of the batches.

    ``progress`` is told how many tokens each batch scored. Raises `InputError` where a state is not finite.
    """
    extent = Extent() if extent is None else extent
    plan = decoder.plan if plan is None else decoder.checked(plan)
    movement = Movement(plan, decoder.device)
    geometry = Geometry(plan.depth + 1, decoder.config.width, decoder.device)
    lens = Lens(decoder, plan) if extent.lens else None
    maps = AttentionMaps(decoder, plan)
    jacobians: list[list[Tensor]] = []
    jacobian_positions = 0
    with evaluating(decoder):
        for batch in first_tokens(batches, extent.tokens, decoder.device):
            targets = batch["targets"]
            scored = targets != IGNORED
            seen = trace(decoder, batch["inputs"], targets, plan)
            if not bool(seen.states[-1].isfinite().all()):
                raise InputError("the states are not finite: these weights have diverged and show nothing")
            movement.update(seen)
            geometry.update(seen.states)
            if lens is not None:
                lens.update(seen, targets[scored])
            length = targets.shape[1]
            rows = -(-max(0, extent.attention_tokens - maps.tokens) // length)
            if rows:
                maps.update(tuple(state[:rows] for state in seen.full_before), targets[:rows])
            rows = -(-max(0, extent.jacobian_positions - jacobian_positions) // min(length, POSITIONS))
            if rows:
                jacobians.append(
                    visit_norms(decoder, plan, tuple(state[:rows] for state in seen.full_before))
                )
                jacobian_positions += min(rows, len(targets)) * min(length, POSITIONS)
            if progress is not None:
                progress(int(scored.sum()))
    figures = movement.means()
    figures["effective_rank"] = list(geometry.effective_ranks()[1:])
    figures |= lens.means() if lens is not None else {}
    figures |= maps.means() if maps.tokens else {}
    figures |= _jacobian_figures(jacobians) if jacobians else {}
    return Analysis(
        label=plan.label + decoder.config.label,
        schedule=plan.schedule,
        layers=[visit.layer for visit in plan.visits],
        iterations=[visit.iteration for visit in plan.visits],
        weights=_distinct_weights(plan),
        tokens=movement.tokens,
        attention_tokens=maps.tokens,
        jacobian_positions=jacobian_positions,
        figures={name: _defined(values) for name, values in figures.items()},
        cosine=[_defined(row) for row in geometry.cosine().tolist()],
        cka=[_defined(row) for row in geometry.cka().tolist()],
    )


def _defined(values: Sequence[float | None]) -> list[float | None]:
    """None in place of NaN, which JSON does not have: the CKA of a state that is the same at every token."""
    return [None if value is None or math.isnan(value) else value for value in values]


def _distinct_weights(plan: Plan) -> list[int]:
    numbers: dict[tuple[int | None, int | None], int] = {}
    return [numbers.setdefault((visit.attention, visit.ffn), len(numbers)) for visit in plan.visits]


def _jacobian_figures(batches: list[list[Tensor]]) -> dict[str, list[float | None]]:
    """Mean and largest over rows, from one list of visits per batch."""
    visits = [torch.cat(parts).double() for parts in zip(*batches, strict=True)]
    return {
        "jacobian_norm": [float(norms.mean()) for norms in visits],
        "jacobian_norm_max": [float(norms.max()) for norms in visits],
    }
