"""What came of a sweep: one row a run, the commands that repeat what failed, where to go on. No torch."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from ilr.sweep.runs import Run, Sweep
from ilr.sweep.state import ENDED, damage_of, record_of, state_of, summary_of


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Aligned columns, the first ``left`` of them to the left, the last one free of padding."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def report(sweep: Sweep) -> tuple[str, bool]:
    """The table of all runs with what to do next, and whether none is left undone."""
    rows, failed, left, stopped, damaged = [], [], [], [], []
    for run in sweep.runs:
        state = state_of(sweep, run)
        note = record_of(sweep, run).read()
        summary = summary_of(run) or {}
        reason = note.get("reason", "") if state == "failed" else ""
        figures = [_figure(summary, "val_perplexity"), _figure(summary, "test_perplexity")]
        rows.append([run.name, f"{state}: {reason}" if reason else state, _steps(summary), *figures])
        if state == "damaged":
            damaged.append(f"  {damage_of(run)}")
        elif state == "failed":
            failed.append(run)
        elif state == "stopped":
            stopped.append(run)
        elif state not in ENDED:
            left.append(run)
    lines = [text_table(("run", "state", "steps", "val perplexity", "test perplexity"), rows, left=2)]
    if failed:
        lines += ["", f"{len(failed)} failed; by hand, with all that it has to say:", *map(by_hand, failed)]
        lines.append(f"Output of each: {sweep.records}/RUN.out and .err")
    if stopped:
        lines += [
            "",
            f"{len(stopped)} stopped before the steps asked for; one goes on by hand with",
            by_hand(stopped[0]),
        ]
    if damaged:
        lines += [
            "",
            f"{len(damaged)} damaged; mend the file, or delete it to have the run made again:",
            *damaged,
        ]
    if left:
        lines += ["", f"{len(left)} not done: the same command goes on with them"]
    lines += ["", f"Curves:  ilr board {shlex.quote(str(sweep.directory))}"]
    if len(sweep.file.learning_rates) < 2:  # else at the chosen ones
        lines.append(f"Compare: ilr compare {shlex.quote(str(sweep.directory))}")
    return "\n".join(lines), not failed and not left and not damaged


def by_hand(run: Run) -> str:
    """The command that makes or continues a run."""
    return f"  {shlex.join(['ilr', *run.command])}"


def _steps(summary: dict[str, Any]) -> str:
    return f"{summary['steps']:,}" if summary.get("steps") is not None else ""


def _figure(summary: dict[str, Any], name: str) -> str:
    value = summary.get(name)
    return "" if value is None else f"{value:.3f}"
