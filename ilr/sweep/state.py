"""How far each run is: its own directory is the truth, the sweep's record adds what it cannot say. No torch."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ilr.errors import InputError
from ilr.files import plain_json
from ilr.files.plain_yaml import read_mapping
from ilr.files.readers import read_json, validated
from ilr.files.text import MissingFile, decoded, read_text
from ilr.runs.directory import RunDirectory, atomic_write
from ilr.runs.identity import differences, digest, identity
from ilr.runs.option_schema import check_options
from ilr.runs.options import Options, flat
from ilr.sweep.runs import Run, Sweep, renamed
from ilr.sweep.text import planned_text

State = Literal["finished", "stopped", "diverged", "damaged", "failed", "running", "interrupted", "waiting"]
ENDED: tuple[State, ...] = ("finished", "stopped", "diverged", "damaged")
"""What a sweep leaves as it is; of a damaged run it says which file is to be mended or deleted."""

TAIL = 2**16
"""Bytes of the end of a history that are read to see how far a run is."""


@dataclass(frozen=True)
class Record:
    """The sweep's note on one run: what it is, and how its last start ended."""

    path: Path

    def read(self) -> dict[str, Any]:
        """The note; empty where there is none, or where it is damaged: the run's directory is the truth."""
        from ilr.runs.schema import SweepNote

        try:
            return read_json(self.path, SweepNote).model_dump(exclude_unset=True)
        except InputError:
            return {}

    def update(self, **values: Any) -> None:
        """Change some of its values, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        note = {**self.read(), **values}
        with atomic_write(self.path) as file:
            file.write(plain_json.dumps(note, indent=1))


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
    try:
        summary = run.directory.summary()
    except InputError:
        return "damaged"
    if summary is not None:
        ended: State = summary["status"]
        return ended
    noted: State | None = record_of(sweep, run).read().get("state")
    if noted in ("failed", "running"):
        return noted
    return "interrupted" if run.directory.has_run() else "waiting"


def summary_of(run: Run) -> dict[str, Any] | None:
    """The summary of a run that has ended; None also where it is damaged."""
    try:
        return run.directory.summary()
    except InputError:
        return None


def damage_of(run: Run) -> str:
    """What is wrong with a run's summary, in a line; empty where nothing is."""
    try:
        run.directory.summary()
    except InputError as error:
        return str(error)
    return ""


def settle(sweep: Sweep) -> Sweep:
    """The sweep with each run in the directory where an equal one lies already.

    Raises `InputError` where a run's directory holds another configuration.
    """
    known: dict[str, str] = {}
    notes: dict[str, dict[str, Any]] = {}
    for path in sorted(sweep.records.glob("*.json")):
        noted = _noted(sweep, path)
        if noted is not None:
            notes[path.stem] = noted
            known[digest(noted)] = path.stem
    runs = []
    for run in sweep.runs:
        run = renamed(run, known.get(run.key, run.name))
        noted = notes.get(run.name)
        different = _not_ours(run) if noted is None else list(differences(run.identity, noted))
        if different:
            raise InputError(
                f"{run.directory.path} holds another run than {sweep.file.path} asks for: "
                f"{'; '.join(different[:3])}. Give another --output"
            )
        runs.append(run)
    return Sweep(sweep.file, sweep.directory, tuple(runs), sweep.repeated)


def _noted(sweep: Sweep, path: Path) -> dict[str, Any] | None:
    """The identity that a note tells; None where it is damaged. Earlier versions knew a text by its name alone:
    then the run's own configuration tells it.
    """
    noted: dict[str, Any] | None = Record(path).read().get("identity")
    if noted is None or "text" in noted:
        return noted
    try:
        settings = _settings_of(RunDirectory(sweep.directory / path.stem))
        return {**identity(settings, planned_text(settings)), "seeds": noted.get("seeds")}
    except InputError:
        return None


def _settings_of(directory: RunDirectory) -> Options:
    settings = flat(read_mapping(directory.config, "configuration"))
    check_options(settings, directory.config)
    return settings


def _not_ours(run: Run) -> list[str]:
    """How the run that lies in this directory, and that no note describes, differs from the one asked for. Nothing
    where its files are damaged: then its state says so.
    """
    stranger = "it was not started by this sweep"
    try:
        summary = run.directory.summary()
        try:
            found = identity(_settings_of(run.directory), {})
        except MissingFile:
            if summary is None:
                return [stranger] if run.directory.has_run() else []
            found = {"operands": summary["operands"]}
    except InputError:
        return []
    ours = {name: value for name, value in run.identity.items() if name in found or len(found) > 1}
    for apart in ("text", "seeds"):
        found.pop(apart, None)
        ours.pop(apart, None)
    found_differences = list(differences(ours, found))
    return [stranger, *found_differences] if found_differences else []


def note_plan(sweep: Sweep, runs: Iterable[Run]) -> None:
    """Write down what each of these runs is and how to repeat it, and keep the sweep file beside."""
    sweep.records.mkdir(parents=True, exist_ok=True)
    with atomic_write(sweep.records / "sweep.yaml") as file:
        file.write(read_text(sweep.file.path))
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
    from ilr.runs.schema import LoggedStep

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
            point = validated(plain_json.loads(decoded(directory.history, line), line), LoggedStep, "")
        except InputError:
            continue  # cut by the window, or being written
        step = point.step
        perplexity = perplexity if point.perplexity is None else point.perplexity
    return Progress(step, perplexity)
