"""The sizes and choices of a decoder; no torch."""

from dataclasses import dataclass
from typing import Literal

from ilr.bounds import MOST_LAYERS, check_count, check_positive, check_share, shown
from ilr.errors import InputError

Compile = Literal["none", "sublayers", "whole"]
Recompute = Literal["none", "selective", "full"]
PositionScheme = Literal["rope", "alibi", "learned", "none"]
FeedForwardKind = Literal["swiglu", "gelu"]
Injection = Literal["none", "add"]
ResidualInit = Literal["plain", "layers", "depth"]


@dataclass(frozen=True)
class Sizes:
    """The widths that follow from a config, in numbers of features or heads."""

    head: int
    kv_heads: int
    kv: int
    ffn: int
    embedding: int


@dataclass(frozen=True)
class DecoderConfig:
    """Everything about a decoder except which layers run (the plan).

    Args:
        vocab_size: Number of token ids, V.
        context: Longest sequence trained on, T, in tokens; the size of a learned position table.
        width: Features of the residual stream, D.
        num_layers: Layers that a schedule can name, L.
        num_heads: Query heads, H; divides ``width``.
        num_kv_heads: Key and value heads, K; divides ``num_heads``. Null: as many as query heads.
        ffn_width: Hidden features of the feed-forward, F. Null: 4 × width (as the ILR paper).
        ffn: Feed-forward kind: swiglu (3·D·F weights) or gelu (2·D·F).
        positions: Position scheme. rope and alibi act inside every visit; learned is added once, before
            the first visit; none leaves order to the causal mask (arXiv 2305.19466).
        rope_theta: Base of the rotary frequencies (arXiv 2104.09864).
        tie_embeddings: Whether the head multiplies by the token table.
        embedding_width: Features of the token table, E (factorised embedding, arXiv 1909.11942). Null: D.
        injection: add: before each later pass of a segment, add the residual stream as it was when the
            segment was first entered.
        dropout: Probability of dropping features of the embeddings and of each sublayer's output.
        norm_eps: Added to the mean square inside RMSNorm.
        init_std: Standard deviation of the normal that draws every matrix.
        residual_init: plain: output projections drawn as all others. layers: their standard deviation is
            divided by √(2·num_layers). depth: by √(sublayer applications that the plan executes).
    """

    vocab_size: int
    context: int = 256
    width: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int | None = None
    ffn_width: int | None = None
    ffn: FeedForwardKind = "swiglu"
    positions: PositionScheme = "rope"
    rope_theta: float = 10_000.0
    tie_embeddings: bool = True
    embedding_width: int | None = None
    injection: Injection = "none"
    dropout: float = 0.0
    norm_eps: float = 1e-6
    init_std: float = 0.02
    residual_init: ResidualInit = "plain"

    def __post_init__(self) -> None:
        check_count("num_layers", self.num_layers, MOST_LAYERS)
        for name in ("vocab_size", "context", "width", "num_heads"):
            check_count(name, getattr(self, name))
        for name in ("num_kv_heads", "ffn_width", "embedding_width"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} must be one of {', '.join(allowed)}, got {shown(getattr(self, name))}"
                )
        if not isinstance(self.tie_embeddings, bool):
            raise InputError(f"tie_embeddings must be true or false, got {shown(self.tie_embeddings)}")
        if self.width % self.num_heads:
            raise InputError(f"width must be a multiple of num_heads, got {self.width} and {self.num_heads}")
        if self.num_heads % self.sizes.kv_heads:
            raise InputError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )
        if self.positions == "rope" and self.sizes.head % 2:
            raise InputError(
                f"rope rotates pairs of features: width / num_heads must be even, got {self.sizes.head}"
            )
        check_share("dropout", self.dropout, below=True)
        for name in ("rope_theta", "norm_eps", "init_std"):
            check_positive(name, getattr(self, name))

    @property
    def sizes(self) -> Sizes:
        """The widths with every null replaced by what it follows."""
        head = self.width // self.num_heads
        kv_heads = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        return Sizes(
            head=head,
            kv_heads=kv_heads,
            kv=kv_heads * head,
            ffn=4 * self.width if self.ffn_width is None else self.ffn_width,
            embedding=self.width if self.embedding_width is None else self.embedding_width,
        )

    @property
    def label(self) -> str:
        """What differs from the defaults and decides the function, such as ``+alibi+inject``; else empty."""
        parts = [
            "" if self.positions == "rope" else self.positions if self.positions != "none" else "nope",
            "" if self.injection == "none" else "inject",
            "" if self.ffn == "swiglu" else self.ffn,
        ]
        return "".join(f"+{part}" for part in parts if part)


_CHOICES: dict[str, tuple[str, ...]] = {
    "ffn": ("swiglu", "gelu"),
    "positions": ("rope", "alibi", "learned", "none"),
    "injection": ("none", "add"),
    "residual_init": ("plain", "layers", "depth"),
}
