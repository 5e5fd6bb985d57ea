"""Matrix products alone: the machine's peak, and the floor under a training step."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ilr.bench.precision import product_type
from ilr.bench.variant import Precision, Variant


@dataclass(frozen=True)
class PeakShape:
    """Sizes of the product that stands for a device's peak."""

    rows: int
    inner: int
    columns: int

    @classmethod
    def of(cls, device: torch.device) -> "PeakShape":
        """Large enough for the device, small enough to be repeated often."""
        return cls(8192, 8192, 8192) if device.type == "cuda" else cls(2048, 1024, 2048)

    @property
    def flops(self) -> int:
        """FLOPs of the product."""
        return 2 * self.rows * self.inner * self.columns

    def __str__(self) -> str:
        return f"{self.rows} × {self.inner} × {self.columns}"


class PeakProduct:
    """One large product into a preallocated result; called, it runs once."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        dtype, shape = product_type(precision), PeakShape.of(device)
        self.left = torch.randn(shape.rows, shape.inner, device=device).to(dtype)
        self.right = torch.randn(shape.inner, shape.columns, device=device).to(dtype)
        self.out = torch.empty(shape.rows, shape.columns, device=device, dtype=dtype)

    def __call__(self) -> Tensor:
        """Multiply once."""
        return torch.mm(self.left, self.right, out=self.out)


@dataclass(frozen=True)
class LinearShape:
    """A product of ``rows`` activations of ``inner`` features with a weight (``outer``, ``inner``)."""

    rows: int
    inner: int
    outer: int

    @property
    def flops(self) -> int:
        """FLOPs of the forward product and the two of the backward pass."""
        return 6 * self.rows * self.inner * self.outer


def linear_shapes(variant: Variant) -> Counter[LinearShape]:
    """The products with weights that a step executes, and how often."""
    config, rows = variant.config, variant.tokens
    width, kv, ffn, narrow = config.width, config.sizes.kv, config.sizes.ffn, config.sizes.embedding
    attention = [(width, width), (width, kv), (width, kv), (width, width)]
    gated = 2 if config.ffn == "swiglu" else 1
    feed_forward = [(width, ffn)] * gated + [(ffn, width)]
    shapes = [(narrow, width)] if narrow != width else []
    for visit in variant.plan.visits:
        shapes += attention if visit.attention is not None else []
        shapes += feed_forward if visit.ffn is not None else []
    if config.tie_embeddings and narrow != width:
        shapes += [(width, narrow), (narrow, config.vocab_size)]
    else:
        shapes += [(width, config.vocab_size)]
    return Counter(LinearShape(rows, *shape) for shape in shapes)


class KernelFloor:
    """A step's matrix products and attention kernels with their exact shapes, and nothing between them.

    Products (forward, and both of the backward pass) write into preallocated results; causal attention runs
    forward and backward without a bias, whatever the positions. Called, it runs all of a step once.
    """

    def __init__(self, variant: Variant, device: torch.device) -> None:
        dtype = product_type(variant.precision)
        self.linears = [(Linear(shape, dtype, device), n) for shape, n in linear_shapes(variant).items()]
        self.attentions = sum(visit.attention is not None for visit in variant.plan.visits)
        config = variant.config
        heads = (config.num_heads, config.sizes.kv_heads, config.sizes.kv_heads)
        self.grouped = len(set(heads)) > 1
        query, key, value = (
            torch.randn(variant.batch_size, config.context, count, config.sizes.head, device=device)
            .to(dtype)
            .transpose(1, 2)
            .requires_grad_()
            for count in heads
        )
        self.heads = (query, key, value)
        self.upstream = torch.randn_like(query)

    def __call__(self) -> Tensor:
        """Run every kernel as often as the step does."""
        for linear, times in self.linears:
            for _ in range(times):
                linear()
        for _ in range(self.attentions):
            self._attend()
        return self.upstream

    def _attend(self) -> None:
        mixed = F.scaled_dot_product_attention(*self.heads, is_causal=True, enable_gqa=self.grouped)
        torch.autograd.grad(mixed, self.heads, self.upstream)


class Linear:
    """The three products of a linear layer, into preallocated results."""

    def __init__(self, shape: LinearShape, dtype: torch.dtype, device: torch.device) -> None:
        def tensor(*sizes: int) -> Tensor:
            return torch.randn(*sizes, device=device).to(dtype)

        self.inputs, self.weight = tensor(shape.rows, shape.inner), tensor(shape.outer, shape.inner)
        self.upstream = tensor(shape.rows, shape.outer)
        self.outputs = torch.empty_like(self.upstream)
        self.to_inputs, self.to_weight = torch.empty_like(self.inputs), torch.empty_like(self.weight)

    def __call__(self) -> None:
        """Forward, gradient of the inputs, gradient of the weight."""
        for left, right, out in self.products():
            torch.mm(left, right, out=out)

    def products(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Left and right factor and result of each."""
        yield self.inputs, self.weight.t(), self.outputs
        yield self.upstream, self.weight, self.to_inputs
        yield self.upstream.t(), self.inputs, self.to_weight
