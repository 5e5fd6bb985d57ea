"""Right numbers, point 2: clipping, logged norm and window correction see true gradients in every precision."""

import math
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from training_cases import Spy, tiny_model, tiny_text, train

from ilr.errors import InputError
from ilr.model.metrics import IGNORED
from ilr.training.module import LanguageModel

STEPS = 8


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def float16(initial_scale: float = 2.0**16) -> MixedPrecision:
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=initial_scale))


class Norms(L.Callback):
    """The norm that the module kept, step by step."""

    def __init__(self) -> None:
        self.kept: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
        self.kept.append(float(module.window.gradient_norm))


class Fused(LanguageModel):
    """With a fused optimiser whatever the precision."""

    def configure_optimizers(self) -> Any:
        chosen: Any = super().configure_optimizers()
        chosen["optimizer"] = torch.optim.AdamW(self.parameters(), lr=3e-3, fused=True)
        chosen["lr_scheduler"]["scheduler"] = torch.optim.lr_scheduler.ConstantLR(chosen["optimizer"], 1.0)
        return chosen


def trained(
    cache: str, model: LanguageModel | None = None, **options: Any
) -> tuple[LanguageModel, list[float]]:
    model, norms = model or tiny_model(), Norms()
    train(model, tiny_text(cache), STEPS, callbacks=[norms], **options)
    return model, norms.kept


def loss_of(model: LanguageModel) -> float:
    """Of all steps, which shows whether the updates were the same."""
    return float(model.window.nll / model.window.tokens)


@pytest.fixture(scope="module")
def reference(cache: str) -> tuple[LanguageModel, list[float]]:
    return trained(cache)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"plugins": lambda: float16()}, 0.02),
        ({"plugins": lambda: float16(2.0**4)}, 0.02),
        ({"precision": "bf16-mixed"}, 0.05),
        ({"precision": "bf16-true"}, 0.05),
        ({"precision": "32-true"}, 1e-6),
    ],
    ids=["float16", "float16, another scale", "bf16-mixed", "bf16-true", "float32"],
)
def test_the_gradient_norm_of_every_precision_is_that_of_float32(
    cache: str, reference: tuple[LanguageModel, list[float]], options: dict[str, Any], tolerance: float
) -> None:
    """Right numbers, point 2 (field case N1: 92,000 where 1.4 is right)."""
    options = {name: value() if callable(value) else value for name, value in options.items()}
    model, norms = trained(cache, **options)
    assert norms == pytest.approx(reference[1], rel=tolerance)
    assert loss_of(model) == pytest.approx(loss_of(reference[0]), rel=2e-3)


def test_a_fused_optimiser_in_float16_is_clipped_by_true_gradients(cache: str) -> None:
    """Right numbers, point 2: whatever optimiser a derived module makes."""
    sizes = {
        "schedule": [2, 1],
        "warmup_steps": 0,
        "context": 16,
        "width": 16,
        "num_layers": 2,
        "num_heads": 2,
    }
    plain, norms = trained(cache, Fused(**sizes))
    half, half_norms = trained(cache, Fused(**sizes), plugins=float16())
    assert half_norms == pytest.approx(norms, rel=0.02)
    assert loss_of(half) == pytest.approx(loss_of(plain), rel=2e-3)


def test_callbacks_see_true_gradients_in_float16(cache: str) -> None:
    """Right numbers, point 2: also hooks that run before the module's own."""
    spies = [Spy(), Spy()]
    for spy, options in zip(spies, ({}, {"plugins": float16()}), strict=True):
        train(tiny_model(), tiny_text(cache), STEPS, callbacks=[spy], **options)
    assert spies[1].norms == pytest.approx(spies[0].norms, rel=0.02)


