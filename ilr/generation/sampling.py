"""From logits to the next token: temperature, then top-k, then top-p, then one draw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ilr.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn; the order and the edge cases are those of `transformers`.

    Args:
        temperature: Divides the logits; 0 takes the likeliest token (the lowest id among equals).
        top_k: Keeps the k likeliest tokens, and those equal to the k-th. Null: all.
        top_p: Of what is left, keeps the smallest set of likeliest tokens whose probability reaches p;
            never none.
        seed: With the prompt's tokens and the sample's number it decides every draw.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature must be at least 0 (0 is greedy), got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k must be at least 1, or left out to keep all tokens, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p must be above 0 and at most 1, got {self.top_p}")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and nothing is drawn."""
        return self.temperature == 0


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities (…, V), float64, from which a token is drawn; ``logits`` (…, V) of any floating type."""
    assert not sampling.greedy, "greedy decoding draws from no distribution"
    scores = logits.double()
    # The likeliest at 0, so that no temperature, however small, divides it to infinity.
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        smallest_kept = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < smallest_kept, -math.inf)
    if sampling.top_p < 1:
        ascending, order = scores.sort(dim=-1)
        dropped = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        dropped[..., -1] = False
        scores = scores.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -math.inf)
    return scores.softmax(dim=-1)


def choose(logits: Tensor, sampling: Sampling, generators: Sequence[torch.Generator]) -> list[int]:
    """The next token of each row of ``logits`` (B, V); each row draws once from its own CPU generator.

    Raises `InputError` for logits that are not finite: such weights cannot write.
    """
    if not bool(logits.isfinite().all()):
        raise InputError("the logits are not finite: these weights have diverged and cannot generate")
    if sampling.greedy:
        return logits.argmax(dim=-1).tolist()
    cumulative = distribution(logits, sampling).cpu().cumsum(dim=-1)
    # Dividing by the last makes it exactly 1, above every draw: a dropped token can never be found.
    cumulative = cumulative / cumulative[:, -1:]
    draws = torch.stack([torch.rand(1, generator=generator, dtype=torch.float64) for generator in generators])
    return torch.searchsorted(cumulative, draws, right=True)[:, 0].tolist()
