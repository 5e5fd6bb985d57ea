"""Keys and values of past tokens: one slot per visit, so that a repeated layer keeps each visit apart."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan

Policy = Literal["own"]
"""Which visits keep keys and values together: none."""


class Slot(Protocol):
    """Where one visit keeps its keys and values."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the chunk's keys and values (B, K, T, E); those to attend to, (B, K, S, E), come back."""
        ...


@dataclass(frozen=True)
class FixedSlot:
    """Some of a slot's room, keys and values (B, K, S, E), written at the columns ``at`` (T,).

    No shape depends on how much is written, so that a compiled graph serves many tokens; whoever attends
    hides what is not written yet (`Span.room`).
    """

    keys: Tensor
    values: Tensor
    at: Tensor

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the chunk; all columns come back, written or not."""
        self.keys.index_copy_(2, self.at, keys)
        self.values.index_copy_(2, self.at, values)
        return self.keys, self.values


class GrowingSlot:
    """The keys and values of one visit, (B, K, capacity, E), grown where a text outlasts them.

    ``length`` moves with the cache's clock: a pass that is broken off leaves no trace.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the chunk's keys and values (B, K, T, E); all so far, (B, K, S, E), come back."""
        begin, new = self.length, keys.shape[2]
        self._enlarge(begin + new, keys, values)
        assert self._keys is not None
        assert self._values is not None
        self._keys.narrow(2, begin, new).copy_(keys)
        self._values.narrow(2, begin, new).copy_(values)
        return self._keys.narrow(2, 0, begin + new), self._values.narrow(2, 0, begin + new)

    def fixed(self, room: int, at: Tensor) -> FixedSlot:
        """The first ``room`` columns, to be written at ``at``; the slot has been written to before."""
        assert self._keys is not None
        assert self._values is not None
        self._enlarge(room, self._keys, self._values)
        return FixedSlot(self._keys.narrow(2, 0, room), self._values.narrow(2, 0, room), at)

    def num_bytes(self) -> int:
        """Bytes allocated."""
        held = (self._keys, self._values)
        return sum(part.numel() * part.element_size() for part in held if part is not None)

    def _enlarge(self, needed: int, keys: Tensor, values: Tensor) -> None:
        """Have room for ``needed`` columns of the shape of these keys and values."""
        while self.capacity < needed:
            self.capacity *= 2
        if self._keys is None or self._keys.shape[2] < self.capacity:
            self._keys = self._room(self._keys, keys)
            self._values = self._room(self._values, values)

    def _room(self, held: Tensor | None, like: Tensor) -> Tensor:
        room = like.new_zeros((*like.shape[:2], self.capacity, like.shape[3]))
        if held is not None:
            room[:, :, : self.length] = held[:, :, : self.length]
        return room


@dataclass
class KVCache:
    """The slots of one batch under one plan; an explicit object, never kept on the model.

    ``padding`` (B,) counts the left-padding tokens of each row, None without padding.
    """

    config: DecoderConfig
    plan: Plan
    batch: int
    slots: list[GrowingSlot]
    padding: Tensor | None = None
    length: int = field(default=0)

    @classmethod
    def for_plan(
        cls,
        config: DecoderConfig,
        plan: Plan,
        batch: int,
        capacity: int | None = None,
        padding: Tensor | None = None,
        policy: Policy = "own",
    ) -> "KVCache":
        """An empty cache with room for ``capacity`` tokens (default: the context); type and device follow
        the first keys.

        ``policy``: which visits keep keys and values together. Only ``own``, a slot each, computes what the
        pass without a cache does; the others of the field (the first or last iteration's for all, i mod k)
        are another model and raise `InputError`.
        """
        if policy != "own":
            raise InputError(
                f"cache policy {policy!r}: only 'own', a slot per visit, is there; visits that share keys and "
                "values compute something else than the trained model"
            )
        room = config.context if capacity is None else capacity
        if room < 1:
            raise InputError(f"a cache needs a capacity of at least 1 token, got {room}")
        return cls(config, plan, batch, [GrowingSlot(room) for _ in range(plan.num_slots)], padding)

    def check(self, config: DecoderConfig, plan: Plan, batch: int) -> None:
        """Raise `InputError` unless this cache was made for this config, this computation and this batch."""
        if self.config != config:
            raise InputError("this cache was made for a decoder of another config")
        if self.plan.computation(config.injection) != plan.computation(config.injection):
            raise InputError(
                f"this cache was made under the plan {self.plan.label}, not {plan.label}: its slots hold other visits"
            )
        if self.batch != batch:
            raise InputError(f"this cache was made for a batch of {self.batch}, got {batch}")

    def advance(self, num_tokens: int) -> None:
        """Move the clock, once per forward pass (a visit cannot: a repeated layer would move it twice)."""
        self.length += num_tokens
        for slot in self.slots:
            slot.length = self.length

    def fixed(self, room: int, at: Tensor) -> tuple[FixedSlot, ...]:
        """The first ``room`` columns of all slots, to be written at ``at`` (T,) whatever the clock says."""
        return tuple(slot.fixed(room, at) for slot in self.slots)

    def num_bytes(self) -> int:
        """Bytes allocated for keys and values."""
        return sum(slot.num_bytes() for slot in self.slots)
