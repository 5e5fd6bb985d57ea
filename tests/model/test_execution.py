"""Compiled or recomputed, a decoder computes what the plain one does."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from oracles import LENGTH, TOKENS, tiny_config
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ilr.errors import InputError
from ilr.generation.decode import generate
from ilr.model.compilation import execute
from ilr.model.config import Compile, Recompute
from ilr.model.decoder import Context, Decoder
from ilr.model.plan import Plan, Segment, Visit, make_plan
from ilr.training.module import LanguageModel

TARGETS = TOKENS.roll(-1, 1)
PLAN = make_plan([3, 2, 1, 1])
EIGHTEEN = [
    *(make_plan([a, b, c, 1]) for a in (1, 2, 3) for b in (1, 2) for c in (1, 2)),
    *(make_plan([1, 1, 1, n]) for n in (2, 3, 4)),
    make_plan([Segment((0,)), Segment((1, 2), 3), Segment((3,))]),
    make_plan([Segment((3, 2, 1, 0))]),
    make_plan([Segment((0, 1)), Segment((2,), 2, "attention"), Segment((3,), 2, "ffn")]),
]


def decoder_of(
    plan: Plan = PLAN, compile: Compile = "none", recompute: Recompute = "none", **changes: Any
) -> Decoder:
    decoder = Decoder(tiny_config(plan, **changes), plan)
    execute(decoder, compile, recompute)
    return decoder


def step(decoder: Decoder, plan: Plan | None = None) -> tuple[Tensor, Tensor]:
    """Loss and all gradients of one batch, dropout from a fixed seed."""
    decoder.zero_grad()
    torch.manual_seed(5)
    loss = decoder.nll_sum(TOKENS, TARGETS, plan)
    loss.backward()
    gradients = [p.grad.flatten() for p in decoder.parameters() if p.grad is not None]
    return loss.detach(), torch.cat(gradients)


@pytest.mark.parametrize("tie_embeddings", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dropout", [0.0, 0.2], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputed_gradients_are_those_of_kept_activations(
    recompute: Recompute, sharing: str, dropout: float, tie_embeddings: bool
) -> None:
    changes: dict[str, Any] = {"dropout": dropout, "tie_embeddings": tie_embeddings}
    plan = make_plan([3, 2, 1, 1], sharing=sharing)
    loss, gradients = step(decoder_of(plan, **changes))
    again, same = step(decoder_of(plan, recompute=recompute, **changes))
    assert torch.equal(again, loss)
    assert torch.equal(same, gradients)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_under_autocast_rounds_no_worse(recompute: Recompute) -> None:
    exact = step(decoder_of())[1]
    errors = []
    for choice in ("none", recompute):
        decoder = decoder_of(recompute=choice)  # type: ignore[arg-type]
        with torch.autocast("cpu", torch.bfloat16):
            errors.append(float((step(decoder)[1] - exact).norm() / exact.norm()))
    assert errors[1] <= 1.1 * errors[0] < 0.05


def computed_again(recompute: Recompute) -> dict[str, int]:
    """How often the backward pass runs each forward operator."""

    class Operators(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names = Counter[str]()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names[func.overloadpacket.__name__] += 1
            return func(*args, **(kwargs or {}))

    decoder = decoder_of(recompute=recompute)
    loss = decoder.nll_sum(TOKENS, TARGETS)
    with Operators() as operators:
        loss.backward()
    return dict(operators.names)


def test_full_repeats_every_product_and_selective_none() -> None:
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    none, selective, full = map(computed_again, ("none", "selective", "full"))
    assert full[attention] == PLAN.depth
    assert attention not in selective
    assert attention not in none
    # Four products of attention and two of SwiGLU: nobody needs what its third gives, recomputing stops before.
    assert full["mm"] == none["mm"] + 6 * PLAN.depth
    assert selective["mm"] == none["mm"]
    assert selective["silu"] == full["silu"] == PLAN.depth
    assert "silu" not in none


def test_keys_of_the_state_are_the_same_and_a_copy_runs_alone() -> None:
    plain, changed = decoder_of(), decoder_of(compile="sublayers", recompute="full")
    assert list(changed.state_dict()) == list(plain.state_dict())
    twin = copy.deepcopy(decoder_of(recompute="full"))
    with torch.no_grad():
        twin.embedding.weight.zero_()
    assert step(twin)[0] != step(decoder_of(recompute="full"))[0]


def test_the_options_reach_the_decoder() -> None:
    model = LanguageModel(vocab_size=37, num_layers=4, width=32, num_heads=4, recompute="full")
    model.configure_model()
    visit, called = model.decoder.visit, list[Visit]()

    def counted(x: Tensor, which: Visit, ctx: Context) -> Tensor:
        called.append(which)
        return visit(x, which, ctx)

    model.decoder.visit = counted  # type: ignore[method-assign]
    model.decoder.nll_sum(TOKENS, TARGETS).backward()
    assert called == [*PLAN.visits, *reversed(PLAN.visits)]


@pytest.mark.slow
def test_eighteen_plans_in_training_and_evaluation_need_two_graphs_per_kind_of_sublayer() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, compiled = decoder_of(), decoder_of(compile="sublayers")
    with torch._dynamo.config.patch(error_on_recompile=False, fail_on_recompile_limit_hit=True):
        for plan in EIGHTEEN:
            for decoder in (plain, compiled):
                decoder.train()
            expected, gradients = step(plain, plan)
            loss, same = step(compiled, plan)
            torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
            assert (same - gradients).norm() < 1e-5 * gradients.norm()
            for decoder in (plain, compiled):
                decoder.eval()
            nll = compiled.nll(TOKENS, TARGETS, plan)
            torch.testing.assert_close(nll, plain.nll(TOKENS, TARGETS, plan), rtol=1e-5, atol=1e-5)
    counted = torch._dynamo.utils.counters
    assert len(EIGHTEEN) == 18
    assert counted["stats"]["unique_graphs"] <= 4
    assert not counted["graph_break"]


@pytest.mark.slow
def test_depth_and_banks_add_no_graph() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    step(decoder_of(make_plan([1] * 12), compile="sublayers"))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_whole_compiled_equals_eager_and_is_for_one_plan(recompute: Recompute) -> None:
    torch._dynamo.reset()
    plan = make_plan([2, 1])  # compiling takes long in proportion to the visits
    expected, gradients = step(decoder_of(plan))
    compiled = decoder_of(plan, "whole", recompute)
    loss, same = step(compiled)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    assert (same - gradients).norm() < 1e-5 * gradients.norm()
    observed = []
    compiled.nll_sum(TOKENS, TARGETS, observe=lambda visit, before, after: observed.append(visit))
    assert observed == list(plan.visits)
    with pytest.raises(InputError, match=r"compile whole is for the one plan 2-1, got 1-1"):
        compiled(TOKENS, make_plan([1, 1]))


def test_the_whole_refuses_equal_operands_whose_passes_inject_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    compiled = decoder_of(make_plan([2, 1]), "whole", injection="add")
    with pytest.raises(InputError, match=r"for the one plan 2-1, got \(0-0-1\)"):
        compiled(TOKENS, make_plan([Segment((0, 0, 1))]))


@pytest.mark.slow
@pytest.mark.parametrize("compile", ["sublayers", "whole"])
def test_a_compiled_decoder_generates_without_compiling_anew(compile: Compile) -> None:
    torch._dynamo.reset()
    plan = make_plan([2, 1])
    compiled = decoder_of(plan, compile)
    step(compiled)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    prompts = [[1, 2, 3], [4]]
    assert generate(compiled, prompts, LENGTH - 4) == generate(decoder_of(plan), prompts, LENGTH - 4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
