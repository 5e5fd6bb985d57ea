"""Carry out what is left of a sweep: start, watch, note, stop when nothing works."""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal

from ilr.sweep.display import Display
from ilr.sweep.engines import Resources, run_locally, run_on_ray
from ilr.sweep.execute import Job, Outcome
from ilr.sweep.runs import Run, Sweep

Engine = Literal["ray", "local"]
ENGINES: dict[Engine, Callable[[Sequence[Job], Resources], Generator[Outcome | None]]] = {
    "ray": run_on_ray,
    "local": run_locally,
}
INSTANT_FAILURES = 3
"""Runs in a row that fail before their first step, after which the rest is not tried."""


class Stopped(Exception):
    """Somebody asked the sweep to stop; what ran has saved."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


def conduct(
    sweep: Sweep, runs: Sequence[Run], engine: Engine, resources: Resources, display: Display
) -> bool:
    """Carry out these runs; whether it went to the end (False: given up after failures in a row).

    Raises `Stopped` on SIGINT and SIGTERM, after what ran has been asked to save and leave.
    """
    jobs = [_job(sweep, run) for run in runs]
    in_a_row = 0
    with display, closing(ENGINES[engine](jobs, resources)) as outcomes, _stoppable() as stop:
        for outcome in outcomes:
            if stop:
                raise Stopped(stop[0])
            if outcome is not None:
                display.ended(outcome)
                in_a_row = in_a_row + 1 if outcome.failed and outcome.instant else 0
                if in_a_row >= INSTANT_FAILURES:
                    return False
            display.refresh()
    return True


def _job(sweep: Sweep, run: Run) -> Job:
    return Job(
        name=run.name,
        command=run.command,
        directory=str(run.directory.path.resolve()),
        records=str(Path(sweep.records).resolve()),
        folder=os.getcwd(),
    )


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """The first of the two signals, once it has come; a second one interrupts at once.

    Noted, not raised: an exception out of a handler does not get through a library that waits in C.
    """
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signum)

    previous = {signum: signal.signal(signum, note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
