"""What a person sees while a sweep runs: a live table in a terminal, else one line per event."""

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from ilr.sweep.execute import Outcome
from ilr.sweep.runs import Run, Sweep
from ilr.sweep.state import ENDED, Progress, State, progress_of, state_of

PERIOD = 1.0
"""Seconds between two readings of all runs."""

ORDER: tuple[State, ...] = (
    "running",
    "failed",
    "damaged",
    "interrupted",
    "diverged",
    "stopped",
    "finished",
    "waiting",
)
STYLES = {
    "running": "bold",
    "failed": "red",
    "damaged": "red",
    "diverged": "yellow",
    "stopped": "yellow",
    "finished": "green",
    "waiting": "dim",
}


class Display:
    """Follows the runs of a sweep from what they leave in their directories."""

    def __init__(self, sweep: Sweep, runs: Sequence[Run], live: bool) -> None:
        self.sweep, self.runs = sweep, {run.name: run for run in runs}
        self.states: dict[str, State] = {run.name: state_of(sweep, run) for run in runs}
        self._first: dict[str, tuple[float, int]] = {}
        self._next = 0.0
        self._live: Any = _live() if live else None

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()

    def ended(self, outcome: Outcome) -> None:
        """Take note of a run's end."""
        run = self.runs[outcome.name]
        self._change(run, state_of(self.sweep, run), outcome.reason)
        self._next = 0.0

    def refresh(self) -> None:
        """Look again at what is not over, at most once in a period."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PERIOD
        for run in self.runs.values():
            if self.states[run.name] not in (*ENDED, "failed"):
                self._change(run, state_of(self.sweep, run))
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _change(self, run: Run, state: State, reason: str = "") -> None:
        before, self.states[run.name] = self.states[run.name], state
        if self._live is not None or state == before or state == "waiting":
            return
        figure = f"  perplexity {_perplexity(progress_of(run.directory))}" if state == "finished" else ""
        over = sum(state in (*ENDED, "failed") for state in self.states.values())
        count = f"  ({over} of {len(self.runs)})" if state in (*ENDED, "failed") else ""
        print(f"{state:<11} {run.name}{figure}{count}" + (f": {reason}" if reason else ""), flush=True)

    def time_left(self, run: Run, progress: Progress) -> float | None:
        """Seconds to the last step at the speed seen since this display began; None while unknown."""
        now = time.monotonic()
        begun, step = self._first.setdefault(run.name, (now, progress.step))
        if run.steps is None or progress.step <= step:
            return None
        return (run.steps - progress.step) * (now - begun) / (progress.step - step)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        counts = Counter(self.states.values())
        title = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        table = Table(title=f"{self.sweep.directory}: {title}", title_justify="left", box=None)
        for name in ("run", "state", "step", "perplexity", "time left"):
            table.add_column(name, justify="left" if name in ("run", "state") else "right", no_wrap=True)
        for run in sorted(self.runs.values(), key=lambda run: ORDER.index(self.states[run.name])):
            table.add_row(*map(Text, self.row(run)), style=STYLES.get(self.states[run.name], ""))
        return table

    def row(self, run: Run) -> tuple[str, str, str, str, str]:
        """Name, state, step of steps, last perplexity, time left."""
        state = self.states[run.name]
        if state == "waiting":
            return run.name, state, "", "", ""
        progress = progress_of(run.directory)
        step = f"{progress.step:,}" + (f" of {run.steps:,}" if run.steps else "")
        left = self.time_left(run, progress) if state == "running" else None
        return run.name, state, step, _perplexity(progress), "" if left is None else duration(left)


def duration(seconds: float) -> str:
    """``45 s``, ``3.2 min``, ``1.5 h``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _perplexity(progress: Progress) -> str:
    return "" if progress.perplexity is None else f"{progress.perplexity:.2f}"


def _live() -> Any:
    """A live area of the terminal, or None without the package that draws it."""
    try:
        from rich.live import Live
    except ModuleNotFoundError:
        return None
    return Live(auto_refresh=False, vertical_overflow="crop", transient=True)
