"""The chunked head against cross-entropy over whole logits, in float64, and against torch's own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ilr.model import loss as head
from ilr.model.loss import linear_nll, linear_nll_sum
from ilr.model.metrics import IGNORED, token_nll

BATCH, LENGTH, WIDTH, VOCAB, ROWS = 3, 11, 16, 29, 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(head.ROWS, "cpu", ROWS)  # 33 rows: four whole chunks and one of five


def operands(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, generator=generator).to(dtype)
    weight = torch.randn(VOCAB, WIDTH, dtype=torch.float64, generator=generator).to(dtype)
    targets = torch.randint(VOCAB, (BATCH, LENGTH), generator=generator)
    targets[0, :4] = targets[2, 9] = IGNORED
    return features.requires_grad_(), weight.requires_grad_(), targets


def gradients(loss: Tensor, *of: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, of))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)], ids=str)
def test_loss_and_gradients_equal_those_over_whole_logits(dtype: torch.dtype, tolerance: float) -> None:
    features, weight, targets = operands(dtype)
    whole = token_nll(F.linear(features, weight), targets)
    chunked = linear_nll_sum(features, weight, targets)
    assert chunked.dtype == dtype
    torch.testing.assert_close(chunked, whole.sum(), rtol=tolerance, atol=0)
    torch.testing.assert_close(linear_nll(features, weight, targets), whole, rtol=tolerance, atol=tolerance)
    # Another factor than 1 upstream, as a mean has it.
    for ours, theirs in zip(
        gradients(chunked / 17, features, weight), gradients(whole.sum() / 17, features, weight), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="torch before 2.13")
def test_it_equals_torch_s_own_linear_cross_entropy() -> None:
    features, weight, targets = operands()
    theirs = F.linear_cross_entropy(
        features.flatten(0, 1), weight, targets.flatten(), reduction="sum", ignore_index=IGNORED
    )
    torch.testing.assert_close(linear_nll_sum(features, weight, targets), theirs, rtol=1e-13, atol=0)


def test_under_autocast_products_are_bfloat16_and_the_softmax_float32() -> None:
    features, weight, targets = operands(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_nll_sum(features, weight, targets)
        per_token = linear_nll(features, weight, targets)
    assert loss.dtype == per_token.dtype == torch.float32
    rounded = [part.detach().bfloat16().float().requires_grad_() for part in (features, weight)]
    logits = F.linear(*rounded).bfloat16().float()  # what a bfloat16 product gives
    torch.testing.assert_close(per_token, token_nll(logits, targets), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(loss, token_nll(logits, targets).sum(), rtol=1e-6, atol=0)
    exact = gradients(token_nll(F.linear(*rounded), targets).sum(), *rounded)
    for ours, theirs in zip(gradients(loss, features, weight), exact, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def test_nothing_scored_has_no_loss_and_no_gradient() -> None:
    features, weight, targets = operands()
    loss = linear_nll_sum(features, weight, torch.full_like(targets, IGNORED))
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients(loss, features, weight))


class Largest(TorchDispatchMode):
    """Notes the values of the largest tensor that any operator gives back."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.values = max(self.values, result.numel())
        return result


def test_no_operator_gives_back_more_than_one_chunk_of_logits() -> None:
    features, weight, targets = operands()
    with Largest() as largest:
        linear_nll_sum(features, weight, targets).backward()
        linear_nll(features, weight, targets)
    operand_values = max(features.numel(), weight.numel())
    assert largest.values <= max(ROWS * VOCAB, operand_values) < BATCH * LENGTH * VOCAB
    with Largest() as largest:
        token_nll(F.linear(features, weight), targets)
    assert largest.values == BATCH * LENGTH * VOCAB
