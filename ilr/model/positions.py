"""Position schemes behind one small interface: what is added once, what acts inside every visit.

An `Index` is made once per forward pass and shared by all visits: where queries and keys stand, as the
rotation or the mask that attention applies.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ilr.errors import InputError
from ilr.model.config import DecoderConfig


@dataclass(frozen=True)
class Index:
    """What attention needs to know about positions, the same for every visit of one forward pass.

    ``rotation``: cosines and signed sines (…, T, 1, E) of the queries' positions, or None. ``mask``: values added to
    the scores, broadcastable to (B, H, T, S), or None. ``causal``: whether the kernel itself hides later keys.
    """

    rotation: tuple[Tensor, Tensor] | None
    mask: Tensor | None
    causal: bool

    def rotate(self, heads: Tensor) -> Tensor:
        """Heads (B, T, H, E) turned by their positions, in Hugging Face's half-split layout."""
        if self.rotation is None:
            return heads
        cos, sin = self.rotation
        swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
        return torch.addcmul(heads * cos, swapped, sin)


@dataclass(frozen=True)
class Span:
    """Where a chunk of queries lies: ``length`` columns after ``past`` ones, the first ``padding`` (B,) of
    each row being left padding (None: no padding). ``dtype``: the type that attention computes in.
    ``room``: key columns that attention reads, the unwritten ones hidden; None: only those written so far.
    """

    past: int
    length: int
    padding: Tensor | None
    device: torch.device
    dtype: torch.dtype
    room: int | None = None

    def positions(self) -> Tensor:
        """Position of each query in its own text: (T,), or (B, T) with padding."""
        columns = torch.arange(self.past, self.past + self.length, device=self.device)
        return columns if self.padding is None else (columns - self.padding[:, None]).clamp(min=0)

    def distance(self) -> Tensor:
        """Key column minus query column, (T, S): above 0 where the key is later."""
        end = self.past + self.length
        keys = torch.arange(end if self.room is None else self.room, device=self.device)
        return keys - keys[self.past : end, None]

    def needs_mask(self) -> bool:
        """Whether the kernel's own causal flag cannot say which keys are visible."""
        return self.padding is not None or self.room is not None or (self.past > 0 and self.length > 1)

    def hidden(self) -> Tensor:
        """Where a key may not be seen: (T, S), or (B, 1, T, S) with padding. A padding query sees itself."""
        distance = self.distance()
        later = distance > 0
        if self.padding is None:
            return later
        keys = torch.arange(distance.shape[1], device=self.device)
        padded = (keys < self.padding[:, None])[:, None, None, :] & (distance != 0)
        return later | padded


class Positions(nn.Module, ABC):
    """One position scheme."""

    longest: int | None = None
    """Positions that exist, or None where any length can be run."""

    def add(self, x: Tensor, span: Span) -> Tensor:
        """Embeddings x (B, T, D) with whatever the scheme adds once, before the first visit."""
        return x

    @abstractmethod
    def index(self, span: Span) -> Index:
        """What every visit of this pass applies."""


class NoPositions(Positions):
    """Order known through the causal mask alone (arXiv 2305.19466)."""

    def index(self, span: Span) -> Index:
        """No rotation; the mask only hides keys."""
        return Index(None, *_visibility(span))


class Rotary(Positions):
    """Rotary positions (arXiv 2104.09864), frequencies as Hugging Face computes them, in float32."""

    def __init__(self, head_width: int, theta: float) -> None:
        super().__init__()
        pairs = torch.arange(0, head_width, 2, dtype=torch.int64, device="cpu").float()
        # Tensors but no buffers: a model turned to bfloat16 would round them.
        self._frequencies = 1.0 / theta ** (pairs / head_width)
        self._turns = torch.empty(2, 0, 1, head_width, dtype=torch.float32, device="cpu")

    def index(self, span: Span) -> Index:
        """Cosines and signed sines of the queries' positions: − on the first half of a head, + on the second."""
        end = span.past + span.length
        if self._turns.shape[1] < end or self._turns.device != span.device:
            self._turns = self._computed(max(end, 2 * self._turns.shape[1]), span.device)
        turns = (
            self._turns.narrow(1, span.past, span.length)
            if span.padding is None
            else self._turns[:, span.positions()]
        )
        cos, sin = turns.to(span.dtype).unbind()
        return Index((cos, sin), *_visibility(span))

    @torch.inference_mode(False)  # kept for later passes, which may take gradients
    def _computed(self, length: int, device: torch.device) -> Tensor:
        """Cosines and signed sines (2, length, 1, E) of the first positions."""
        positions = torch.arange(length, device=device).float()
        angles = positions[:, None, None] * self._frequencies.to(device)
        cos, sin = angles.cos(), angles.sin()
        return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))


