"""The metric of a split: float64 sums of NLL and tokens whatever the batching, precision and ignored targets."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.text import Perplexity

from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.metrics import IGNORED, CorpusNLL, Scores, bits_per_byte, perplexity, token_nll
from ilr.model.plan import make_plan
from ilr.training.module import LanguageModel

VOCABULARY = 50


def logits_of(*shape: int, seed: int = 0, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Random float64 logits (B, T, V), about a fifth of the targets ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(*shape, VOCABULARY, dtype=torch.float64, generator=generator)
    targets = torch.randint(VOCABULARY, shape, generator=generator)
    targets[torch.rand(shape, generator=generator) < 0.2] = IGNORED
    return logits, targets


def scores_of(*batches: tuple[Tensor, Tensor]) -> Scores:
    """Scores of batches of (NLL, targets), all one document."""
    metric = CorpusNLL(1, "validation")
    for nll, targets in batches:
        metric.update(nll, targets, torch.zeros_like(targets))
    return metric.scores()


def oracle(logits: Tensor, targets: Tensor) -> tuple[float, int]:
    """Total NLL and scored tokens by NumPy's float64, token by token."""
    rows, wanted = logits.double().numpy().reshape(-1, logits.shape[-1]), targets.flatten().tolist()
    scored = [(row, target) for row, target in zip(rows, wanted, strict=True) if target != IGNORED]
    return sum(float(np.logaddexp.reduce(row) - row[target]) for row, target in scored), len(scored)


def test_perplexity_weights_tokens_not_batches() -> None:
    # 2 tokens of ln 2 and 30 of ln 8: the mean of perplexities is 5.0, that of batch losses gives 4.0.
    small = torch.full((1, 2), math.log(2)), torch.zeros(1, 2, dtype=torch.int64)
    large = torch.full((1, 30), math.log(8)), torch.zeros(1, 30, dtype=torch.int64)
    figures = scores_of(small, large).figures(num_bytes=1)
    assert figures["perplexity"] == pytest.approx(2**2.875, rel=1e-6)
    assert figures["perplexity"] == pytest.approx(7.336, abs=5e-4)


@pytest.mark.parametrize("batch_size", [1, 3, 16, 64])
def test_any_batching_gives_the_float64_total(batch_size: int) -> None:
    logits, targets = logits_of(64, 17)
    nll = token_nll(logits, targets)
    total, count = oracle(logits, targets)
    parts = zip(nll.split(batch_size), targets.split(batch_size), strict=True)
    scores = scores_of(*parts)
    assert scores.scored_tokens == count
    assert scores.total_nll == pytest.approx(total, rel=1e-12)
    assert scores.loss == pytest.approx(total / count, rel=1e-12)


