"""Is an iteration a contraction? The largest factor by which it stretches a small change of its input."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ilr.model.decoder import Context, Decoder
from ilr.model.initialise import generator_for
from ilr.model.plan import Plan, Visit
from ilr.model.positions import Span

POSITIONS = 128
"""Positions from the beginning of each row that a Jacobian is taken over; later ones cannot change them."""
_MOST_STEPS, _TOLERANCE = 100, 2e-4


def spectral_norms(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Largest singular value of the function's Jacobian J at each row of x (B, …), (B,), the rows apart.

    Power iteration on JᵀJ from one seeded random direction, until no row grows by more than 0.02 % of
    itself; it approaches from below, and stops some tenths of a percent short where the largest singular values
    lie close together. Jᵀw is linear in w, so that its derivative is the product Jv: both
    products are backward passes of one graph, several times faster here than forward-mode differentiation.
    """
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        value = function(at)
        weights = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(value, at, weights, create_graph=True)
    direction = torch.randn(x.shape[1:], generator=generator_for("jacobian"), dtype=torch.float64)
    direction = direction.to(x).expand(x.shape)
    norms = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    for _ in range(_MOST_STEPS):
        direction = direction / _row_norms(direction).clamp(min=torch.finfo(x.dtype).tiny)
        (image,) = torch.autograd.grad(pulled, weights, direction, retain_graph=True)
        grown = _row_norms(image).flatten()
        settled = bool((grown <= norms * (1 + _TOLERANCE)).all())
        norms = torch.maximum(norms, grown)
        if settled:
            break
        (direction,) = torch.autograd.grad(value, at, image, retain_graph=True)
    return norms


def visit_norms(decoder: Decoder, plan: Plan, before: tuple[Tensor, ...]) -> list[Tensor]:
    """Spectral norm of each visit's Jacobian, (B,) a visit, at its input ``before`` (B, T, D).

    The visit is a map of the first `POSITIONS` states of a row to themselves, residual path included: below 1
    it brings any two near states closer; a value above 1 belongs to at least one direction.
    """
    length = min(POSITIONS, before[0].shape[1])
    span = Span(0, length, None, decoder.device, decoder.compute_dtype)
    context = Context(decoder.positions.index(span))
    # The fused kernels have no second derivative.
    with sdpa_kernel(SDPBackend.MATH):
        return [
            spectral_norms(partial(_visited, decoder, visit, context), state[:, :length].clone())
            for visit, state in zip(plan.visits, before, strict=True)
        ]


def _visited(decoder: Decoder, visit: Visit, context: Context, x: Tensor) -> Tensor:
    # Not by way of the decoder's `apply_visit`: activations that are recomputed have no second derivative.
    return decoder.visit(x, visit, context)


def _row_norms(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return norms.view(-1, *[1] * (x.dim() - 1))
