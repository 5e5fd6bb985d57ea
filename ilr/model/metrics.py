"""The one definition of NLL, and the figures derived from it."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from ilr.errors import InputError

IGNORED = -100
"""Target id that is not scored: the one value used by data, loss and metrics."""


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """NLL of each target in nats, (B, T) float32 (float64 for float64 logits), 0 where `IGNORED`.

    ``logits`` (B, T, V) of any floating type are widened before the log-softmax; ``targets`` (B, T) int64.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(wide.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return nll.view(targets.shape)


def perplexity(loss: float) -> float:
    """Exp of a mean NLL in nats; inf where that overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nll: float, num_bytes: int) -> float:
    """Total NLL in nats over the UTF-8 bytes of the original text, in bits per byte."""
    return total_nll / math.log(2) / num_bytes


@dataclass(frozen=True)
class Scores:
    """What an evaluation found: sums in nats and counts of tokens, per document and over all of them."""

    nll: np.ndarray
    tokens: np.ndarray
    sequence_mean_loss: float

    @property
    def total_nll(self) -> float:
        """Sum of NLL over all scored tokens, in nats."""
        return float(self.nll.sum())

    @property
    def scored_tokens(self) -> int:
        """Number of scored tokens."""
        return int(self.tokens.sum())

    @property
    def loss(self) -> float:
        """Total NLL over scored tokens: the primary figure, in nats per token."""
        return self.total_nll / self.scored_tokens

    def figures(self, num_bytes: int) -> dict[str, float]:
        """Loss and what derives from it, by name; ``num_bytes``: UTF-8 bytes of the original text.

        ``perplexity_sequence_mean`` is the ILR paper's definition: the exponential of the mean over
        sequences of each sequence's mean loss (arXiv 2505.01855).
        """
        return {
            "loss": self.loss,
            "perplexity": perplexity(self.loss),
            "bits_per_byte": bits_per_byte(self.total_nll, num_bytes),
            "perplexity_sequence_mean": perplexity(self.sequence_mean_loss),
        }


def of_a_part(share: float) -> str:
    """What stands behind the figures of a split that is cut to this share of its tokens; nothing for a whole one."""
    return "" if share == 1 else f"  (of the first {100 * share:.3g} % of the split)"


def check_whole(scores: Scores, split: str, num_tokens: int) -> None:
    """Raise `InputError` unless each of the split's tokens but the first was scored, once: a ratio of a part's NLL
    and the whole's bytes is no figure.
    """
    if scores.scored_tokens != num_tokens - 1:
        raise InputError(
            f"{scores.scored_tokens} tokens of the {split} split were scored, not each of its {num_tokens} but the "
            "first: something, such as a callback of --trainer.callbacks, has cut the evaluation; a smaller "
            "split is --data.max_eval_tokens"
        )


class CorpusNLL(Metric):
    """NLL of a split: float64 sums per document, whatever the precision, batching or number of processes."""

    full_state_update = False
    nll: Tensor
    tokens: Tensor
    sequence_means: Tensor
    sequences: Tensor

    def __init__(self, num_documents: int, split: str) -> None:
        super().__init__()
        self.split = split
        zeros = torch.zeros(num_documents, dtype=torch.float64)
        self.add_state("nll", zeros, dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros(num_documents, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("sequence_means", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("sequences", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nll: Tensor, targets: Tensor, documents: Tensor) -> None:
        """Add a batch: ``nll`` (B, T) of `token_nll`, its targets, and the document of each target (B, T)."""
        scored = targets != IGNORED
        wide = torch.where(scored, nll, 0.0).double()
        where = documents.flatten().clamp(min=0)
        self.nll.index_add_(0, where, wide.flatten())
        self.tokens.index_add_(0, where, scored.flatten().long())
        counts = scored.sum(dim=1)
        self.sequence_means += (wide.sum(dim=1) / counts.clamp(min=1)).sum()
        self.sequences += (counts > 0).sum()

    def compute(self) -> dict[str, Tensor]:
        """The sums, reduced over processes."""
        return {
            "nll": self.nll,
            "tokens": self.tokens,
            "means": self.sequence_means,
            "sequences": self.sequences,
        }

    def scores(self) -> Scores:
        """The sums so far; raises `InputError` where nothing was scored."""
        sums = self.compute()
        if int(sums["tokens"].sum()) == 0:
            raise InputError(f"the {self.split} split has no token to score")
        return Scores(
            nll=np.atleast_1d(sums["nll"].cpu().numpy()),
            tokens=np.atleast_1d(sums["tokens"].cpu().numpy()),
            sequence_mean_loss=float(sums["means"] / sums["sequences"]),
        )
