"""The compiled pass of one token: what it computes, how many graphs it needs, and when it refuses."""

from functools import cache

import pytest
import torch
from oracles import LENGTH, PLANS, POSITIONS, tiny_decoder

from ilr.errors import InputError
from ilr.generation import compiled
from ilr.generation.decode import Predictor, generate
from ilr.generation.sampling import Sampling
from ilr.model.cache import KVCache
from ilr.model.compilation import execute
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, make_plan

PROMPTS = [[5, 1, 2], [7, 7, 3, 9, 11, 4, 8, 20, 6], [30]]
GREEDY = Sampling(temperature=0)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that would be compiled, as it is written."""
    monkeypatch.setattr(compiled, "_compiled", lambda plan, device_type: compiled.run)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("stride", [4, 64])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
def test_logits_of_every_step_are_those_of_running_the_window_again(
    plan: Plan, positions: str, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "STRIDE", stride)
    decoder = tiny_decoder(plan, positions=positions)
    rows = [list(prompt) for prompt in PROMPTS]
    step, again = Predictor(decoder, plan, True, compile=True), Predictor(decoder, plan, use_cache=False)
    # Past the context, where the window moves, unless positions end there.
    for _ in range(LENGTH - len(PROMPTS[1]) if positions == "learned" else 2 * LENGTH):
        expected = again.next_logits(rows)
        torch.testing.assert_close(step.next_logits(rows), expected, rtol=0, atol=1e-12)
        for row, token in zip(rows, expected.argmax(-1).tolist(), strict=True):
            row.append(token)


@pytest.mark.usefixtures("uncompiled")
@torch.inference_mode()
def test_a_step_may_follow_and_precede_passes_of_the_decoder_itself() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    cache = KVCache.for_plan(decoder.config, decoder.plan, 1)
    parts = [decoder(tokens[:, :3], cache=cache)[:, -1]]
    step = compiled.CompiledStep(decoder, decoder.plan, cache)
    parts += [step(tokens[:, 3:4]), decoder(tokens[:, 4:6], cache=cache)[:, -1], step(tokens[:, 6:])]
    expected = decoder(tokens)[0, [2, 3, 5, 6]]
    torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("uncompiled")
@torch.inference_mode()
def test_a_step_outgrows_the_capacity_of_its_cache() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5]])
    cache = KVCache.for_plan(decoder.config, decoder.plan, 1, capacity=2)
    decoder(tokens[:, :2], cache=cache)
    step = compiled.CompiledStep(decoder, decoder.plan, cache)
    found = torch.cat([step(tokens[:, at : at + 1]) for at in range(2, 9)])
    torch.testing.assert_close(found, decoder(tokens)[0, 2:], rtol=0, atol=1e-12)
    assert {slot.capacity for slot in cache.slots} == {16}


@pytest.mark.usefixtures("uncompiled")
def test_a_step_refuses_another_plans_cache_and_positions_that_do_not_exist() -> None:
    decoder = tiny_decoder(make_plan([2, 1]), positions="learned", context=4)
    cache = KVCache.for_plan(decoder.config, make_plan([1, 2]), 1)
    with pytest.raises(InputError, match="made under the plan 1-2, not 2-1"):
        compiled.CompiledStep(decoder, decoder.plan, cache)
    cache = KVCache.for_plan(decoder.config, decoder.plan, 1)
    with torch.inference_mode():
        decoder(torch.tensor([[1, 2, 3, 4]]), cache=cache)
        with pytest.raises(InputError, match="end at the context of 4 tokens, got a text of 5"):
            compiled.CompiledStep(decoder, decoder.plan, cache)(torch.tensor([[5]]))


def test_compiling_without_the_cache_is_refused() -> None:
    with pytest.raises(InputError, match="compile is for the pass with the cache"):
        generate(tiny_decoder(make_plan([2, 1])), PROMPTS, 3, use_cache=False, compile=True)


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rope", "alibi"])
def test_compiled_one_graph_serves_all_lengths_and_texts_equal_eager_ones(positions: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plan = make_plan([2, 1])
    decoder = tiny_decoder(plan, positions=positions, context=160).float()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        texts = generate(decoder, PROMPTS, 200, sampling=GREEDY, compile=True)
    assert texts == generate(decoder, PROMPTS, 200, sampling=GREEDY)
    counted = torch._dynamo.utils.counters
    # With left padding, and without it after the window has moved.
    assert counted["stats"]["unique_graphs"] <= 2
    assert not counted["graph_break"]


@pytest.mark.slow
def test_compiled_steps_serve_several_batches_and_a_decoder_whose_sublayers_are_compiled() -> None:
    torch._dynamo.reset()
    decoder = tiny_decoder(make_plan([2, 1])).float()
    execute(decoder, compile="sublayers")
    plain = tiny_decoder(make_plan([2, 1])).float()
    for prompts in ([[5, 1, 2]], [[7, 7], [3, 9], [11, 4]], [[8, 20], [6, 1]]):
        expected = logits(plain, prompts, compile=False)
        torch.testing.assert_close(logits(decoder, prompts, compile=True), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_more_plans_than_torch_compiles_for_one_function_are_all_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile = torch.compile
    # Traced, which is what is counted, but not made into code, which takes long.
    monkeypatch.setattr(torch, "compile", lambda function, options: compile(function, backend="eager"))
    monkeypatch.setattr(compiled, "_compiled", cache(compiled._compiled.__wrapped__))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    decoder = tiny_decoder(make_plan([1, 1])).float()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for times in range(1, 13):
            plan = make_plan([times, 1])
            texts = generate(decoder, [[1, 2]], 4, sampling=GREEDY, plan=plan, compile=True)
            assert texts == generate(decoder, [[1, 2]], 4, sampling=GREEDY, plan=plan)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 12


def logits(decoder: Decoder, prompts: list[list[int]], compile: bool) -> torch.Tensor:
    """Logits (steps, B, V) of a text that does not depend on them."""
    rows, predictor = [list(prompt) for prompt in prompts], Predictor(decoder, decoder.plan, True, compile)
    found = []
    for token in range(10):
        found.append(predictor.next_logits(rows))
        for row in rows:
            row.append(token)
    return torch.stack(found)


def test_without_a_compiler_one_message_says_what_is_missing() -> None:
    import torch._inductor.config

    decoder = tiny_decoder(make_plan([2, 1]))
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/c++")}):
        with pytest.raises(InputError, match=r"compile needs a C\+\+ compiler.*/nowhere"):
            generate(decoder, PROMPTS, 3, compile=True)
        with pytest.raises(InputError, match=r"compile needs a C\+\+ compiler.*/nowhere"):
            execute(decoder, compile="sublayers")
