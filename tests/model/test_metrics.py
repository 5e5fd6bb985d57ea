"""The NLL is that of a wide log-softmax whatever the logits' type; figures follow from it."""

import math

import pytest
import torch

from ilr.model.metrics import IGNORED, bits_per_byte, perplexity, token_nll


def logits_and_targets(scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    logits = scale * torch.randn(2, 128, 1000, dtype=torch.float64, generator=generator)
    return logits, torch.randint(1000, (2, 128), generator=generator)


def written_out(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    wide = logits.double()
    return wide.exp().sum(-1).log() - wide.gather(-1, targets[..., None])[..., 0]


@pytest.mark.parametrize(
    ("dtype", "result", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-5),
        (torch.bfloat16, torch.float32, 1e-5),
        (torch.float16, torch.float32, 1e-5),
    ],
    ids=str,
)
def test_the_nll_of_each_token_is_exact_for_the_logits_given(
    dtype: torch.dtype, result: torch.dtype, tolerance: float
) -> None:
    logits, targets = logits_and_targets()
    logits = logits.to(dtype)
    nll, expected = token_nll(logits, targets), written_out(logits, targets)
    assert nll.dtype == result
    torch.testing.assert_close(nll.double(), expected, rtol=0, atol=tolerance)
    # The bound of field experience: a perplexity within 1e-3 relative of the float64 one on the same logits.
    assert perplexity(nll.mean().item()) == pytest.approx(perplexity(expected.mean().item()), rel=1e-3)


def test_half_logits_of_a_hopeless_model_give_a_finite_perplexity() -> None:
    logits, targets = logits_and_targets(scale=4.0)
    half = logits.half()
    loss = token_nll(half, targets).mean().item()
    assert loss == pytest.approx(written_out(half, targets).mean().item(), rel=1e-6)
    assert math.isfinite(perplexity(loss))


def test_ignored_targets_give_zero_and_leave_the_others_alone() -> None:
    logits, targets = logits_and_targets()
    some = targets.clone()
    some[0, ::2] = IGNORED
    nll = token_nll(logits, some)
    assert (nll[some == IGNORED] == 0).all()
    assert torch.equal(nll[some != IGNORED], token_nll(logits, targets)[some != IGNORED])
    nothing = torch.full_like(targets, IGNORED)
    assert torch.equal(token_nll(logits, nothing), torch.zeros(2, 128, dtype=torch.float64))


def test_perplexity_is_the_exponential_and_infinite_where_that_overflows() -> None:
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1000.0) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_bits_per_byte_of_one_nat_per_byte_is_the_binary_logarithm_of_e() -> None:
    assert bits_per_byte(12.0, 12) == pytest.approx(math.log2(math.e))
    assert bits_per_byte(8 * math.log(2), 1) == pytest.approx(8)
