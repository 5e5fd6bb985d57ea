"""Windows: each token but the first once, with the stated context; batches of them; what they add up to."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from ilr.data.blocks import EvaluationBlocks
from ilr.data.tokens import DocumentTable, TokenFile
from ilr.errors import InputError
from ilr.evaluation.measure import Sums, measure
from ilr.evaluation.sequences import Sequences
from ilr.evaluation.windows import Windows
from ilr.model.metrics import IGNORED

LENGTHS = (1, 2, 7, 8, 9, 64, 65)
VOCABULARY = 37
CPU = torch.device("cpu")


def contexts(length: int, window: int, stride: int) -> list[list[int]]:
    """For each token of a sequence, how many tokens each of its predictions sees."""
    windows = Windows(np.array([length]), window, stride)
    seen: list[list[int]] = [[] for _ in range(length)]
    one = windows[np.arange(len(windows))]
    for start, first, last in zip(one.start, one.first, one.last, strict=True):
        assert start >= 0
        for token in range(first, last + 1):
            assert token - start <= window
            seen[token].append(int(token - start))
    return seen


def stream_of(length: int) -> tuple[np.ndarray, DocumentTable]:
    """Random tokens in documents of 5 tokens, the last one perhaps shorter."""
    stream = np.random.default_rng(length).integers(VOCABULARY, size=length).astype(np.uint16)
    start = np.arange(0, length, 5)
    tokens = np.minimum(5, length - start)
    return stream, DocumentTable(start, tokens, tokens)


def uniform(inputs: torch.Tensor) -> torch.Tensor:
    return torch.zeros(*inputs.shape, VOCABULARY)


def scored_by(logits, sequences: Sequences, window: int, stride: int, batch_size: int = 3) -> Sums:
    return measure(
        logits,
        sequences.batches(window, stride, batch_size),
        split="validation",
        num_documents=len(sequences.document_starts),
        window=window,
        vocab_size=VOCABULARY,
        device=CPU,
    )


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_every_token_but_the_first_is_predicted_exactly_once(length: int, stride: int) -> None:
    seen = contexts(length, 8, stride)
    assert [len(one) for one in seen] == [0] + [1] * (length - 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_smaller_stride_never_gives_a_token_less_context(length: int) -> None:
    small, middle, blocks = ([one[0] for one in contexts(length, 8, stride)[1:]] for stride in (1, 3, 8))
    assert small == [min(token, 8) for token in range(1, length)]
    assert all(ours >= theirs for ours, theirs in zip(small, middle, strict=True))
    assert all(ours >= theirs for ours, theirs in zip(middle, blocks, strict=True))


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (5, 2), (7, 7), (12, 5), (12, 11), (16, 4)])
def test_past_the_first_window_the_context_is_at_least_window_minus_stride_plus_one(
    window: int, stride: int
) -> None:
    for length in range(1, 4 * window):
        seen = [one[0] for one in contexts(length, window, stride)[1:]]
        blocks = [one[0] for one in contexts(length, window, window)[1:]]
        assert seen[:window] == list(range(1, min(length, window + 1)))
        assert all(one >= window - stride + 1 for one in seen[window:])
        assert all(ours >= theirs for ours, theirs in zip(seen, blocks, strict=True))


def test_strides_that_divide_each_other_are_ordered_token_by_token() -> None:
    ladder = [[one[0] for one in contexts(77, 16, stride)[1:]] for stride in (1, 2, 4, 8, 16)]
    for ours, theirs in pairwise(ladder):
        assert all(mine >= yours for mine, yours in zip(ours, theirs, strict=True))


def test_windows_of_several_sequences_are_those_of_each() -> None:
    lengths = np.array([3, 1, 40, 9, 0, 17])
    windows = Windows(lengths, 8, 3)
    together = windows[np.arange(len(windows))]
    row = 0
    for number, length in enumerate(lengths):
        alone = Windows(np.array([length]), 8, 3)
        part = slice(row, row + len(alone))
        row += len(alone)
        one = alone[np.arange(len(alone))]
        assert (together.sequence[part] == number).all()
        for name in ("start", "first", "last"):
            assert (getattr(together, name)[part] == getattr(one, name)).all()
    assert row == len(windows)


@pytest.mark.parametrize(("window", "stride"), [(8, 0), (8, 9), (0, 1), (0, 0)])
def test_a_stride_outside_the_window_is_refused(window: int, stride: int) -> None:
    with pytest.raises(InputError, match=f"window {window} and stride {stride}"):
        Windows(np.array([5]), window, stride)


@pytest.mark.parametrize("length", [length for length in LENGTHS if length > 1])
def test_stride_equal_to_the_window_is_the_blocks_of_validation(length: int, tmp_path) -> None:
    stream, table = stream_of(length)
    (tmp_path / "stream").write_bytes(stream.tobytes())
    blocks = EvaluationBlocks(TokenFile(tmp_path / "stream", "<u2", length), table, 8, "validation")
    (batch,) = Sequences.whole(stream, table).batches(8, 8, len(blocks))
    expected = blocks.__getitems__(list(range(len(blocks))))
    for name in ("inputs", "targets", "documents"):
        assert torch.equal(batch[name], expected[name])


@pytest.mark.parametrize("length", [length for length in LENGTHS if length > 1])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(length: int, stride: int) -> None:
    sums = scored_by(uniform, Sequences.whole(*stream_of(length)), 8, stride)
    assert sums.scores.scored_tokens == length - 1
    assert math.exp(sums.scores.loss) == pytest.approx(VOCABULARY, rel=1e-6)
    assert sums.position_tokens.sum() == sums.token_counts.sum() == length - 1
    assert sums.position_nll.sum() == pytest.approx(sums.scores.total_nll, rel=1e-12)
    assert sums.token_nll.sum() == pytest.approx(sums.scores.total_nll, rel=1e-12)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_model_that_counts_its_context_is_given_the_stated_one(stride: int) -> None:
    """Logits that say how many tokens were seen: their NLL, token by token, is worked out from `contexts`."""
    stream, table = stream_of(65)

    def counting(inputs: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*inputs.shape, VOCABULARY, dtype=torch.float64)
        logits[..., 0] = torch.arange(1, inputs.shape[1] + 1)
        return logits

    expected = np.zeros(len(table))
    by_context = np.zeros(8)
    for token, (seen,) in enumerate(contexts(65, 8, stride)[1:], start=1):
        nll = math.log(math.exp(seen) + VOCABULARY - 1) - seen * (stream[token] == 0)
        expected[token // 5] += nll
        by_context[seen - 1] += nll
    for batch_size in (1, 3, 100):
        sums = scored_by(counting, Sequences.whole(stream, table), 8, stride, batch_size)
        np.testing.assert_allclose(sums.scores.nll, expected, rtol=1e-12)
        np.testing.assert_allclose(sums.position_nll, by_context, rtol=1e-12)


def test_all_batches_of_a_stream_have_one_shape() -> None:
    batches = list(Sequences.whole(*stream_of(65)).batches(8, 3, 4))
    assert {tuple(batch["inputs"].shape) for batch in batches} == {(4, 8)}
    assert sum(int((batch["targets"] != IGNORED).sum()) for batch in batches) == 64


def test_a_text_with_nothing_to_score_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match="the validation split has no token to score"):
        scored_by(uniform, Sequences.whole(*stream_of(1)), 8, 3)
    with pytest.raises(InputError, match="the validation split has no token to score"):
        scored_by(uniform, Sequences.whole(*stream_of(0)), 8, 3)
