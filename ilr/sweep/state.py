"""How far each run is: its own directory is the truth, the sweep's record adds what it cannot say. No torch."""

import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from ilr.errors import InputError
from ilr.run_directory import RunDirectory, atomic_write
from ilr.sweep.identity import differences, digest
from ilr.sweep.runs import Run, Sweep, renamed

State = Literal["finished", "stopped", "diverged", "failed", "running", "interrupted", "waiting"]
ENDED: tuple[State, ...] = ("finished", "stopped", "diverged")
TAIL = 2**16
"""Bytes of the end of a history that are read to see how far a run is."""


@dataclass(frozen=True)
class Record:
    """The sweep's note on one run: what it is, and how its last start ended."""

    path: Path

    def read(self) -> dict[str, Any]:
        """The note; empty where there is none."""
        try:
            note = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return {}
        return note if isinstance(note, dict) else {}

    def update(self, **values: Any) -> None:
        """Change some of its values, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        note = {**self.read(), **values}
        with atomic_write(self.path) as file:
            json.dump(note, file, indent=1)


@dataclass(frozen=True)
class Progress:
    """The last step of a run's history, and its last validation's perplexity."""

    step: int = 0
    perplexity: float | None = None


def record_of(sweep: Sweep, run: Run) -> Record:
    """The note on a run."""
    return Record(sweep.records / f"{run.name}.json")


def state_of(sweep: Sweep, run: Run) -> State:
    """Finished, stopped and diverged by the run's own summary; the rest from the sweep's record."""
    summary = run.directory.summary()
    ended: State | None = None if summary is None else summary["status"]
    if ended in ENDED:
        return ended
    noted: State | None = record_of(sweep, run).read().get("state")
    if noted in ("failed", "running"):
        return noted
    return "interrupted" if run.directory.has_run() else "waiting"


def settle(sweep: Sweep) -> Sweep:
    """The sweep with each run in the directory where an equal one lies already.

    Raises `InputError` where a run's directory holds another configuration.
    """
    known: dict[str, str] = {}
    notes: dict[str, dict[str, Any]] = {}
    for path in sorted(sweep.records.glob("*.json")):
        notes[path.stem] = Record(path).read()
        if "identity" in notes[path.stem]:
            known[digest(notes[path.stem]["identity"])] = path.stem
    runs = []
    for run in sweep.runs:
        run = renamed(run, known.get(run.key, run.name))
        _check_same(sweep, run, notes.get(run.name, {}).get("identity"))
        runs.append(run)
    return Sweep(sweep.file, sweep.directory, tuple(runs), sweep.repeated)


def _check_same(sweep: Sweep, run: Run, noted: dict[str, Any] | None) -> None:
    if noted is not None:
        different = [] if digest(noted) == run.key else list(differences(run.identity, noted))
    else:
        summary = run.directory.summary()
        if summary is None and not run.directory.has_run():
            return
        operands = [list(one) for one in run.arm.plan.operands]
        same = summary is not None and summary.get("operands") == operands
        different = [] if same else ["it was not started by this sweep"]
    if different:
        raise InputError(
            f"{run.directory.path} holds another run than {sweep.file.path} asks for: {'; '.join(different[:3])}. "
            "Give another --output"
        )


def note_plan(sweep: Sweep, runs: Iterable[Run]) -> None:
    """Write down what each of these runs is and how to repeat it, and keep the sweep file beside."""
    sweep.records.mkdir(parents=True, exist_ok=True)
    with atomic_write(sweep.records / "sweep.yaml") as file:
        file.write(sweep.file.path.read_text(encoding="utf-8"))
    for run in runs:
        record_of(sweep, run).update(
            identity=run.identity,
            label=run.arm.label,
            note=run.arm.note,
            command=shlex.join(["ilr", *run.command]),
            state="waiting",
            reason="",
        )


def progress_of(directory: RunDirectory) -> Progress:
    """How far a run is, from the end of its history."""
    try:
        with directory.history.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return Progress()
    step, perplexity = 0, None
    for line in lines:
        try:
            point = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut by the window, or being written
        step, perplexity = point["step"], point.get("val/perplexity", perplexity)
    return Progress(step, perplexity)


@contextmanager
def locked(path: Path, busy: str) -> Iterator[TextIO]:
    """Hold a lock that the system gives back however this process ends; `InputError` where it is taken."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(busy) from None
        yield file
