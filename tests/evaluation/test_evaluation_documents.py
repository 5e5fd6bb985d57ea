"""Documents alone: independent of batch, order and neighbours, each token scored, long ones in windows."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from ilr.data.tokens import DocumentTable
from ilr.evaluation.measure import Sums, measure
from ilr.evaluation.sequences import Sequences
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.inference import evaluating
from ilr.model.metrics import IGNORED
from ilr.model.plan import make_plan

VOCABULARY, CONTEXT, SEPARATOR = 29, 32, 0
generator = np.random.default_rng(3)
DOCUMENTS = [np.append(generator.integers(1, VOCABULARY, size=n - 1), SEPARATOR) for n in (3, 9, 17)]
"""Documents of 3, 9 and 17 tokens, each with the separator that ends it."""


def decoder_with(positions: str) -> Decoder:
    config = DecoderConfig(
        vocab_size=VOCABULARY, context=CONTEXT, width=8, num_layers=2, num_heads=2, positions=positions
    )
    return Decoder(config, make_plan([2, 1])).double()


def alone(documents: Sequence[np.ndarray]) -> Sequences:
    tokens = np.array([len(document) for document in documents])
    table = DocumentTable(np.cumsum(tokens) - tokens, tokens, tokens)
    return Sequences.documents(np.concatenate(documents).astype(np.uint8), table, SEPARATOR)


def scored(
    decoder: Decoder,
    documents: Sequence[np.ndarray],
    window: int = CONTEXT,
    stride: int = CONTEXT,
    rows: int = 4,
) -> Sums:
    with evaluating(decoder):
        return measure(
            decoder,
            alone(documents).batches(window, stride, rows),
            split="validation",
            num_documents=len(documents),
            window=window,
            vocab_size=VOCABULARY,
            device=torch.device("cpu"),
        )


def by_hand(decoder: Decoder, document: np.ndarray, seen: Sequence[int]) -> float:
    """NLL of a document, token i predicted from the ``seen[i]`` tokens before it in [separator, *document]."""
    text = torch.tensor([SEPARATOR, *document.tolist()])
    total = 0.0
    for place, context in enumerate(seen, start=1):
        with torch.no_grad():
            logits = decoder(text[None, place - context : place])[0, -1]
        total -= float(logits.log_softmax(-1)[text[place]])
    return total


@pytest.mark.parametrize("positions", ["rope", "alibi", "learned", "none"])
def test_documents_score_the_same_alone_together_and_reversed(positions: str) -> None:
    decoder = decoder_with(positions)
    together, reverse = scored(decoder, DOCUMENTS), scored(decoder, DOCUMENTS[::-1])
    assert together.scores.tokens.tolist() == [3, 9, 17]
    assert reverse.scores.tokens.tolist() == [17, 9, 3]
    for number, document in enumerate(DOCUMENTS):
        expected = by_hand(decoder, document, range(1, len(document) + 1))
        for sums, place in (
            (together, number),
            (reverse, 2 - number),
            (scored(decoder, [document]), 0),
            (scored(decoder, DOCUMENTS, rows=1), number),
        ):
            assert sums.scores.nll[place] == pytest.approx(expected, abs=1e-10)


def test_in_single_precision_company_changes_less_than_a_hundred_thousandth() -> None:
    decoder = decoder_with("rope").float()
    together = scored(decoder, DOCUMENTS).scores.nll
    for number, document in enumerate(DOCUMENTS):
        assert scored(decoder, [document]).scores.nll[0] == pytest.approx(together[number], abs=1e-5)


@pytest.mark.parametrize(
    ("stride", "seen"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1]),
        (3, [1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 6, 7, 8, 7, 8, 6]),
        (1, [1, 2, 3, 4, 5, 6, 7, 8] + [8] * 9),
    ],
)
def test_a_document_longer_than_the_window_is_scored_in_windows(stride: int, seen: list[int]) -> None:
    decoder = decoder_with("alibi")
    sums = scored(decoder, DOCUMENTS, window=8, stride=stride)
    assert sums.scores.tokens.tolist() == [3, 9, 17]
    assert sums.scores.nll[2] == pytest.approx(by_hand(decoder, DOCUMENTS[2], seen), abs=1e-10)
    assert sums.scores.nll[1] == pytest.approx(by_hand(decoder, DOCUMENTS[1], seen[:9]), abs=1e-10)


def test_short_documents_are_not_padded_to_the_window() -> None:
    documents = [DOCUMENTS[0]] * 40 + [DOCUMENTS[2]]
    batches = list(alone(documents).batches(256, 256, 2))
    assert {tuple(batch["inputs"].shape) for batch in batches} == {(128, 4), (16, 32)}
    assert sum(int((batch["targets"] != IGNORED).sum()) for batch in batches) == 40 * 3 + 17


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary() -> None:
    sums = measure(
        lambda inputs: torch.zeros(*inputs.shape, VOCABULARY),
        alone(DOCUMENTS).batches(8, 3, 2),
        split="test",
        num_documents=3,
        window=8,
        vocab_size=VOCABULARY,
        device=torch.device("cpu"),
    )
    assert math.exp(sums.scores.loss) == pytest.approx(VOCABULARY, rel=1e-6)
