"""The folder of one run: what lies in it, whether it is finished, and how files get there whole. No torch."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ilr.errors import InputError


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
        """The summary, or None where the run is not finished."""
        if not self.summary_path.is_file():
            return None
        try:
            summary = json.loads(self.summary_path.read_text())
        except json.JSONDecodeError:
            return None
        return summary if isinstance(summary, dict) and "status" in summary else None

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
    """The points of a history.jsonl; a last line cut short by a kill is left out."""
    if not path.is_file():
        return []
    points = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            points.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return points
