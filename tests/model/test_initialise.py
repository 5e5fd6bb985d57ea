"""Weights start equal wherever key and shape are equal, from a normal of the width that the config says."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from oracles import PLANS, POSITIONS, TOKENS, tiny_config

from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.initialise import generator_for, residual_divisor
from ilr.model.layers import make_dropout
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.schedules import block

FOUR = [plan for plan in PLANS if plan.num_layers == 4]


def state(plan: Plan, seed: int = 0, **changes: Any) -> dict[str, torch.Tensor]:
    return Decoder(tiny_config(plan, **changes), plan, init_seed=seed).state_dict()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
def test_equal_keys_start_equal_whatever_the_schedule_sharing_layers_or_context(plan: Plan) -> None:
    reference = state(make_plan([1] * 6), context=50)
    other = state(plan)
    assert set(other) <= set(reference)
    assert all(torch.equal(weight, reference[key]) for key, weight in other.items())


def test_the_start_follows_neither_the_global_generator_nor_the_order_of_construction() -> None:
    plan = make_plan([1, 1])
    torch.manual_seed(1)
    first = state(plan)
    torch.manual_seed(2)
    torch.rand(5)
    second = state(plan)
    assert all(torch.equal(weight, second[key]) for key, weight in first.items())


def test_keys_and_seeds_draw_apart() -> None:
    plan = make_plan([1, 1])
    first, second = state(plan, seed=0), state(plan, seed=1)
    matrices = [key for key, weight in first.items() if weight.dim() > 1]
    assert not any(torch.equal(first[key], second[key]) for key in matrices)
    assert not torch.equal(first["attention.0.query.weight"], first["attention.1.query.weight"])
    assert not torch.equal(first["attention.0.query.weight"], first["attention.0.output.weight"])


def test_matrices_have_mean_zero_and_the_default_deviation_and_norms_are_one() -> None:
    config = DecoderConfig(vocab_size=512, width=128, num_layers=2, positions="learned", tie_embeddings=False)
    decoder = Decoder(config, make_plan([1, 1]))
    for key, weight in decoder.state_dict().items():
        if weight.dim() == 1:
            assert torch.equal(weight, torch.ones_like(weight)), key
            continue
        # Four standard errors of the mean and of the deviation of this many normal draws.
        assert abs(weight.mean().item()) < 4 * 0.02 / weight.numel() ** 0.5, key
        assert abs(weight.std().item() - 0.02) < 4 * 0.02 / (2 * weight.numel()) ** 0.5, key


def test_init_std_scales_every_matrix() -> None:
    plan = make_plan([2, 1])
    narrow, wide = state(plan, init_std=0.02), state(plan, init_std=0.04)
    for key, weight in narrow.items():
        torch.testing.assert_close(wide[key], weight if weight.dim() == 1 else 2 * weight, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("rule", "plan", "divisor"),
    [
        ("plain", make_plan([3, 2, 1, 1]), 1.0),
        ("layers", make_plan([3, 2, 1, 1]), math.sqrt(8)),
        ("layers", make_plan(block(2, 5)), math.sqrt(4)),
        ("depth", make_plan([1, 1, 1, 1]), math.sqrt(8)),
        ("depth", make_plan([3, 2, 1, 1]), math.sqrt(14)),
        ("depth", make_plan([3, 2, 1, 1], sharing="all"), math.sqrt(14)),
        ("depth", make_plan([Segment((0,), 3, "attention"), Segment((0, 1))]), math.sqrt(3 + 4)),
    ],
)
def test_only_residual_projections_are_divided_and_by_what_the_rule_says(
    rule: Any, plan: Plan, divisor: float
) -> None:
    assert residual_divisor(tiny_config(plan, residual_init=rule), plan) == pytest.approx(divisor, rel=1e-15)
    plain, scaled = state(plan), state(plan, residual_init=rule)
    for key, weight in plain.items():
        to_residual = key.endswith(("output.weight", "down.weight"))
        assert torch.equal(scaled[key], weight / divisor if to_residual else weight), key


def test_all_residual_projections_of_both_kinds_are_divided() -> None:
    plan = make_plan([1, 1])
    for kind in ("swiglu", "gelu"):
        plain, scaled = state(plan, ffn=kind), state(plan, ffn=kind, residual_init="depth")
        assert {key for key in plain if not torch.equal(plain[key], scaled[key])} == {
            f"{bank}.{number}.{name}.weight"
            for number in (0, 1)
            for bank, name in (("attention", "output"), ("ffn", "down"))
        }


def test_a_generator_is_a_function_of_its_parts() -> None:
    def first(*parts: object) -> float:
        return torch.rand(1, generator=generator_for(*parts), dtype=torch.float64).item()

    assert first(3, "a") == first(3, "a")
    assert len({first(3, "a"), first(4, "a"), first(3, "b"), first("3a"), first("3", "a", "")}) == 5


def assert_same(state: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert list(state) == list(expected)
    for key, weight in state.items():
        assert torch.equal(weight.cpu(), expected[key].to(weight.dtype)), key


@pytest.fixture
def restored_default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


EVERYTHING: dict[str, Any] = {
    "positions": "learned",
    "embedding_width": 8,
    "tie_embeddings": False,
    "residual_init": "depth",
}


@pytest.mark.usefixtures("restored_default_dtype")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_start_equal_whatever_the_default_type(dtype: torch.dtype) -> None:
    """Right numbers, point 11: drawn in float32, then rounded to the type that they are kept in."""
    plan = make_plan([2, 1])
    expected = state(plan, **EVERYTHING)
    torch.set_default_dtype(dtype)
    started = state(plan, **EVERYTHING)
    assert {weight.dtype for weight in started.values()} == {dtype}
    assert_same(started, expected)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "16-true", "bf16-mixed"])
@pytest.mark.parametrize("place", ["init_module", "configure_model"])
def test_weights_start_equal_under_every_precision_of_the_trainer(precision: Any, place: str) -> None:
    """Right numbers, point 11: as Lightning builds modules."""
    plan = make_plan([2, 1])
    trainer = Trainer(accelerator="cpu", precision=precision, logger=False, enable_checkpointing=False)
    if place == "init_module":
        with trainer.init_module():
            started = state(plan)
    else:
        strategy = trainer.strategy
        with strategy.tensor_init_context(), strategy.precision_plugin.module_init_context():
            started = state(plan)
    assert_same(started, state(plan))


def test_weights_start_equal_where_empty_memory_is_asked_for() -> None:
    """Right numbers, point 11: Lightning's empty_init switches off `torch.nn.init`, not the decoder's own draw."""
    plan = make_plan([2, 1])
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    with trainer.init_module(empty_init=True):
        started = state(plan, **EVERYTHING)
    assert_same(started, state(plan, **EVERYTHING))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_decoder_of_the_meta_device_starts_and_computes_as_any_once_it_has_memory(positions: str) -> None:
    """Right numbers, point 11: nothing that is no weight stays behind on the other device."""
    plan = make_plan([2, 1])
    config = tiny_config(plan, positions=positions)
    expected = Decoder(config, plan, init_seed=3)
    with torch.device("meta"):
        decoder = Decoder(config, plan, init_seed=3)
    assert all(weight.is_meta for weight in decoder.parameters())
    decoder.to_empty(device="cpu").reset_parameters()
    assert_same(decoder.state_dict(), expected.state_dict())
    with torch.no_grad():
        assert torch.equal(decoder(TOKENS), expected(TOKENS))


@pytest.mark.usefixtures("restored_default_dtype")
@pytest.mark.parametrize("positions", POSITIONS)
def test_logits_and_gradients_do_not_depend_on_the_default_type(positions: str) -> None:
    """Right numbers, point 11: neither tables of positions, masks, norms nor dropout follow the default."""
    plan = make_plan([2, 1])
    config = tiny_config(plan, positions=positions, dropout=0.25, num_heads=8)
    weights = Decoder(config, plan).state_dict()
    results = []
    for default in (torch.float32, torch.float64, torch.bfloat16):
        torch.set_default_dtype(default)
        decoder = Decoder(config, plan).to(torch.float32)
        decoder.load_state_dict(weights)
        torch.manual_seed(5)
        loss = decoder.nll_sum(TOKENS, TOKENS.roll(-1, 1))
        loss.backward()
        padded = decoder.eval()(TOKENS, padding=torch.tensor([0, 3]))
        gradients = [weight.grad for weight in decoder.parameters() if weight.grad is not None]
        results.append([loss.detach(), padded.detach(), *gradients])
    for result in results[1:]:
        for one, other in zip(result, results[0], strict=True):
            assert one.dtype == torch.float32
            assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_seeded_dropout_drops_the_same_features_in_every_type(dtype: torch.dtype) -> None:
    """Right numbers, point 11: arms of other precisions drop alike."""
    kept = []
    for kind in (torch.float32, dtype):
        torch.manual_seed(3)
        kept.append(
            make_dropout(tiny_config(make_plan([1]), dropout=0.3))(torch.ones(3, 5, 7, dtype=kind)) != 0
        )
    assert torch.equal(*kept)
