"""How a decoder is run, which changes nothing of what it computes: compiled or not, activations kept or not."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ilr.errors import InputError
from ilr.model.config import Compile, Recompute
from ilr.model.plan import Plan, Visit

if TYPE_CHECKING:
    from ilr.model.decoder import Context, Decoder

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


@dataclass(frozen=True)
class Execution:
    """What a decoder asks whenever it runs: whether all visits are one graph, and what is computed again.

    It holds neither weights nor compiled code, so that it can be copied and pickled with its decoder.
    """

    sublayers: bool = False
    whole: bool = False
    recompute: Recompute = "none"

    def prepare(self, decoder: "Decoder") -> None:
        """Have the decoder's sublayers compile themselves when they are next called, or not."""
        for sublayer in (*decoder.attention, *decoder.ffn):
            if self.sublayers:
                sublayer.compile(dynamic=False)
            else:
                sublayer._compiled_call_impl = None  # torch has no public way back

    def go_through(self, decoder: "Decoder", x: Tensor, plan: Plan, ctx: "Context") -> Tensor:
        """Residual stream (B, T, D) after all passes of the plan: `Decoder.go_through`, in one graph or not.

        Raises `InputError` for a plan that the graph was not made for. Nothing compiled runs where someone
        observes or a cache grows.
        """
        if not self.whole:
            return decoder.go_through(x, plan, ctx)
        own, injection = decoder.plan, decoder.config.injection
        if plan.computation(injection) != own.computation(injection):
            raise InputError(
                f"compile whole is for the one plan {own.label}, got {plan.label}: use compile sublayers, "
                "which runs any plan"
            )
        if ctx.observe is not None or ctx.slots is not None:
            return decoder.go_through(x, plan, ctx)
        return _compiled_whole(own)(decoder, x, ctx)

    def visit(self, decoder: "Decoder", x: Tensor, visit: Visit, ctx: "Context") -> Tensor:
        """Residual stream (B, T, D) after one visit: `Decoder.visit`, its activations kept or not."""
        if self.recompute == "none" or not torch.is_grad_enabled():
            return decoder.visit(x, visit, ctx)
        options: dict[str, Any] = {
            "use_reentrant": False,
            "preserve_rng_state": decoder.config.dropout > 0,
        }
        if self.recompute == "full":
            result: Tensor = checkpoint(decoder.visit, x, visit, ctx, **options)
            return result
        # Operators are matched by number: a weight's cast must not be spared because an earlier visit made it.
        kind = x.device.type
        with torch.autocast(kind, enabled=torch.is_autocast_enabled(kind), cache_enabled=False):
            result = checkpoint(decoder.visit, x, visit, ctx, context_fn=_selective, **options)
        return result


def execute(decoder: "Decoder", compile: Compile = "none", recompute: Recompute = "none") -> None:
    """Have the decoder run so from now on; state-dict keys stay as they are.

    ``compile``: sublayers compiles one graph per kind of sublayer and mode (training, evaluation), for any
    plans of one batch shape; whole compiles all visits of the decoder's own plan together and refuses others.
    ``recompute``: what the backward pass computes again, visit by visit: nothing; all but products and
    attention; all. Compiled sublayers already keep little but products: selective adds nothing there.
    Copies of the decoder run so too, with their own weights. Raises `InputError` where this machine cannot
    compile.
    """
    if compile != "none":
        check_compiler("compile")
    decoder.execution = Execution(
        sublayers=compile == "sublayers",
        whole=compile == "whole",
        recompute="none" if recompute == "selective" and compile != "none" else recompute,
    )
    decoder.execution.prepare(decoder)


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


def _selective() -> tuple[Any, Any]:
    """What keeps and gives back the results of `KEPT` during one recomputation."""
    kept = [getattr(torch.ops.aten, name).default for name in KEPT]
    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(kept)  # type: ignore[no-untyped-call]
    return contexts


@cache
def _compiled_whole(plan: Plan) -> Callable[["Decoder", Tensor, "Context"], Tensor]:
    """All visits of the plan as one graph; whose weights it runs with is told at each call."""
    # Graphs are counted by code object, and after eight torch gives up compiling: each plan has a copy of its own.
    own = FunctionType(_whole.__code__.replace(), _whole.__globals__, f"whole_{plan.label}")
    return partial(torch.compile(own, dynamic=False), plan)


def _whole(plan: Plan, decoder: "Decoder", x: Tensor, ctx: "Context") -> Tensor:
    return decoder.go_through(x, plan, ctx)
