"""How a decoder is run, which changes nothing of what it computes: compiled or not, activations kept or not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ilr.config import Compile, Recompute
from ilr.decoder import ApplyVisit, Context, Decoder
from ilr.errors import InputError
from ilr.plan import Plan, Visit

KEPT = (
    "mm",
    "bmm",
    "addmm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
"""Operators whose results selective recomputation keeps: products and attention, the dear ones."""


def execute(decoder: Decoder, compile: Compile = "none", recompute: Recompute = "none") -> None:
    """Have the decoder run so from now on; state-dict keys stay as they are.

    ``compile``: sublayers compiles one graph per kind of sublayer and mode (training, evaluation), for any
    plans of one batch shape; whole compiles all visits of the decoder's own plan together and refuses others.
    ``recompute``: what the backward pass computes again, visit by visit: nothing; all but products and
    attention; all. Compiled sublayers already keep little but products: selective adds nothing there.
    Raises `InputError` where this machine cannot compile.
    """
    if compile != "none":
        check_compiler("compile")
    if recompute != "none" and not (recompute == "selective" and compile != "none"):
        decoder.apply_visit = _recomputing(recompute, preserve_rng=decoder.config.dropout > 0)
    if compile == "sublayers":
        for sublayer in (*decoder.attention, *decoder.ffn):
            sublayer.forward = torch.compile(sublayer.forward, dynamic=False)
    elif compile == "whole":
        decoder.go_through = _whole(decoder)  # type: ignore[method-assign, assignment]


def check_compiler(option: str) -> None:
    """Raise `InputError` that names the option where no C++ compiler is found: torch would say so at the first step."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise InputError(
            f"{option} needs a C++ compiler, such as g++ or the one that the variable CXX names: {error}"
        ) from None


def _recomputing(recompute: Recompute, preserve_rng: bool) -> ApplyVisit:
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": preserve_rng}
    if recompute == "full":
        return partial(checkpoint, **options)
    kept = [getattr(torch.ops.aten, name).default for name in KEPT if hasattr(torch.ops.aten, name)]
    options["context_fn"] = partial(create_selective_checkpoint_contexts, kept)

    def apply_visit(
        apply: Callable[[Tensor, Visit, Context], Tensor], x: Tensor, visit: Visit, ctx: Context
    ) -> Tensor:
        # Operators are matched by number: a weight's cast must not be spared because an earlier visit made it.
        kind = x.device.type
        with torch.autocast(kind, enabled=torch.is_autocast_enabled(kind), cache_enabled=False):
            result: Tensor = checkpoint(apply, x, visit, ctx, **options)
        return result

    return apply_visit


def _whole(decoder: Decoder) -> Callable[[Tensor, Plan, Context], Tensor]:
    eager, own = decoder.go_through, decoder.plan
    compiled = torch.compile(eager, dynamic=False)

    def go_through(x: Tensor, plan: Plan, ctx: Context) -> Tensor:
        injection = decoder.config.injection
        if plan.computation(injection) != own.computation(injection):
            raise InputError(
                f"compile whole is for the one plan {own.label}, got {plan.label}: use compile sublayers, "
                "which runs any plan"
            )
        if ctx.observe is not None or ctx.slots is not None:
            return eager(x, plan, ctx)
        return compiled(x, own, ctx)

    return go_through
