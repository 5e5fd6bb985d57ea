"""Sublayers that know nothing of recurrence: attention and feed-forward, each with the norm before it."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ilr.cache import Slot
from ilr.config import DecoderConfig
from ilr.positions import Index


class Attention(nn.Module):
    """Causal self-attention with grouped keys and values, behind its RMSNorm.

    Query, key and value are separate matrices: they map one to one to Hugging Face LLaMA names, and a
    fused product is slower on CPU where its output reaches glibc's 32 MiB mmap threshold.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.sizes.kv_heads
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.sizes.kv, bias=False)
        self.value = nn.Linear(config.width, config.sizes.kv, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

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
        query = self.query(normed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        key = self.key(normed).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2)
        value = self.value(normed).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2)
        return index.rotate(query), index.rotate(key), value


class FeedForward(nn.Module, ABC):
    """Position-wise sublayer behind its RMSNorm."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""


class SwiGLU(FeedForward):
    """down(silu(gate(x)) · up(x)) (arXiv 2002.05202)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.gate = nn.Linear(config.width, config.sizes.ffn, bias=False)
        self.up = nn.Linear(config.width, config.sizes.ffn, bias=False)
        self.down = nn.Linear(config.sizes.ffn, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""
        normed = self.norm(x)
        return self.dropout(self.down(F.silu(self.gate(normed)) * self.up(normed)))


class GELU(FeedForward):
    """down(gelu(up(x))), the exact GELU (arXiv 1606.08415)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.up = nn.Linear(config.width, config.sizes.ffn, bias=False)
        self.down = nn.Linear(config.sizes.ffn, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Update of the residual stream x (B, T, D)."""
        return self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


def make_feed_forward(config: DecoderConfig) -> FeedForward:
    """The feed-forward of the kind that the config names."""
    kinds: dict[str, type[SwiGLU] | type[GELU]] = {"swiglu": SwiGLU, "gelu": GELU}
    return kinds[config.ffn](config)
