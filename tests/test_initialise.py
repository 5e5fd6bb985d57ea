"""Weights start equal wherever key and shape are equal, from a normal of the width that the config says."""

import math
from typing import Any

import pytest
import torch
from oracles import PLANS, tiny_config

from ilr.config import DecoderConfig
from ilr.decoder import Decoder
from ilr.initialise import generator_for, residual_divisor
from ilr.plan import Plan, Segment, make_plan
from ilr.schedules import block

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