def test_the_clipped_update_of_float16_is_that_of_float32(cache: str) -> None:
    """Right numbers, point 2: at a limit that every step exceeds, over accumulated micro-batches half ignored."""

    def run(**options: Any) -> list[torch.Tensor]:
        model, clipped = tiny_model(), []

        class Keep(L.Callback):
            def on_before_zero_grad(self, trainer: Any, module: Any, optimizer: Any) -> None:
                grads = [p.grad.clone() for p in module.parameters() if p.grad is not None]
                clipped.extend([torch.cat([g.flatten() for g in grads])] if grads else [])

        def transfer(batch: dict[str, torch.Tensor], dataloader_idx: int) -> dict[str, torch.Tensor]:
            hidden = (torch.arange(16) < 8) & (batch["blocks"] % 2 == 0)[:, None]
            return {**batch, "targets": batch["targets"].masked_fill(hidden, IGNORED)}

        model.on_before_batch_transfer = transfer  # type: ignore[method-assign]
        train(
            model,
            tiny_text(cache),
            3,
            callbacks=[Keep()],
            accumulate_grad_batches=2,
            gradient_clip_val=0.1,
            **options,
        )
        return clipped

    wide, half = run(), run(plugins=float16())
    assert len(wide) == len(half)
    for one, other in zip(wide, half, strict=True):
        assert float(one.norm()) == pytest.approx(float(other.norm()), rel=0.03)


def test_steps_that_the_scaler_skips_have_no_norm_and_count_as_taken(cache: str) -> None:
    """Right numbers, point 2: a scale far too high overflows; the first updates are left out, data and rate go on."""
    model, norms, spy = tiny_model(), Norms(), Spy()
    healths = []

    class Keep(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *rest: Any) -> None:
            healths.append(module.window.health(scaled=True))

    trainer = train(model, tiny_text(cache), STEPS, callbacks=[norms, spy, Keep()], plugins=float16(2.0**23))
    skipped = round(healths[-1]["health/skipped_steps"] * STEPS)
    assert 0 < skipped < STEPS
    assert "health/gradient_norm" not in healths[0]
    assert all(math.isfinite(norm) for norm in norms.kept)
    assert healths[-1]["health/clipped_steps"] == sum(norm > 1 for norm in norms.kept[skipped:]) / (
        STEPS - skipped
    )
    assert trainer.global_step == STEPS
    assert spy.positions == STEPS * 32
    assert model.window.state_dict()["skipped_steps"] == skipped


@pytest.mark.parametrize("limit", [None, 0, math.inf])
def test_without_a_limit_the_gradient_is_left_as_it_is(cache: str, limit: float | None) -> None:
    """Right numbers, point 2."""
    seen: list[bool] = []

    class Compare(L.Callback):
        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            self.before = [p.grad.clone() for p in module.parameters()]

        def on_before_zero_grad(self, trainer: Any, module: Any, optimizer: Any) -> None:
            if trainer.global_step == 1:  # the gradients of the first step, as the optimiser took them
                pairs = zip(self.before, module.parameters(), strict=True)
                seen.append(all(torch.equal(before, p.grad) for before, p in pairs))

    norms = Norms()
    train(tiny_model(), tiny_text(cache), 2, callbacks=[Compare(), norms], gradient_clip_val=limit)
    assert seen == [True]
    assert all(0 < norm < 100 for norm in norms.kept)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gradient_clip_val": -1.0}, "gradient_clip_val must be at least 0"),
        ({"gradient_clip_val": math.nan}, "gradient_clip_val must be at least 0"),
        ({"gradient_clip_algorithm": "value"}, "gradient_clip_algorithm must be norm, got value"),
        ({"precision": "16-true"}, "16-true keeps AdamW's moments in float16"),
    ],
    ids=["negative", "not a number", "by value", "weights in float16"],
)
def test_what_cannot_train_rightly_is_refused_by_name(
    cache: str, options: dict[str, Any], named: str
) -> None:
    """Right numbers, point 2 (16-true gave a loss of 311 nats and "finished")."""
    with pytest.raises(InputError, match=named):
        train(tiny_model(), tiny_text(cache), 1, **options)
