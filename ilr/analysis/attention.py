"""Where each visit looks: the entropy of its attention, and how far it moves between iterations."""

import torch
from torch import Tensor

from ilr.model.decoder import Decoder
from ilr.model.layers import Attention
from ilr.model.metrics import IGNORED
from ilr.model.plan import Plan
from ilr.model.positions import Span

QUANTITIES = ("attention_entropy", "attention_change")


class AttentionMaps:
    """Means over scored queries and heads, from the T × T weights of one row of a batch at a time.

    *attention_entropy* is −Σ p log p in nats. *attention_change* is the total variation ½ Σ |p − p'| between
    a query's weights p and those of the same layer's iteration before, p'; between 0 and 1.
    """

    def __init__(self, decoder: Decoder, plan: Plan) -> None:
        self.decoder, self.plan = decoder, plan
        self.tokens = 0
        self._sums = torch.zeros(len(QUANTITIES), plan.depth, dtype=torch.float64, device=decoder.device)

    def update(self, before: tuple[Tensor, ...], targets: Tensor) -> None:
        """Add rows of a batch: each visit's input (B, T, D), and the targets (B, T)."""
        self.tokens += int((targets != IGNORED).sum())
        span = Span(0, targets.shape[1], None, targets.device, self.decoder.compute_dtype)
        index = self.decoder.positions.index(span)
        for row, scored in enumerate(targets != IGNORED):
            maps_before: dict[int, Tensor] = {}
            for number, visit in enumerate(self.plan.visits):
                if visit.attention is None:
                    continue
                attention = self.decoder.attention[visit.attention]
                assert isinstance(attention, Attention)
                maps = attention.probabilities(before[number][row : row + 1], index)[0]  # (H, T, T)
                values = torch.zeros(len(QUANTITIES), device=maps.device, dtype=torch.float64)
                values[0] = _mean_over_heads(torch.special.entr(maps), scored)
                if visit.layer in maps_before:
                    values[1] = _mean_over_heads((maps - maps_before[visit.layer]).abs(), scored) / 2
                maps_before[visit.layer] = maps
                self._sums[:, number] += values

    def means(self) -> dict[str, list[float | None]]:
        """Mean of each quantity at each visit; None without attention, or without an iteration before."""
        entropy, change = (self._sums / self.tokens).tolist()
        attended: set[int] = set()
        means: dict[str, list[float | None]] = {name: [] for name in QUANTITIES}
        for number, visit in enumerate(self.plan.visits):
            attends = visit.attention is not None
            means["attention_entropy"].append(entropy[number] if attends else None)
            means["attention_change"].append(change[number] if attends and visit.layer in attended else None)
            attended |= {visit.layer} if attends else set()
        return means


def _mean_over_heads(values: Tensor, scored: Tensor) -> Tensor:
    """Sum over keys and scored queries of (H, T, S), mean over heads."""
    return values.sum(dim=-1).double()[:, scored].sum() / len(values)
