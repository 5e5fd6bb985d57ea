"""Cost formulas against published integers, the built model, torch's FLOP counter and what autograd keeps."""

from typing import Any

import pytest
import torch
from oracles import LENGTH, PLANS, TOKENS, VOCAB, tiny_config
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ilr.model.cache import KVCache
from ilr.model.config import DecoderConfig
from ilr.model.cost import Cost, cost, training_flops
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, make_plan

SMALL: dict[str, Any] = {"vocab_size": 1024, "context": 1024, "width": 128, "num_layers": 4, "num_heads": 4}
LARGE: dict[str, Any] = {"vocab_size": 32_000, "context": 1024, "width": 768, "num_layers": 8, "num_heads": 8}

CHOICES: list[dict[str, Any]] = [
    {"positions": "alibi"},
    {"positions": "none"},
    {"positions": "learned"},
    {"ffn": "gelu"},
    {"num_kv_heads": None},
    {"num_kv_heads": 1, "ffn_width": None},
    {"dropout": 0.1},
    {"injection": "add"},
    {"tie_embeddings": False},
    {"embedding_width": 8},
    {"embedding_width": 8, "tie_embeddings": False, "ffn": "gelu", "positions": "learned", "dropout": 0.1},
]
REPEATED, HALVES = make_plan([3, 2, 1, 1], sharing="attention"), PLANS[10]
assert (
    {visit.ffn is None for visit in HALVES.visits}
    == {visit.attention is None for visit in HALVES.visits}
    == {True, False}
)

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
every_plan_and_choice = pytest.mark.parametrize(
    ("plan", "changes"),
    [(plan, {}) for plan in PLANS] + [(plan, changes) for plan in (REPEATED, HALVES) for changes in CHOICES],
    ids=lambda value: value.label if isinstance(value, Plan) else str(value),
)


def paper(sizes: dict[str, Any], schedule: list[int], **changes: Any) -> Cost:
    return cost(DecoderConfig(**(sizes | changes)), make_plan(schedule))


def test_parameters_are_the_integers_of_the_paper() -> None:
    assert paper(SMALL, [1, 1, 1, 1]).parameters == 1_180_800
    assert paper(SMALL, [1, 1, 1, 1], positions="learned").parameters == 1_311_872
    assert paper(LARGE, [1] * 8).parameters == 100_086_528
    assert paper(LARGE, [1] * 8, positions="learned").parameters == 100_872_960
    small = paper(SMALL, [3, 2, 1, 1])
    assert small.parameters == 1_180_800
    assert small.parameters_non_embedding == 4 * 262_400 + 128
    assert (small.parameters_repeated, small.parameters_once) == (2 * 262_400, 2 * 262_400)


def test_macs_per_token_are_the_integers_of_the_paper() -> None:
    assert paper(SMALL, [1, 1, 1, 1]).macs_per_token == 2_228_224
    assert paper(SMALL, [1, 2, 1, 1]).macs_per_token == 2_752_512
    assert paper(SMALL, [4, 2, 1, 1]).macs_per_token == 4_325_376
    assert paper(SMALL, [2, 2, 2, 2]).macs_per_token == 4_325_376
    assert paper(LARGE, [1] * 8).macs_per_token == 112_656_384
    assert paper(LARGE, [1, 2, 1, 1, 1, 1, 1, 1]).macs_per_token == 123_666_432


def test_sharing_saves_parameters_and_no_compute() -> None:
    config = DecoderConfig(**SMALL)
    plans = {name: make_plan([3, 2, 1, 1], sharing=name) for name in ("none", "attention", "ffn", "all")}
    assert len({cost(config, plan).macs_per_token for plan in plans.values()}) == 1
    attention, ffn, rest = 4 * 128**2 + 128, 3 * 128 * 512 + 128, 1024 * 128 + 128
    assert {name: cost(config, plan).parameters - rest for name, plan in plans.items()} == {
        "none": 4 * (attention + ffn),
        "attention": attention + 4 * ffn,
        "ffn": 4 * attention + ffn,
        "all": attention + ffn,
    }


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
def test_a_schedule_adds_compute_and_no_parameters(sharing: str) -> None:
    config = DecoderConfig(**SMALL)
    once = cost(config, make_plan([1, 1, 1, 1], sharing=sharing))
    more = cost(config, make_plan([3, 2, 1, 1], sharing=sharing))
    assert more.parameters == once.parameters
    head = 1024 * 128
    assert 4 * (more.macs_per_token - head) == 7 * (once.macs_per_token - head)
    assert 4 * more.cache_bytes_per_token == 7 * once.cache_bytes_per_token


def test_flops_are_multiples_of_the_macs_and_causal_ones_count_visible_keys() -> None:
    config, plan = DecoderConfig(**SMALL), make_plan([3, 2, 1, 1])
    full = cost(config, plan, 512)
    assert full.context == 512
    assert full.forward_flops_per_token == 2 * full.macs_per_token
    assert full.flops_per_token == 6 * full.macs_per_token
    # A query sees (T + 1) / 2 keys on average, so the attention products shrink by (T + 1) / 2T.
    products = 2 * 7 * 512 * 128
    assert full.causal_macs_per_token == full.macs_per_token - products + products * 513 / 1024
    assert full.causal_flops_per_token == 6 * full.causal_macs_per_token
    assert training_flops(config, plan, 1000) == 1000 * cost(config, plan, 1024).flops_per_token


