"""The pass of one token per row as one compiled graph, for texts by the thousand.

Such a pass is a few hundred operations that take less time than calling them does. Nothing in the graph depends
on how long the text is: keys and values are written at a column that a tensor names, attention reads a room
that grows in strides, and what is not written yet is hidden.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType

import torch
from torch import Tensor

from ilr.model.cache import FixedSlot, KVCache
from ilr.model.compilation import check_compiler
from ilr.model.decoder import Context, Decoder
from ilr.model.plan import Plan
from ilr.model.positions import Index, Span, check_length

STRIDE = 64
"""Columns by which the room grows that attention reads."""


class CompiledStep:
    """Extends one cache, which holds something already, by a token of each row at a time."""

    def __init__(self, decoder: Decoder, plan: Plan, cache: KVCache) -> None:
        check_compiler("compile")
        cache.check(decoder.config, plan, cache.batch)
        self._decoder, self._plan, self._cache = decoder, plan, cache
        self._at = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        self._room = 0
        self._slots: tuple[FixedSlot, ...] = ()
        self._run = _compiled(plan, decoder.device.type)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, V) after ``tokens`` (B, 1); raises `InputError` where learned positions end."""
        past = self._cache.length
        check_length(self._decoder.positions, past + 1)
        if past >= self._room:
            self._enlarge(past + 1)
        span = Span(past, 1, self._cache.padding, tokens.device, self._decoder.compute_dtype, room=self._room)
        index = self._decoder.positions.index(span)
        assert index.mask is not None, "a room hides its unwritten columns"
        _mark_growing(index.mask, index.mask.dim() - 1)
        self._at.fill_(past)
        with torch.compiler.set_stance("default"):
            logits = self._run(
                self._decoder, self._plan, self._decoder.embed(tokens, span), index, self._slots
            )
        self._cache.advance(1)
        return logits

    def _enlarge(self, needed: int) -> None:
        capacity = min((slot.capacity for slot in self._cache.slots), default=needed)
        self._room = max(needed, min(-(-needed // STRIDE) * STRIDE, capacity))
        self._slots = self._cache.fixed(self._room, self._at)
        for slot in self._slots:
            _mark_growing(slot.keys, 2)
            _mark_growing(slot.values, 2)


def run(decoder: Decoder, plan: Plan, x: Tensor, index: Index, slots: tuple[FixedSlot, ...]) -> Tensor:
    """Logits (B, V) of embedded tokens x (B, 1, D): what is compiled."""
    return decoder.predict(decoder.go_through(x, plan, Context(index, slots)))[:, 0]


@cache
def _compiled(
    plan: Plan, device_type: str
) -> Callable[[Decoder, Plan, Tensor, Index, tuple[FixedSlot, ...]], Tensor]:
    # Graphs are counted by code object, and after eight torch gives up compiling: each plan has a copy of its own.
    own = FunctionType(run.__code__.replace(), run.__globals__, f"run_{plan.label}")
    # With its kernels called from Python, a graph on CPU takes a third longer.
    return torch.compile(own, options={"cpp_wrapper": True} if device_type == "cpu" else None)


def _mark_growing(tensor: Tensor, dim: int) -> None:
    """Have the graph serve any size of this dimension."""
    torch._dynamo.maybe_mark_dynamic(tensor, dim)
