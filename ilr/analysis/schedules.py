"""One set of weights under many schedules, on the same tokens, paired by document."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ilr.analysis.batches import Batch, first_tokens
from ilr.analysis.prefixes import final_states
from ilr.errors import InputError
from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.inference import evaluating
from ilr.model.metrics import IGNORED, token_nll
from ilr.model.plan import Plan

MOST_SCHEDULES = 4_096


@dataclass(frozen=True)
class Row:
    """A schedule's figures. ``delta``: its loss less that of the trained schedule, in nats per token, and
    ``delta_se`` its standard error over documents (None with fewer than two).
    """

    label: str
    schedule: list[Any]
    depth: int
    forward_flops_per_token: int
    loss: float
    delta: float
    delta_se: float | None


@dataclass(frozen=True)
class Evaluated:
    """Schedules: the trained one first, then the others in the order asked for.

    ``nll`` (schedules, documents) in nats and ``document_tokens`` (documents,) count the scored tokens only;
    documents without any are left out, and ``documents`` are the numbers of the others.
    """

    rows: tuple[Row, ...]
    tokens: int
    documents: np.ndarray
    document_tokens: np.ndarray
    nll: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """The table as plain data, without the documents."""
        return {
            "trained": self.rows[0].label,
            "tokens": self.tokens,
            "documents": len(self.documents),
            "schedules": [asdict(row) for row in self.rows],
        }


def grid_plans(decoder: Decoder, grid: str) -> list[Plan]:
    """A plan for every way to visit each layer FIRST to LAST times, from ``FIRST..LAST``."""
    match = re.fullmatch(r"(\d+)\.\.(\d+)", grid.strip())
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"--grid must be FIRST..LAST such as 1..4, FIRST at least 1, got {grid!r}")
    count = (last - first + 1) ** decoder.config.num_layers
    if count > MOST_SCHEDULES:
        raise InputError(
            f"--grid {grid} over {decoder.config.num_layers} layers is {count} schedules, at most "
            f"{MOST_SCHEDULES} are evaluated: give a smaller range, or name them with --schedules"
        )
    times = range(first, last + 1)
    return [decoder.plan_for(list(one)) for one in product(times, repeat=decoder.config.num_layers)]


def evaluate_schedules(
    decoder: Decoder,
    batches: Iterable[Batch],
    plans: Sequence[Plan],
    tokens: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> Evaluated:
    """Score the first ``tokens`` targets under each plan; the decoder's own is added where it is missing.

    ``progress`` is told how many tokens each batch scored. Raises `InputError` for a plan that the decoder
    cannot run, before anything is run, and for a loss that is not finite.
    """
    unique: dict[object, Plan] = {}
    for plan in (decoder.plan, *plans):
        unique.setdefault(plan.computation(decoder.config.injection), plan)
    chosen = [decoder.checked(plan) for plan in unique.values()]
    sums = torch.zeros(len(chosen), 0, dtype=torch.float64, device=decoder.device)
    counts = torch.zeros(0, dtype=torch.int64, device=decoder.device)
    with evaluating(decoder):
        for batch in first_tokens(batches, tokens, decoder.device):
            targets = batch["targets"]
            where = batch["documents"].clamp(min=0).flatten()
            more = max(0, 1 + int(where.max()) - len(counts))
            sums, counts = F.pad(sums, (0, more)), F.pad(counts, (0, more))
            scored = targets != IGNORED
            counts.index_add_(0, where, scored.flatten().long())
            for number, state in final_states(decoder, batch["inputs"], chosen):
                nll = token_nll(decoder.predict(state), targets)
                sums[number].index_add_(0, where, nll.double().flatten())
            if progress is not None:
                progress(int(scored.sum()))
    documents = np.flatnonzero(counts.cpu().numpy())
    weights = counts.cpu().numpy()[documents]
    found = sums.cpu().numpy()[:, documents]
    for plan, nll in zip(chosen, found, strict=True):
        if not np.isfinite(nll).all():
            raise InputError(f"the loss under {plan.label} is not finite: these weights cannot be compared")
    rows = tuple(_row(decoder, plan, found[i], found[0], weights) for i, plan in enumerate(chosen))
    return Evaluated(rows, int(weights.sum()), documents, weights, found)


def _row(decoder: Decoder, plan: Plan, nll: np.ndarray, trained: np.ndarray, weights: np.ndarray) -> Row:
    delta, error = paired_difference(nll, trained, weights)
    return Row(
        label=plan.label,
        schedule=plan.schedule,
        depth=plan.depth,
        forward_flops_per_token=cost(decoder.config, plan).forward_flops_per_token,
        loss=float(nll.sum() / weights.sum()),
        delta=delta,
        delta_se=error,
    )


def paired_difference(
    nll: np.ndarray, baseline: np.ndarray, weights: np.ndarray
) -> tuple[float, float | None]:
    """Mean difference per token and its standard error, documents being the sampled units.

    The difference is a ratio of sums over documents; its error is that of the ratio estimator,
    √(N / (N − 1) · Σ (dᵢ − Δ wᵢ)²) / Σ wᵢ.
    """
    differences = nll - baseline
    delta = float(differences.sum() / weights.sum())
    count = len(weights)
    if count < 2:
        return delta, None
    residuals = differences - delta * weights
    return delta, sqrt(count / (count - 1) * float(residuals @ residuals)) / float(weights.sum())
