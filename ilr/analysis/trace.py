"""The residual stream before and after every visit, for the scored positions of one batch."""

from dataclasses import dataclass

from torch import Tensor

from ilr.model.decoder import Decoder
from ilr.model.metrics import IGNORED
from ilr.model.plan import Plan, Visit


@dataclass(frozen=True)
class Trace:
    """States (N, D) of the N scored positions: ``start`` before the first visit, then around each visit.

    ``before`` is what the visit was given, input injection included: it is the state after the visit before,
    plus what was injected. ``full_before`` has the same for all positions, (B, T, D).
    """

    visits: tuple[Visit, ...]
    start: Tensor
    before: tuple[Tensor, ...]
    after: tuple[Tensor, ...]
    full_before: tuple[Tensor, ...]

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The start state and the state after every visit."""
        return (self.start, *self.after)


def trace(decoder: Decoder, inputs: Tensor, targets: Tensor, plan: Plan) -> Trace:
    """Run the plan over ``inputs`` (B, T) and keep the states where ``targets`` (B, T) are scored."""
    around: list[tuple[Tensor, Tensor]] = []
    decoder.states(inputs, plan, observe=lambda visit, before, after: around.append((before, after)))
    scored = (targets != IGNORED).flatten()
    everywhere = bool(scored.all())

    def flat(x: Tensor) -> Tensor:
        return x.flatten(0, 1) if everywhere else x.flatten(0, 1)[scored]

    return Trace(
        visits=plan.visits,
        start=flat(around[0][0]),
        before=tuple(flat(before) for before, _ in around),
        after=tuple(flat(after) for _, after in around),
        full_before=tuple(before for before, _ in around),
    )
