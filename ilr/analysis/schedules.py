"""One set of weights under many schedules, on the same tokens, paired by document."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import torch

from ilr.accounting import cost
from ilr.analysis.batches import Batch, first_tokens
from ilr.analysis.prefixes import final_states
from ilr.decoder import Decoder
from ilr.errors import InputError
from ilr.evaluating import evaluating
from ilr.metrics import IGNORED, token_nll
from ilr.plan import Plan, make_plan

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
    """Schedules in the order asked for, the trained one among them at index ``trained``.

    ``nll`` (schedules, documents) in nats and ``document_tokens`` (documents,) count the scored tokens only;
    documents without any are left out, and ``documents`` are the numbers of the others.
    """

    rows: tuple[Row, ...]
    trained: int
    tokens: int
    documents: np.ndarray
    document_tokens: np.ndarray
    nll: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """The table as plain data, without the documents."""
        return {
            "trained": self.rows[self.trained].label,
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


def named_plans(decoder: Decoder, schedules: Sequence[Any]) -> list[Plan]:
    """A plan for each schedule, in short form or as segments, under the decoder's sharing."""
    return [make_plan(schedule, decoder.config.num_layers, decoder.plan.sharing) for schedule in schedules]


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
    cannot run, before anything is run.
    """
    unique = {plan.operands: plan for plan in (decoder.plan, *plans)}
    chosen = [decoder.checked(plan) for plan in unique.values()]
    kept = list(first_tokens(batches, tokens, decoder.device))
    num_documents = 1 + max(int(batch["documents"].max()) for batch in kept)
    sums = torch.zeros(len(chosen), num_documents, dtype=torch.float64, device=decoder.device)
    counts = torch.zeros(num_documents, dtype=torch.int64, device=decoder.device)
    with evaluating(decoder):
        for batch in kept:
            targets = batch["targets"]
            where = batch["documents"].clamp(min=0).flatten()
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
    rows = tuple(_row(decoder, plan, found[i], found[0], weights) for i, plan in enumerate(chosen))
    return Evaluated(rows, 0, int(weights.sum()), documents, weights, found)


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
