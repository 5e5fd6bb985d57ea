"""Parameter groups and the learning rate, against written-out values."""

import math

import pytest
import torch

from ilr import Decoder, DecoderConfig, make_plan
from ilr.errors import InputError
from ilr.training.optimiser import learning_rate_factor, parameter_groups

CONFIG = DecoderConfig(vocab_size=11, context=8, width=8, num_layers=4, num_heads=2)


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
def test_every_parameter_is_in_exactly_one_group(sharing: str) -> None:
    decoder = Decoder(CONFIG, make_plan([3, 2, 1, 1], 4, sharing))
    grouped = [id(p) for group in parameter_groups(decoder, 0.1, None, False) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in decoder.parameters())


def test_norms_are_decayed_only_on_request_and_repeated_matrices_by_their_own_knob() -> None:
    decoder = Decoder(CONFIG, make_plan([3, 1, 1, 1], 4))
    decay = {
        id(p): group["weight_decay"]
        for group in parameter_groups(decoder, 0.1, 0.02, False)
        for p in group["params"]
    }
    for key, parameter in decoder.named_parameters():
        repeated = key.startswith(("attention.0.", "ffn.0."))
        assert decay[id(parameter)] == (0.0 if parameter.dim() == 1 else 0.02 if repeated else 0.1), key
    with_norms = parameter_groups(decoder, 0.1, None, True)
    assert {group["weight_decay"] for group in with_norms} == {0.1}


def test_a_step_without_gradient_scales_a_shared_weight_once() -> None:
    decoder = Decoder(CONFIG, make_plan([3, 2, 1, 1], 4, "all"))
    before = {key: p.detach().clone() for key, p in decoder.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(decoder, 0.1, None, False), lr=0.5)
    for parameter in decoder.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, parameter in decoder.named_parameters():
        factor = 1 - 0.5 * 0.1 if parameter.dim() > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), before[key] * factor, rtol=1e-7, atol=0)


def test_the_learning_rate_rises_to_its_peak_at_the_last_warm_up_step_and_falls_to_the_floor() -> None:
    factor = learning_rate_factor("cosine", 10, 100, 0.1)
    assert [factor(step - 1) for step in (1, 5, 10)] == [0.1, 0.5, 1.0]
    assert factor(11 - 1) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 90)))
    assert factor(55 - 1) == pytest.approx(0.55)
    assert factor(100 - 1) == pytest.approx(0.1)
    assert factor(200 - 1) == pytest.approx(0.1)


def test_extra_steps_keep_the_paper_s_cosine_above_its_floor() -> None:
    """The paper laid its cosine out over 100 steps more than it took (arXiv 2505.01855)."""
    factor = learning_rate_factor("cosine", 10, 1000 + 100, 0.0)
    assert factor(1000 - 1) == pytest.approx(0.5 * (1 + math.cos(math.pi * 990 / 1090)))


def test_a_constant_schedule_stays_and_does_not_know_its_horizon() -> None:
    short, long = (learning_rate_factor("constant", 4, horizon, 0.1) for horizon in (10, 1000))
    assert [short(step) for step in range(30)] == [long(step) for step in range(30)]
    assert short(25) == 1.0


def test_a_warm_up_as_long_as_training_is_refused() -> None:
    with pytest.raises(InputError, match="shorter than the 10 steps of training, got 10"):
        learning_rate_factor("cosine", 10, 10, 0.0)
