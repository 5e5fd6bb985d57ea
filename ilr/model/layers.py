"""Sublayers that know nothing of recurrence: attention and feed-forward, each with the norm before it."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from ilr.model.cache import Slot
from ilr.model.config import DecoderConfig
from ilr.model.positions import Index


class Direct(nn.Module):
    """A module called without `nn.Module`'s machinery where no hook asks for it.

    A step of generation is about a hundred such calls on one token: the machinery takes about as long as the sum.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """The forward pass; hooks, global ones too, run as on any module."""
        hooks = (
            self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
        )
        if hooks or _has_any_global_hook():  # type: ignore[no-untyped-call]
            return super().__call__(x)
        return self.forward(x)


class RMSNorm(Direct, nn.RMSNorm):
    """Root-mean-square norm (arXiv 1910.07467) by way of the vector norm.

    Torch's own is one kernel on an accelerator, but a dozen passes over the data on CPU: there this one takes
    0.6 of its time, forward and backward.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)
        # A tensor, because one operator takes it in; of no size, so that it changes no result's type.
        self._floor = torch.tensor(eps, dtype=torch.float64, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        """Residual stream (…, D) over its root mean square (in float32 or wider), times the weight; x's type stays."""
        if x.device.type != "cpu":
            return nn.RMSNorm.forward(self, x)
        wide = torch.promote_types(x.dtype, torch.float32)
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = torch.rsqrt(torch.addcmul(self._floor, size, size, value=1 / x.shape[-1]))
        return (x * scale).to(x.dtype) * self.weight


class Linear(Direct, nn.Linear):
    """A product without bias, (…, inputs) to (…, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Product of x and the weight's transpose."""
        return F.linear(x, self.weight)


class Attention(nn.Module):
    """Causal self-attention with grouped keys and values, behind its RMSNorm.

    Query, key and value are separate matrices: they map one to one to Hugging Face LLaMA names, and a
    fused product is slower on CPU where its output reaches glibc's 32 MiB mmap threshold.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.sizes.kv_heads
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        self.query = Linear(config.width, config.width)
        self.key = Linear(config.width, config.sizes.kv)
        self.value = Linear(config.width, config.sizes.kv)
        self.output = Linear(config.width, config.width)
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor, index: Index, slot: Slot | None = None) -> Tensor:
        """Update of the residual stream x (B, T, D); reads and extends the slot where there is one."""
        query, key, value = self._heads(x, index)
        if slot is not None:
            key, value = slot.append(key, value)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=index.mask,
            is_causal=index.causal,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )
        return self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))

    def probabilities(self, x: Tensor, index: Index) -> Tensor:
        """Attention weights (B, H, T, T) that `forward` mixes the values with, in float32 or wider."""
        query, key, _ = self._heads(x, index)
        key = key.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        scores = (query @ key.transpose(-1, -2)) / query.shape[-1] ** 0.5
        scores = scores if scores.dtype == torch.float64 else scores.float()
        if index.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return torch.softmax(scores if index.mask is None else scores + index.mask, dim=-1)

    def _heads(self, x: Tensor, index: Index) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (B, H, T, E), rotated keys and values (B, K, T, E)."""
        normed = self.norm(x)
        batch, length, _ = x.shape
        query = self.query(normed).view(batch, length, self.num_heads, -1)
        key = self.key(normed).view(batch, length, self.num_kv_heads, -1)
        value = self.value(normed).view(batch, length, self.num_kv_heads, -1)
        return index.rotate(query).transpose(1, 2), index.rotate(key).transpose(1, 2), value.transpose(1, 2)


def make_dropout(config: DecoderConfig) -> nn.Module:
    """Dropout at the config's rate; nothing where that is 0."""
    return nn.Dropout(config.dropout) if config.dropout > 0 else nn.Identity()


class FeedForward(nn.Module, ABC):
    """Position-wise sublayer behind its RMSNorm."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""


class SwiGLU(FeedForward):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        self.gate = Linear(config.width, config.sizes.ffn)
        self.up = Linear(config.width, config.sizes.ffn)
        self.down = Linear(config.sizes.ffn, config.width)
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""
        normed = self.norm(x)
        return self.dropout(self.down(F.silu(self.gate(normed)) * self.up(normed)))


class GELU(FeedForward):
    """down(gelu(up(x))), the exact GELU (arXiv 1606.08415)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        self.up = Linear(config.width, config.sizes.ffn)
        self.down = Linear(config.sizes.ffn, config.width)
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""
        return self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


def make_feed_forward(config: DecoderConfig) -> FeedForward:
    """The feed-forward of the kind that the config names."""
    kinds: dict[str, type[SwiGLU] | type[GELU]] = {"swiglu": SwiGLU, "gelu": GELU}
    return kinds[config.ffn](config)
