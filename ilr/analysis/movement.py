"""How far each visit moves the state, and whether a layer's iterations settle."""

import torch
from torch import Tensor

from ilr.analysis.trace import Trace
from ilr.model.plan import Plan

QUANTITIES = ("change", "relative_update", "cosine_before", "cosine_last", "second_difference", "norm")


class Movement:
    """Token means of the distances around each visit, summed in float64 over the batches.

    With a the state after a visit, b before it, u = a − b: *change* ‖u‖; *relative_update* 2‖u‖/(‖a‖+‖b‖)
    (arXiv 2510.07739); *cosine_before* of a and b; *cosine_last* of a and the state after the layer's last
    iteration; *second_difference* ‖u − u'‖, u' that of the layer's iteration before (arXiv 2509.23314);
    *norm* ‖a‖.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan = plan
        self.tokens = 0
        self._sums = torch.zeros(len(QUANTITIES), plan.depth, dtype=torch.float64, device=device)

    def update(self, trace: Trace) -> None:
        """Add the tokens of a batch."""
        self.tokens += len(trace.start)
        last = {visit.layer: after for visit, after in zip(trace.visits, trace.after, strict=True)}
        last_norm = {layer: _length(state) for layer, state in last.items()}
        update_before: dict[int, Tensor] = {}
        for number, visit in enumerate(trace.visits):
            before, after = trace.before[number], trace.after[number]
            update = _wide(after) - _wide(before)
            change, from_norm, norm = _length(update), _length(before), _length(after)
            values = [
                change,
                2 * change / (norm + from_norm),
                _dot(after, before) / (norm * from_norm),
                _dot(after, last[visit.layer]) / (norm * last_norm[visit.layer]),
                _length(update - update_before[visit.layer]) if visit.iteration else torch.zeros_like(norm),
                norm,
            ]
            update_before[visit.layer] = update
            self._sums[:, number] += torch.stack(values).double().sum(dim=1)

    def means(self) -> dict[str, list[float | None]]:
        """Token mean of each quantity at each visit; None for the second difference of a first iteration."""
        rows = (self._sums / self.tokens).tolist()
        means: dict[str, list[float | None]] = dict(zip(QUANTITIES, rows, strict=True))
        means["second_difference"] = [
            value if visit.iteration else None
            for visit, value in zip(self.plan.visits, means["second_difference"], strict=True)
        ]
        return means


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(_wide(x), dim=-1)
    return length


def _dot(x: Tensor, y: Tensor) -> Tensor:
    product: Tensor = torch.linalg.vecdot(_wide(x), _wide(y), dim=-1)
    return product


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
