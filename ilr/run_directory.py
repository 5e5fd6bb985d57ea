"""The folder of one run: what lies in it, whether it is finished, and how files get there whole. No torch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ilr.errors import InputError
from ilr.runs.files import MissingFile
from ilr.runs.readers import read_json, read_jsonl


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
            raise InputError(f"cannot write to --run_dir {self.path}: {error.strerror}") from error
        return missing


@contextmanager
def atomic_write(path: Path, mode: Literal["w", "wb"] = "w") -> Iterator[IO[Any]]:
    """A file that appears under ``path`` whole or not at all: written beside it, synced, renamed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open(mode, encoding="utf-8" if mode == "w" else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_history(path: Path) -> list[dict[str, Any]]:
    """The points of a history.jsonl; a last line cut short by a kill is left out.

    Raises `InputError` that names the line where another one is damaged.
    """
    from ilr.runs.schema import Point

    try:
        return [point.model_dump() for point in read_jsonl(path, Point)]
    except MissingFile:
        return []
