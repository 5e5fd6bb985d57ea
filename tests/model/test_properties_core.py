"""Any config under any plan: the decoder against a plain stack, its cost, its cache, and itself.

Sizes are drawn odd, one and unequal on purpose: formulas with a special case are wrong there first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import PlainStack, assert_equal, with_random_norms
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ilr.generation.decode import generate
from ilr.model.cache import KVCache
from ilr.model.compilation import execute
from ilr.model.config import DecoderConfig, PositionScheme
from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.llama import llama_weights, load_llama_weights
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.sharing import Sharing

FEW = settings(derandomize=True, deadline=None, max_examples=20, database=None)
MANY = settings(FEW, max_examples=100)


@dataclass(frozen=True)
class Case:
    """A config, the plan that builds the banks, another that runs over them, and tokens (B, T)."""

    config: DecoderConfig
    plan: Plan
    other: Plan
    tokens: Tensor

    def decoder(self) -> Decoder:
        """In float64 and evaluation mode, its norms drawn around 1."""
        return with_random_norms(Decoder(self.config, self.plan)).double().eval()

    def __repr__(self) -> str:
        return f"Case({self.config}, {self.plan}, other={self.other.label}, tokens={self.tokens.tolist()})"


@st.composite
def banks(draw: st.DrawFn, num_layers: int) -> list[int]:
    """A bank index per layer that leaves none out: each is an earlier one or the next."""
    chosen: list[int] = []
    for _ in range(num_layers):
        chosen.append(draw(st.integers(0, max(chosen, default=-1) + 1)))
    return chosen


@st.composite
def schedules(draw: st.DrawFn, num_layers: int) -> list[Segment] | list[int]:
    """Counts per layer, or a few segments, some of one half of their layers."""
    if draw(st.booleans()):
        return [draw(st.integers(1, 3)) for _ in range(num_layers)]
    layers = st.lists(st.integers(0, num_layers - 1), min_size=1, max_size=3)
    halves = st.sampled_from(["both", "both", "attention", "ffn"])
    segments = st.builds(Segment, layers.map(tuple), st.integers(1, 3), halves)
    return draw(st.lists(segments, min_size=1, max_size=2))


@st.composite
def configs(draw: st.DrawFn, num_layers: int, **fixed: Any) -> DecoderConfig:
    """Any sizes that fit together."""
    positions: PositionScheme = draw(st.sampled_from(["rope", "alibi", "learned", "none"]))
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    head = draw(st.integers(1, 4)) * 2 if positions == "rope" else draw(st.integers(1, 7))
    width = kv_heads * group * head
    drawn: dict[str, Any] = {
        "vocab_size": draw(st.integers(1, 23)),
        "context": draw(st.integers(1, 9)),
        "width": width,
        "num_layers": num_layers,
        "num_heads": kv_heads * group,
        "num_kv_heads": kv_heads,
        "ffn_width": draw(st.none() | st.integers(1, 13)),
        "ffn": draw(st.sampled_from(["swiglu", "gelu"])),
        "positions": positions,
        "rope_theta": draw(st.sampled_from([100.0, 10_000.0])),
        "tie_embeddings": draw(st.booleans()),
        "embedding_width": draw(st.none() | st.just(width) | st.integers(1, 2 * width)),
        "injection": draw(st.sampled_from(["none", "add"])),
        "norm_eps": draw(st.sampled_from([1e-6, 1e-2])),
        "residual_init": draw(st.sampled_from(["plain", "layers", "depth"])),
        "init_std": 0.3,
    }
    return DecoderConfig(**(drawn | fixed))


@st.composite
def cases(draw: st.DrawFn, **fixed: Any) -> Case:
    num_layers = draw(st.integers(1, 3))
    sharing = Sharing(tuple(draw(banks(num_layers))), tuple(draw(banks(num_layers))))
    config = draw(configs(num_layers, **fixed))
    plan, other = (make_plan(draw(schedules(num_layers)), num_layers, sharing) for _ in range(2))
    shape = draw(st.integers(1, 3)), draw(st.integers(1, config.context))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return Case(config, plan, other, torch.randint(config.vocab_size, shape, generator=generator))


def plain_logits(stack: PlainStack, plan: Plan, tokens: Tensor) -> Tensor:
    """What a stack of one copy per visit predicts, with the segments' starts added where the config says so."""
    x, number = stack.embed(tokens), 0
    for segment in plan.segments:
        start = x
        for repetition in range(segment.times):
            x = x + start if repetition and stack.config.injection == "add" else x
            for _ in segment.layers:
                x = stack.visit(number, x)
                number += 1
    return stack.predict(x)