def test_sums_do_not_drift_over_many_tokens() -> None:
    # A float32 sum of this many equal terms would be wrong in the fourth digit.
    nll = torch.full((1, 1 << 20), 0.1)
    scores = scores_of(*[(nll, torch.zeros_like(nll, dtype=torch.int64))] * 8)
    assert scores.loss == pytest.approx(float(nll[0, 0]), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_figures_are_exact_for_the_logits_that_half_precision_gave(dtype: torch.dtype) -> None:
    logits, targets = logits_of(4, 64)
    logits = logits.to(dtype)
    total, count = oracle(logits, targets)
    assert scores_of((token_nll(logits, targets), targets)).loss == pytest.approx(total / count, rel=1e-6)


def test_under_autocast_the_loss_is_the_float64_one_of_the_same_bfloat16_logits() -> None:
    config = DecoderConfig(vocab_size=VOCABULARY, context=16, width=16, num_layers=1, num_heads=2)
    decoder = Decoder(config, make_plan([2]))
    tokens = torch.randint(VOCABULARY, (3, 17), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = decoder(inputs)
        nll = token_nll(logits, targets)
    assert (logits.dtype, nll.dtype) == (torch.bfloat16, torch.float32)
    total, count = oracle(logits, targets)
    assert scores_of((nll, targets)).loss == pytest.approx(total / count, rel=1e-6)


def test_uneven_batches_agree_with_torchmetrics() -> None:
    reference, batches = Perplexity(ignore_index=IGNORED), []
    for seed, shape in enumerate([(1, 5), (7, 31), (2, 13), (16, 3)]):
        logits, targets = logits_of(*shape, seed=seed)
        logits = logits.float()
        reference.update(logits, targets)
        batches.append((token_nll(logits, targets), targets))
    assert perplexity(scores_of(*batches).loss) == pytest.approx(reference.compute().item(), rel=1e-5)


def test_a_batch_without_a_scored_token_adds_nothing() -> None:
    logits, targets = logits_of(4, 9)
    nll, nothing = token_nll(logits, targets), torch.full_like(targets, IGNORED)
    empty = token_nll(logits, nothing), nothing
    without, together = scores_of((nll, targets)), scores_of(empty, (nll, targets), empty)
    assert together.figures(10) == without.figures(10)
    assert together.scored_tokens == without.scored_tokens


def test_what_stands_at_ignored_targets_does_not_matter() -> None:
    logits, targets = logits_of(4, 9)
    nll = token_nll(logits, targets)
    spoilt = torch.where(targets == IGNORED, math.nan, nll)
    assert scores_of((spoilt, targets)).figures(10) == scores_of((nll, targets)).figures(10)


def test_a_split_with_nothing_scored_is_an_error_that_names_it() -> None:
    metric = CorpusNLL(3, "test")
    nothing = torch.full((2, 5), IGNORED)
    metric.update(token_nll(torch.zeros(2, 5, VOCABULARY), nothing), nothing, torch.full((2, 5), -1))
    with pytest.raises(InputError, match="the test split has no token to score"):
        metric.scores()


def test_a_training_batch_without_a_scored_token_has_loss_zero_and_no_gradient() -> None:
    module = LanguageModel([2, 1], vocab_size=VOCABULARY, context=8, width=16, num_layers=2, num_heads=2)
    module.configure_model()
    nothing = torch.full((2, 8), IGNORED)
    loss = module.training_step({"inputs": torch.zeros(2, 8, dtype=torch.int64), "targets": nothing}, 0)
    loss.backward()
    assert loss.item() == 0.0
    assert all((parameter.grad == 0).all() for parameter in module.parameters())


def test_each_document_has_the_sum_over_its_own_tokens() -> None:
    logits, targets = logits_of(6, 11)
    documents = (torch.arange(66) // 8).view(6, 11)
    documents[targets == IGNORED] = -1
    metric = CorpusNLL(9, "validation")
    for part in (slice(0, 4), slice(4, 6)):
        metric.update(token_nll(logits[part], targets[part]), targets[part], documents[part])
    scores = metric.scores()
    for number in range(9):
        own = documents == number
        total, count = oracle(logits[own], targets[own])
        assert scores.nll[number] == pytest.approx(total, rel=1e-12)
        assert scores.tokens[number] == count


def test_the_papers_perplexity_is_the_exponential_of_the_mean_of_sequence_means() -> None:
    # Sequence means 1 and 4 (one of its tokens is ignored), the third sequence scores nothing: exp(5 / 2).
    nll = torch.tensor([[0.5, 1.5, 1.0], [3.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    targets = torch.tensor([[1, 2, 3], [1, IGNORED, 3], [IGNORED] * 3])
    figures = scores_of((nll[:1], targets[:1]), (nll[1:], targets[1:])).figures(num_bytes=5)
    assert figures["perplexity_sequence_mean"] == pytest.approx(math.exp(2.5), rel=1e-12)
    assert figures["perplexity"] == pytest.approx(math.exp(11 / 5), rel=1e-12)
    assert figures["bits_per_byte"] == pytest.approx(11 / math.log(2) / 5, rel=1e-12)


def test_a_loss_past_the_largest_exponent_gives_infinity_and_stays_a_loss() -> None:
    nll = torch.full((1, 4), 800.0)
    figures = scores_of((nll, torch.zeros(1, 4, dtype=torch.int64))).figures(num_bytes=4)
    assert figures["loss"] == 800.0
    assert figures["perplexity"] == figures["perplexity_sequence_mean"] == math.inf
    assert math.isfinite(figures["bits_per_byte"])


@pytest.mark.parametrize("vocab_size", [256, 512, 65_536])
def test_a_uniform_models_bits_per_byte_follow_from_tokens_per_byte(vocab_size: int) -> None:
    """With a byte per token a uniform model over 2^k ids spends k bits a byte; with half as many tokens, k/2."""
    for tokens in (60, 30):
        targets = torch.arange(tokens)[None]
        scores = scores_of((token_nll(torch.zeros(1, tokens, vocab_size), targets), targets))
        figures = scores.figures(num_bytes=60)
        assert figures["bits_per_byte"] == pytest.approx(math.log2(vocab_size) * tokens / 60, rel=1e-6)
        assert figures["bits_per_byte"] == bits_per_byte(scores.total_nll, 60)
        assert figures["perplexity"] == pytest.approx(vocab_size, rel=1e-6)
