"""The folder of one run: what lies in it, whether it is finished, and how files get there whole. No torch."""

import glob
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ilr.errors import InputError
from ilr.files.places import naming, remove_empty
from ilr.files.readers import read_json, read_jsonl
from ilr.files.text import MissingFile

OF_A_START = ("config.yaml", "config-resume-*.yaml")
OF_TRAINING = ("history.jsonl", "documents.parquet", "summary.json", "tokenizer.json")
EVENTS = "events.out.tfevents.*"
OF_CHECKPOINTS = ("record.json", "*.ckpt")
"""Names of what a training run writes, in its directory and (the last) in the folder of its checkpoints."""

OF_OTHERS = ("evaluation-*.json", "evaluation", "analysis")
"""Names of what other commands write about a run in its directory."""


@dataclass(frozen=True)
class RunDirectory:
    """Paths of one run's files (names: config.yaml, history.jsonl, summary.json, …)."""

    path: Path

    @property
    def config(self) -> Path:
        """The effective configuration; running from it repeats the run."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoint files and their record."""
        return self.path / "checkpoints"

    @property
    def history(self) -> Path:
        """Every logged point, one JSON object a line: the record of the curves."""
        return self.path / "history.jsonl"

    @property
    def documents(self) -> Path:
        """NLL of each evaluated document."""
        return self.path / "documents.parquet"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer that the run used."""
        return self.path / "tokenizer.json"

    @property
    def summary_path(self) -> Path:
        """Written last: its presence means that the run is finished."""
        return self.path / "summary.json"

    def summary(self) -> dict[str, Any] | None:
        """The summary with every key of its schema, or None where the run has not ended.

        Raises `InputError` where the file is damaged.
        """
        from ilr.runs.schema import Summary  # pydantic takes time to load, and most commands read no summary

        try:
            return read_json(self.summary_path, Summary).model_dump()
        except MissingFile:
            return None

    def has_run(self) -> bool:
        """Whether something has been started here."""
        return self.config.is_file() or self.history.is_file() or self.summary_path.is_file()

    def next_config(self) -> Path:
        """Where this start's configuration goes: config.yaml first, then config-resume-N.yaml."""
        if not self.config.is_file():
            return self.config
        number = 1
        while (path := self.path / f"config-resume-{number}.yaml").exists():
            number += 1
        return path

    def leftovers(self) -> list[Path]:
        """What lies here of a run that has no configuration any more: another run must not take it for its own."""
        if self.config.is_file():
            return []
        names = (*OF_A_START, *OF_TRAINING, EVENTS, *OF_OTHERS)
        found = [path for name in names for path in sorted(self.path.glob(name))]
        return found + [path for name in OF_CHECKPOINTS for path in sorted(self.checkpoints.glob(name))]

    def clear(self) -> None:
        """Take away what a run without a checkpoint left; its configuration last, which says that it was one."""
        for name in ("record.json", "step-*.ckpt"):
            _delete(self.checkpoints.glob(name))
        for name in (*OF_TRAINING, EVENTS, *reversed(OF_A_START)):
            _delete(self.path.glob(name))

    def reopen(self) -> None:
        """Take away what said that a run had ended, which now goes on."""
        for path in (self.summary_path, self.documents):
            path.unlink(missing_ok=True)

    def clear_partial(self) -> None:
        """Take away what a killed training run was writing; only who holds the lock may call it."""
        for name in (*OF_A_START, *OF_TRAINING):
            _delete(self.path.glob(f".{name}.*.partial"))
        for name in OF_CHECKPOINTS:
            _delete(self.checkpoints.glob(f".{name}.*.partial"))
        _delete(self.checkpoints.glob("*.ckpt.partial"))  # as earlier versions called them
        _delete(self.path.glob("documents.partial"))

    def create(self) -> list[Path]:
        """Make the folder; the folders made, outermost first. Raises `InputError` where that fails."""
        wanted = [self.checkpoints, self.path, *self.path.parents]
        missing = [path for path in wanted if not path.exists()][::-1]
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            remove_empty(missing[::-1])
            raise InputError(f"cannot write to --run_dir {self.path}: {error.strerror}") from error
        return missing


def _delete(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """A file that appears under ``path`` whole or not at all: written beside it, synced, renamed.

    What a process that was killed left of the same file goes. Raises an `OSError` that names ``path`` where it
    cannot be written, a full disk included.
    """
    _clear_partial(path)
    partial = path.with_name(f"{_partial_stem(path)}{os.getpid()}@{socket.gethostname()}.partial")
    with naming(path):
        try:
            with partial.open(mode, encoding="utf-8" if mode == "w" else None) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _partial_stem(path: Path) -> str:
    """How the names of half-written files for ``path`` begin: a name has at most 255 bytes, with what is added."""
    return f".{path.name[:150]}."


def _clear_partial(target: Path) -> None:
    """Delete half-written files for ``target`` whose writer, a process of this machine, runs no more."""
    ending = f"@{socket.gethostname()}.partial"
    for path in target.parent.glob(glob.escape(_partial_stem(target)) + "*" + glob.escape(ending)):
        import psutil  # rarely needed

        writer = path.name.removesuffix(ending).rsplit(".", 1)[-1]
        if writer.isdecimal() and not psutil.pid_exists(int(writer)):
            path.unlink(missing_ok=True)


def read_history(path: Path) -> list[dict[str, Any]]:
    """The points of a history.jsonl; a last line cut short by a kill is left out.

    Raises `InputError` that names the line where another one is damaged.
    """
    from ilr.runs.schema import Point

    try:
        return [point.model_dump() for point in read_jsonl(path, Point)]
    except MissingFile:
        return []
