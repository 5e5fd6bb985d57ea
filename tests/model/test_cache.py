"""Decoding with a cache computes what the full pass does, one slot per visit, whatever the padding."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from oracles import LENGTH, PLANS, POSITIONS, TOKENS, VOCAB, tiny_decoder
from torch import Tensor

from ilr.model.cache import KVCache
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, Segment, make_plan

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
every_scheme = pytest.mark.parametrize("positions", POSITIONS)
CHUNKS = {"token by token": [1] * LENGTH, "in chunks": [5, 7, 1, 7], "whole": [LENGTH]}
assert {sum(chunks) for chunks in CHUNKS.values()} == {LENGTH}


@torch.no_grad()
def decoded(decoder: Decoder, tokens: Tensor, chunks: list[int], **options: Any) -> tuple[Tensor, KVCache]:
    cache = KVCache.for_plan(decoder.config, decoder.plan, batch=len(tokens), **options)
    ends = [sum(chunks[:number]) for number in range(len(chunks) + 1)]
    return torch.cat([decoder(tokens[:, a:b], cache=cache) for a, b in pairwise(ends)], dim=1), cache


# From a start of 0.2 states grow until float32 rounding alone passes 1e-5; 0.1 is five times the default.
@pytest.mark.parametrize(
    ("dtype", "init_std", "tolerance"), [(torch.float64, 0.2, 1e-12), (torch.float32, 0.1, 1e-5)]
)
@every_scheme
@every_plan
def test_cached_decoding_equals_the_full_pass_at_every_position(
    plan: Plan, positions: str, dtype: torch.dtype, init_std: float, tolerance: float
) -> None:
    decoder = tiny_decoder(plan, positions=positions, init_std=init_std).to(dtype)
    expected = decoder(TOKENS)
    for chunks in CHUNKS.values():
        actual, cache = decoded(decoder, TOKENS, chunks)
        torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)
        assert (cache.length, len(cache.slots)) == (LENGTH, plan.num_slots)
        assert {slot.length for slot in cache.slots} == {LENGTH}


def test_slots_are_the_visits_with_attention() -> None:
    plan = make_plan([Segment((0,), 3), Segment((1,), 2, "ffn"), Segment((1,), 2, "attention")])
    cache = KVCache.for_plan(tiny_decoder(plan).config, plan, batch=1)
    assert len(cache.slots) == 3 + 2


def test_cached_decoding_with_injection_equals_the_full_pass() -> None:
    decoder = tiny_decoder(make_plan([3, 1, 2]), injection="add")
    actual, _ = decoded(decoder, TOKENS, CHUNKS["in chunks"])
    torch.testing.assert_close(actual, decoder(TOKENS), rtol=0, atol=1e-12)


def test_one_slot_for_all_visits_of_a_layer_would_give_other_logits() -> None:
    decoder = tiny_decoder(make_plan([3, 1]))
    cache = KVCache.for_plan(decoder.config, decoder.plan, batch=2)
    cache.slots[1:3] = [cache.slots[0]] * 2
    decoder(TOKENS[:, :1], cache=cache)
    second = decoder(TOKENS[:, 1:2], cache=cache)
    assert (second - decoder(TOKENS[:, :2])[:, 1:]).abs().max() > 1e-3


@every_scheme
def test_a_text_that_outgrows_the_capacity_is_decoded_all_the_same(positions: str) -> None:
    decoder = tiny_decoder(make_plan([2, 1]), positions=positions)
    actual, cache = decoded(decoder, TOKENS, CHUNKS["in chunks"], capacity=3)
    torch.testing.assert_close(actual, decoder(TOKENS), rtol=0, atol=1e-12)
    assert {slot.capacity for slot in cache.slots} == {24}
    assert (
        cache.num_bytes() == 2 * 3 * (2 * 2 * 24 * 8) * 8
    )  # keys and values of 3 slots, (B, K, capacity, E)


def test_a_cache_follows_another_plan_over_the_same_weights() -> None:
    decoder, other = tiny_decoder(make_plan([1, 1])), make_plan([2, 2])
    cache = KVCache.for_plan(decoder.config, other, batch=2)
    parts = [decoder(TOKENS[:, a:b], other, cache=cache) for a, b in ((0, 9), (9, LENGTH))]
    torch.testing.assert_close(torch.cat(parts, 1), decoder(TOKENS, other), rtol=0, atol=1e-12)


def test_caches_keep_nothing_on_the_model_so_that_two_texts_do_not_meet() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    first, _ = decoded(decoder, TOKENS, CHUNKS["in chunks"])
    decoded(decoder, (TOKENS + 1) % VOCAB, CHUNKS["token by token"])
    again, _ = decoded(decoder, TOKENS, CHUNKS["in chunks"])
    assert torch.equal(first, again)


def test_a_cache_of_another_plan_batch_or_config_is_refused_before_anything_is_stored() -> None:
    plan = make_plan([2, 1])
    decoder = tiny_decoder(plan)
    cases = [
        (KVCache.for_plan(decoder.config, make_plan([1, 2]), 2), r"made under the plan 1-2, not 2-1"),
        (KVCache.for_plan(decoder.config, plan, 3), "made for a batch of 3, got 2"),
        (KVCache.for_plan(tiny_decoder(plan, positions="none").config, plan, 2), "decoder of another config"),
    ]
    for cache, words in cases:
        with pytest.raises(ValueError, match=words):
            decoder(TOKENS, cache=cache)
        assert (cache.length, cache.num_bytes()) == (0, 0)


def test_a_policy_that_shares_slots_between_visits_is_refused() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    with pytest.raises(ValueError, match=r"cache policy 'last': only 'own', a slot per visit"):
        KVCache.for_plan(decoder.config, decoder.plan, 2, policy="last")  # type: ignore[arg-type]
    own = KVCache.for_plan(decoder.config, decoder.plan, 2, policy="own")
    torch.testing.assert_close(decoder(TOKENS, cache=own), decoder(TOKENS), rtol=0, atol=1e-12)


def test_plans_of_equal_operands_may_use_one_cache() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    cache = KVCache.for_plan(decoder.config, make_plan([Segment((0, 0, 1))]), batch=2)
    torch.testing.assert_close(decoder(TOKENS, cache=cache), decoder(TOKENS), rtol=0, atol=1e-12)


def test_with_injection_a_plan_of_other_passes_is_refused_although_its_operands_are_equal() -> None:
    plan, other = make_plan([2, 1]), make_plan([Segment((0, 0, 1))])
    decoder = tiny_decoder(plan, injection="add")
    cache = KVCache.for_plan(decoder.config, plan, batch=2)
    decoder(TOKENS[:, :5], cache=cache)
    with pytest.raises(ValueError, match=r"made under the plan 2-1, not \(0-0-1\)"):
        decoder(TOKENS[:, 5:], other, cache=cache)


def test_a_pass_that_is_broken_off_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    _, cache = decoded(decoder, TOKENS[:, :5], [5])

    def broken(x: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decoder.ffn[1], "forward", broken)
        with pytest.raises(KeyboardInterrupt):
            decoder(TOKENS[:, 5:9], cache=cache)
    torch.testing.assert_close(
        decoder(TOKENS[:, 5:], cache=cache), decoder(TOKENS)[:, 5:], rtol=0, atol=1e-12
    )


def test_a_capacity_of_nothing_and_padding_of_another_batch_are_refused() -> None:
    decoder = tiny_decoder(make_plan([2, 1]))
    with pytest.raises(ValueError, match="capacity of at least 1 token, got 0"):
        KVCache.for_plan(decoder.config, decoder.plan, 2, capacity=0)
    with pytest.raises(ValueError, match=r"one count for each of 2 rows, got \[1\]"):
        decoder(TOKENS, padding=torch.tensor([1]))


SHORT, LONG = 3, 9
PADDING = torch.tensor([LONG - SHORT, 0])


def padded() -> Tensor:
    tokens = TOKENS[:, :LONG].clone()
    tokens[0, : LONG - SHORT] = 1
    return tokens


@every_scheme
@every_plan
def test_left_padded_rows_equal_each_row_alone(plan: Plan, positions: str) -> None:
    decoder = tiny_decoder(plan, positions=positions)
    tokens = padded()
    alone = [decoder(tokens[:1, -SHORT:])[0], decoder(tokens[1:])[0]]
    whole = decoder(tokens, padding=PADDING)
    cached = [
        decoded(decoder, tokens, chunks, padding=PADDING)[0] for chunks in ([LONG], [4, 3, 1, 1], [1] * LONG)
    ]
    for logits in (whole, *cached):
        assert logits.isfinite().all()
        torch.testing.assert_close(logits[0, -SHORT:], alone[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(logits[1], alone[1], rtol=0, atol=1e-12)


@every_scheme
def test_what_stands_in_the_padding_changes_nothing_and_gets_no_gradient(positions: str) -> None:
    decoder = tiny_decoder(make_plan([2, 1]), positions=positions)
    tokens, other = padded(), padded()
    other[0, : LONG - SHORT] = 5
    assert torch.equal(
        decoder(tokens, padding=PADDING)[0, -SHORT:], decoder(other, padding=PADDING)[0, -SHORT:]
    )
    decoder(tokens[:1], padding=PADDING[:1])[0, -SHORT:].sum().backward()
    assert all(weight.grad.isfinite().all() for weight in decoder.parameters())


@every_scheme
def test_learned_positions_end_with_the_cache_as_without(positions: str) -> None:
    decoder = tiny_decoder(make_plan([1]), positions=positions)
    _, cache = decoded(decoder, TOKENS, [LENGTH])
    if positions == "learned":
        with pytest.raises(ValueError, match=f"context of {LENGTH} tokens, got a text of {LENGTH + 1}"):
            decoder(TOKENS[:, :1], cache=cache)
        assert cache.length == LENGTH
    else:
        longer = torch.cat((TOKENS, TOKENS[:, :1]), 1)
        last = decoder(TOKENS[:, :1], cache=cache)
        torch.testing.assert_close(last, decoder(longer)[:, -1:], rtol=0, atol=1e-12)