def test_as_dict_gives_every_figure_by_name() -> None:
    figures = paper(SMALL, [1, 1, 1, 1])
    assert figures.as_dict() == {name: getattr(figures, name) for name in Cost.__dataclass_fields__}


@every_plan_and_choice
def test_parameters_are_those_of_the_built_model(plan: Plan, changes: dict[str, Any]) -> None:
    config = tiny_config(plan, **changes)
    decoder, figures = Decoder(config, plan), cost(config, plan)
    unique = {id(weight): weight.numel() for weight in decoder.parameters()}
    assert figures.parameters == sum(unique.values())
    banks = sum(weight.numel() for bank in (decoder.attention, decoder.ffn) for weight in bank.parameters())
    assert figures.parameters_non_embedding == banks + config.width

    def visited(bank: int, kind: str) -> int:
        return sum(getattr(visit, kind) == bank for visit in plan.visits)

    for name, wanted in (("parameters_once", lambda n: n == 1), ("parameters_repeated", lambda n: n > 1)):
        assert getattr(figures, name) == sum(
            weight.numel()
            for kind in ("attention", "ffn")
            for number, bank in enumerate(getattr(decoder, kind))
            if wanted(visited(number, kind))
            for weight in bank.parameters()
        )


@every_plan_and_choice
def test_forward_flops_are_what_torch_counts(plan: Plan, changes: dict[str, Any]) -> None:
    config = tiny_config(plan, **changes)
    decoder = Decoder(config, plan).eval()
    # The math back end writes attention as matrix products; the fused CPU kernel counts as 0.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        decoder(TOKENS)
    assert counter.get_total_flops() == TOKENS.numel() * cost(config, plan, LENGTH).forward_flops_per_token


@every_plan
def test_training_flops_are_what_torch_counts_forward_and_backward(plan: Plan) -> None:
    config = tiny_config(plan)
    decoder = Decoder(config, plan)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        decoder(TOKENS).sum().backward()
    # Every product has two gradients. The only exceptions would be inputs that need none: there are none.
    assert counter.get_total_flops() == TOKENS.numel() * cost(config, plan, LENGTH).flops_per_token


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 2)], ids=str
)
@every_plan
def test_cache_bytes_are_those_of_the_filled_cache(plan: Plan, dtype: torch.dtype, width: int) -> None:
    config = tiny_config(plan)
    decoder = Decoder(config, plan).to(dtype).eval()
    cache = KVCache.for_plan(config, plan, batch=2, capacity=LENGTH)
    assert cache.num_bytes() == 0
    with torch.no_grad():
        decoder(TOKENS, cache=cache)
    assert (
        cache.num_bytes() == TOKENS.numel() * cost(config, plan, bytes_per_value=width).cache_bytes_per_token
    )


def kept_bytes(decoder: Decoder, tokens: Tensor, targets: Tensor) -> int:
    """Bytes of all distinct tensors that autograd keeps for the backward pass, weights left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in decoder.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = decoder.nll_sum(tokens, targets)
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def common_bytes(config: DecoderConfig) -> int:
    """Bytes kept once for all rows of a batch, which the cost leaves out."""
    per_scheme = {
        "rope": 2 * LENGTH * config.sizes.head * 4,  # a cosine and a sine per feature of a head and position
        "alibi": config.num_heads * LENGTH**2 * 4,  # the bias
        "learned": LENGTH * 8,  # int64 positions of the look-up
        "none": 0,
    }
    head = config.vocab_size * (config.sizes.embedding if config.tie_embeddings else config.width)
    return per_scheme[config.positions] + head * 4  # the head's gradient


@every_plan_and_choice
def test_activation_bytes_are_what_autograd_keeps(plan: Plan, changes: dict[str, Any]) -> None:
    config = tiny_config(plan, **changes)
    decoder = Decoder(config, plan)
    tokens, targets = TOKENS, TOKENS.flip(1).contiguous()
    index_bytes = TOKENS.numel() * 8  # int64 token ids: not activations
    expected = TOKENS.numel() * cost(config, plan, LENGTH).activation_bytes_per_token
    assert kept_bytes(decoder, tokens, targets) - index_bytes - common_bytes(config) == expected


def test_a_cost_without_tokens_or_for_other_layers_is_refused() -> None:
    config = DecoderConfig(vocab_size=VOCAB)
    with pytest.raises(ValueError, match="context must be a whole number of at least 1, got 0"):
        cost(config, make_plan([1, 1, 1, 1]), 0)
    with pytest.raises(ValueError, match="the plan is for 2 layers, the config has 4"):
        cost(config, make_plan([1, 1]))
