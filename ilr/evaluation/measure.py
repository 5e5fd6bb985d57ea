"""The sums of one pass over batches: NLL by document, by position in the window and by token, in float64."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ilr.errors import InputError
from ilr.evaluation.sequences import Batch
from ilr.model.metrics import IGNORED, CorpusNLL, Scores, token_nll

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Sums:
    """NLL in nats and scored tokens, divided in three ways.

    ``scores``: by document. ``position_nll`` and ``position_tokens`` (T,): entry p holds the tokens that were
    predicted from p + 1 tokens. ``token_nll`` and ``token_counts`` (V,): by the id of the predicted token.
    """

    scores: Scores
    position_nll: Floats
    position_tokens: Counts
    token_nll: Floats
    token_counts: Counts


class _Divided:
    """Sums over classes 0 … count − 1."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.nll = torch.zeros(count, dtype=torch.float64, device=device)
        self.tokens = torch.zeros(count, dtype=torch.int64, device=device)

    def add(self, classes: Tensor, nll: Tensor, scored: Tensor) -> None:
        """Add ``nll`` and ``scored``, of one shape with ``classes``; nll is 0 where not scored."""
        self.nll.index_add_(0, classes.flatten(), nll.double().flatten())
        self.tokens.index_add_(0, classes.flatten(), scored.long().flatten())


def measure(
    logits: Callable[[Tensor], Tensor],
    batches: Iterable[Batch],
    *,
    split: str,
    num_documents: int,
    window: int,
    vocab_size: int,
    device: torch.device,
    progress: Callable[[int], object] | None = None,
) -> Sums:
    """Score every target of the batches by ``logits`` (inputs (B, T) → (B, T, V)).

    ``progress`` is told how many tokens each batch scored. Raises `InputError` naming ``split`` where there
    is nothing to score.
    """
    metric = CorpusNLL(num_documents, split).to(device)
    positions, tokens = _Divided(window, device), _Divided(vocab_size, device)
    with torch.no_grad():
        for batch in batches:
            targets, documents = batch["targets"].to(device), batch["documents"].to(device)
            nll = token_nll(logits(batch["inputs"].to(device)), targets)
            scored = targets != IGNORED
            metric.update(nll, targets, documents)
            positions.add(torch.arange(targets.shape[1], device=device).expand_as(targets), nll, scored)
            tokens.add(targets.clamp(min=0), nll, scored)
            if progress is not None:
                progress(int((batch["targets"] != IGNORED).sum()))
    if not metric.update_called:  # torchmetrics would warn before the metric can say what is wrong
        raise InputError(f"the {split} split has no token to score")
    return Sums(
        scores=metric.scores(),
        position_nll=positions.nll.cpu().numpy(),
        position_tokens=positions.tokens.cpu().numpy(),
        token_nll=tokens.nll.cpu().numpy(),
        token_counts=tokens.tokens.cpu().numpy(),
    )
