"""What happens between and around visits: input injection, observers, dropout."""

from dataclasses import replace

import pytest
import torch
from oracles import PLANS, TOKENS, PlainStack, assert_equal, tiny_config, tiny_decoder
from torch import Tensor

from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, Visit, make_plan

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)


@every_plan
def test_injection_adds_the_start_of_the_segment_before_each_later_pass(plan: Plan) -> None:
    decoder = tiny_decoder(plan, injection="add")
    stack = PlainStack.copied(decoder)
    x, number = stack.embed(TOKENS), 0
    for segment in plan.segments:
        start = x
        for repetition in range(segment.times):
            x = x + start if repetition else x
            for _ in segment.layers:
                x = stack.visit(number, x)
                number += 1
    assert number == plan.depth
    assert_equal(decoder(TOKENS), stack.predict(x))
    without = tiny_decoder(plan)(TOKENS)
    repeats = any(segment.times > 1 for segment in plan.segments)
    assert torch.equal(decoder(TOKENS), without) != repeats


@every_plan
def test_observers_see_every_visit_with_the_state_before_and_after_it(plan: Plan) -> None:
    decoder = tiny_decoder(plan)
    stack = PlainStack.copied(decoder)
    seen: list[tuple[Visit, Tensor, Tensor]] = []
    logits = decoder(TOKENS, observe=lambda *step: seen.append(step))
    assert [visit for visit, _, _ in seen] == list(plan.visits)
    for number, (_, before, after) in enumerate(seen):
        assert_equal(after, stack.visit(number, before))
    assert torch.equal(decoder.predict(seen[-1][2]), logits)
    assert torch.equal(decoder.states(TOKENS), seen[-1][2])


def test_dropout_acts_in_training_only_and_on_embeddings_and_both_sublayers() -> None:
    plan = make_plan([2, 1])
    decoder = tiny_decoder(plan, dropout=0.5)
    assert torch.equal(decoder(TOKENS), tiny_decoder(plan)(TOKENS))
    decoder.train()
    dropped = []
    for module in decoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.register_forward_hook(
                lambda _, __, output: dropped.append((output == 0).double().mean().item())
            )
    decoder(TOKENS)
    assert len(dropped) == 1 + 2 * plan.depth
    assert all(0.4 < share < 0.6 for share in dropped)


def test_many_repetitions_stay_finite_at_the_default_start() -> None:
    plan = make_plan([8, 8, 8, 8])
    decoder = Decoder(replace(tiny_config(plan), init_std=0.02), plan)
    seen = []
    decoder(TOKENS, observe=lambda visit, before, after: seen.append(after.pow(2).mean().sqrt()))
    assert len(seen) == 32
    assert torch.stack(seen).isfinite().all()