def logits_under_any_plan_are_those_of_a_plain_stack(case: Case, data: st.DataObject) -> None:
    """Right numbers, point 10: odd numbers of heads, odd widths, one token, one id."""
    decoder = case.decoder()
    for plan in (case.plan, case.other):
        expected = plain_logits(PlainStack.copied(decoder, plan), plan, case.tokens)
        assert_equal(decoder(case.tokens, plan), expected)


def gradients_of_any_shared_weight_are_the_sums_over_an_unrolled_twin_s_copies(
    case: Case, data: st.DataObject
) -> None:
    """Right numbers, point 10: also by way of the loss without logits, whatever is recomputed."""
    decoder, targets = case.decoder(), case.tokens.roll(1, 0).flip(1)
    stack = PlainStack.copied(decoder, case.other)
    logits = plain_logits(stack, case.other, case.tokens)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    expected.backward()
    sums = {name: weight.grad for name, weight in stack.ends.items()}
    for visit, copies in zip(case.other.visits, stack.layers, strict=True):
        for kind, bank, copy in (("attention", visit.attention, copies[0]), ("ffn", visit.ffn, copies[1])):
            for key, weight in (copy or {}).items():
                name = f"{kind}.{bank}.{key}"
                assert weight.grad is not None
                sums[name] = weight.grad + sums.get(name, torch.zeros(()))
    for recompute in ("none", "selective", "full"):
        execute(decoder, recompute=recompute)
        decoder.zero_grad()
        loss = decoder.nll_sum(case.tokens, targets, case.other)
        loss.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        for name, weight in decoder.named_parameters():
            if weight.grad is None:
                assert sums.get(name) is None
            else:
                torch.testing.assert_close(weight.grad, sums[name], rtol=1e-10, atol=1e-11)


def logits_with_a_cache_equal_those_without_for_any_cut_and_padding(case: Case, data: st.DataObject) -> None:
    """Right numbers, point 10."""
    decoder, length = case.decoder(), case.tokens.shape[1]
    rows = st.lists(st.integers(0, length - 1), min_size=len(case.tokens), max_size=len(case.tokens))
    padding = data.draw(st.none() | rows.map(torch.tensor))
    cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=3))})
    expected = decoder(case.tokens, case.other, padding=padding)
    capacity = data.draw(st.none() | st.integers(1, length))
    cache = KVCache.for_plan(case.config, case.other, len(case.tokens), capacity, padding)
    chunks = [case.tokens[:, begin:end] for begin, end in pairwise(cuts)]
    cached = torch.cat([decoder(chunk, case.other, cache=cache) for chunk in chunks], dim=1)
    for row in range(len(case.tokens)):
        begin = 0 if padding is None else int(padding[row])
        assert_equal(cached[row, begin:], expected[row, begin:])
        alone = decoder(case.tokens[row : row + 1, begin:], case.other)[0]
        assert_equal(expected[row, begin:], alone)


def no_earlier_logit_changes_by_a_bit_when_a_token_changes(case: Case, data: st.DataObject) -> None:
    """Right numbers, point 10."""
    at = data.draw(st.integers(0, case.tokens.shape[1] - 1))
    changed = case.tokens.clone()
    changed[:, at] = (changed[:, at] + 1) % case.config.vocab_size
    decoder = case.decoder()
    assert torch.equal(decoder(changed, case.other)[:, :at], decoder(case.tokens, case.other)[:, :at])