class ALiBi(Positions):
    """Scores biased by slope · (key − query) (arXiv 2108.12409).

    Slopes are 2^(−8i/H), i from 1, where the number of heads H is a power of two; else, as the paper's code has
    them, those of the closest lower power of two N, then every other one of 2N.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def slopes(self, device: torch.device) -> Tensor:
        """Slopes (H,), float64."""
        lower = 1 << (self.num_heads.bit_length() - 1)
        exponents = [8 * i / lower for i in range(1, lower + 1)]
        exponents += [8 * i / (2 * lower) for i in range(1, 2 * lower, 2)]
        return torch.tensor(
            [2.0**-e for e in exponents[: self.num_heads]], dtype=torch.float64, device=device
        )

    def index(self, span: Span) -> Index:
        """The bias (1 or B, H, T, S) with hidden keys at minus infinity, built once for all visits."""
        wide = torch.promote_types(span.dtype, torch.float32)
        slopes = self.slopes(span.device).to(wide)[None, :, None, None]
        bias = (slopes * span.distance()).masked_fill(span.hidden(), float("-inf"))
        return Index(None, bias.to(span.dtype), False)


SLOPES = "published"
"""What a checkpoint says of the slopes that its weights were trained with."""


def warn_of_other_slopes(config: DecoderConfig, kept: Mapping[str, Any]) -> None:
    """Warn where the weights of a checkpoint, which kept these words, were trained with other slopes than `ALiBi`'s.

    Checkpoints that say nothing are from before the slopes of head counts that are no power of two were the
    published ones.
    """
    usual = config.num_heads & (config.num_heads - 1) == 0
    if config.positions == "alibi" and not usual and kept.get("alibi_slopes") != SLOPES:
        warnings.warn(
            f"this checkpoint was trained with other ALiBi slopes for {config.num_heads} heads than the published "
            "ones, which are used now: its figures will differ from those of its run; train it anew",
            stacklevel=3,
        )


class Learned(Positions):
    """A learned vector per position, added once to the embeddings (not at later visits)."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.longest = context
        self.table = nn.Embedding(context, width)

    def add(self, x: Tensor, span: Span) -> Tensor:
        """Embeddings x (B, T, D) plus the vectors of their positions."""
        return x + self.table(span.positions())

    def index(self, span: Span) -> Index:
        """No rotation; the mask only hides keys."""
        return Index(None, *_visibility(span))


def make_positions(config: DecoderConfig) -> Positions:
    """The position scheme that the config names."""
    match config.positions:
        case "rope":
            return Rotary(config.sizes.head, config.rope_theta)
        case "alibi":
            return ALiBi(config.num_heads)
        case "learned":
            return Learned(config.context, config.width)
        case "none":
            return NoPositions()


def check_length(positions: Positions, length: int) -> None:
    """Raise `InputError` where a text of this many tokens has positions that do not exist."""
    if positions.longest is not None and length > positions.longest:
        raise InputError(
            f"learned positions end at the context of {positions.longest} tokens, got a text of {length}; "
            "use rope, alibi or none for longer ones"
        )


def _visibility(span: Span) -> tuple[Tensor | None, bool]:
    """(mask, causal): the kernel's causal flag where it is enough, else hidden keys at minus infinity."""
    if not span.needs_mask():
        return None, span.length > 1
    hidden = span.hidden()
    zeros = torch.zeros(hidden.shape, dtype=span.dtype, device=span.device)
    return zeros.masked_fill(hidden, float("-inf")), False
