"""Which learning rate an arm is judged by: chosen on validation, reported on test. No torch."""

import csv
import io
import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from ilr.runs.directory import atomic_write
from ilr.sweep.report import text_table
from ilr.sweep.runs import Run, Sweep
from ilr.sweep.state import summary_of


@dataclass(frozen=True)
class Tried:
    """One learning rate of one arm: means over its seeds, infinite where a seed diverged."""

    arm: str
    learning_rate: float
    seeds: int
    val_loss: float
    test_loss: float
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """An arm's learning rates in rising order, and the one with the least validation loss."""

    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """Chosen on validation alone."""
        return min(self.tried, key=lambda one: one.val_loss)

    @property
    def at_edge(self) -> bool:
        """Whether the best is an end of the grid, so that a better one may lie beyond it."""
        return self.best in (self.tried[0], self.tried[-1])


def choices(sweep: Sweep) -> list[Choice]:
    """One per arm whose runs have all ended, where the sweep tries several learning rates."""
    if len(sweep.file.learning_rates) < 2:
        return []
    by_arm: dict[str, dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in sweep.runs:
        if run.learning_rate is not None:
            by_arm[run.arm.label][run.learning_rate].append(run)
    found = []
    for by_rate in by_arm.values():
        tried = [_tried(rate, runs) for rate, runs in sorted(by_rate.items())]
        if all(one is not None for one in tried):
            found.append(Choice(tuple(one for one in tried if one is not None)))
    return found


def describe(sweep: Sweep) -> str:
    """The choices in words, and all that was tried in learning_rates.csv; empty without a grid."""
    found = choices(sweep)
    if not found:
        return ""
    _write(sweep, found)
    rows, edges = [], []
    for choice in found:
        best = choice.best
        curve = "  ".join(f"{one.learning_rate:g}: {one.val_loss:.4f}" for one in choice.tried)
        edge = "at the edge" if choice.at_edge else ""
        rows.append([best.arm, f"{best.learning_rate:g}", f"{best.test_loss:.4f}", edge, curve])
        if choice.at_edge:
            edges.append(best.arm)
    header = ("arm", "chosen lr", "test loss", "", "validation loss by learning rate")
    lines = ["Learning rates, chosen on validation:", text_table(header, rows, left=5)]
    if edges:
        lines.append(
            f"Warning: the best learning rate is at the edge of the grid for {', '.join(edges)}: try beyond it "
            "before comparing"
        )
    directories = " ".join(name for choice in found for name in choice.best.patterns)
    return "\n".join([*lines, "Compare at the chosen rates:", f"  ilr compare {directories}"])


def _tried(rate: float, runs: list[Run]) -> Tried | None:
    summaries = [summary_of(run) for run in runs]
    if any(summary is None for summary in summaries):
        return None
    losses = []
    for name in ("val_loss", "test_loss"):
        values = [
            math.inf if summary["status"] == "diverged" or summary.get(name) is None else summary[name]
            for summary in summaries
            if summary is not None
        ]
        losses.append(fmean(values))
    directories = tuple(f"'{run.directory.path}'" for run in runs)
    return Tried(runs[0].arm.label, rate, len(runs), losses[0], losses[1], directories)


def _write(sweep: Sweep, found: list[Choice]) -> None:
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["arm", "learning_rate", "seeds", "val_loss", "test_loss", "chosen", "at_edge"])
    for choice in found:
        for one in choice.tried:
            chosen = one is choice.best
            row = [one.arm, one.learning_rate, one.seeds, one.val_loss, one.test_loss]
            table.writerow([*row, chosen, chosen and choice.at_edge])
    with atomic_write(sweep.directory / "learning_rates.csv") as file:
        file.write(text.getvalue())