def the_cost_of_any_plan_counts_the_built_weights_and_the_counted_operations(
    case: Case, data: st.DataObject
) -> None:
    """Right numbers, point 10."""
    decoder, (batch, length) = case.decoder(), case.tokens.shape
    figures = cost(case.config, case.plan, length)
    assert figures.parameters == sum(weight.numel() for weight in decoder.parameters())
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        decoder(case.tokens, case.plan)
    assert counter.get_total_flops() == figures.forward_flops_per_token * batch * length
    cache = KVCache.for_plan(case.config, case.plan, batch, capacity=length)
    decoder(case.tokens, case.plan, cache=cache)
    values = cost(case.config, case.plan, length, bytes_per_value=8).cache_bytes_per_token
    assert cache.num_bytes() == values * batch * length


def generation_writes_the_same_with_and_without_a_cache_past_any_context(
    case: Case, data: st.DataObject
) -> None:
    """Right numbers, point 10: contexts of one and two tokens too."""
    new = data.draw(st.integers(1, 4))
    decoder, prompts = case.decoder(), [row.tolist() for row in case.tokens]
    longest = case.config.context - new + 1 if case.config.positions == "learned" else len(prompts[0])
    prompts = [prompt[: max(1, min(longest, len(prompt) - number))] for number, prompt in enumerate(prompts)]
    if case.config.positions == "learned" and len(prompts[0]) + new - 1 > case.config.context:
        new = case.config.context
        prompts = [prompt[:1] for prompt in prompts]
    written = generate(decoder, prompts, new, plan=case.other)
    assert written == generate(decoder, prompts, new, plan=case.other, use_cache=False)
    assert written == [generate(decoder, [prompt], new, plan=case.other)[0] for prompt in prompts]


def weights_come_back_from_their_state_and_plans_from_their_schedule(case: Case, data: st.DataObject) -> None:
    """Right numbers, point 12."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    decoder = case.decoder().to(dtype)
    other = Decoder(case.config, case.other, init_seed=1).to(dtype).eval()
    other.load_state_dict(decoder.state_dict())
    again = make_plan(case.plan.schedule, case.config.num_layers, case.plan.sharing)
    assert again.operands == case.plan.operands
    assert torch.equal(other(case.tokens, again), decoder(case.tokens))


PROPERTIES = pytest.mark.parametrize(
    "holds",
    [
        logits_under_any_plan_are_those_of_a_plain_stack,
        gradients_of_any_shared_weight_are_the_sums_over_an_unrolled_twin_s_copies,
        logits_with_a_cache_equal_those_without_for_any_cut_and_padding,
        no_earlier_logit_changes_by_a_bit_when_a_token_changes,
        the_cost_of_any_plan_counts_the_built_weights_and_the_counted_operations,
        generation_writes_the_same_with_and_without_a_cache_past_any_context,
        weights_come_back_from_their_state_and_plans_from_their_schedule,
    ],
    ids=lambda holds: holds.__name__,
)


@PROPERTIES
def test_for_any_config_and_plan(holds: Callable[[Case, st.DataObject], None]) -> None:
    FEW(given(cases(), st.data())(holds))()


@pytest.mark.slow
@PROPERTIES
def test_for_many_more_configs_and_plans(holds: Callable[[Case, st.DataObject], None]) -> None:
    MANY(given(cases(), st.data())(holds))()


@FEW
@given(cases(ffn="swiglu", embedding_width=None))
def test_weights_come_back_from_their_llama_names(case: Case) -> None:
    """Right numbers, point 12."""
    decoder, other = case.decoder(), Decoder(case.config, case.plan, init_seed=1).double().eval()
    load_llama_weights(other, llama_weights(decoder))
    assert torch.equal(other(case.tokens), decoder(case.tokens))
