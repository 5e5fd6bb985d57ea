"""What a run leaves in its directory, read back: summary, validation curve, likelihood per document."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import yaml

from ilr.errors import InputError

try:
    from yaml import CSafeLoader as YAMLLoader
except ImportError:  # a PyYAML built without libyaml: the same, slower
    from yaml import SafeLoader as YAMLLoader  # type: ignore[assignment]

Split = Literal["validation", "test"]
Figure = Literal["nats per token", "bits per byte"]
SUMMARY, HISTORY, DOCUMENTS, CONFIG = "summary.json", "history.jsonl", "documents.parquet", "config.yaml"


@dataclass(frozen=True, order=True)
class Seeds:
    """What was random in a run: two runs with equal seeds saw the same weights and the same order of data."""

    init: int
    data: int


@dataclass(frozen=True)
class Run:
    """One finished run: the part of its summary that a comparison needs.

    Field names are the keys of `summary.json`; those with a default may be absent there. A diverged
    run has null where a figure would be.
    """

    path: Path
    status: Literal["finished", "diverged"]
    label: str
    schedule: Any
    operands: Any
    depth: int
    sharing: Any
    positions: str
    injection: Any
    seeds: Seeds
    tokens: int
    training_flops: int
    parameters: int
    flops_per_token: int
    learning_rate: float
    held_equal: str | None
    val_loss: float | None
    tokens_per_second: float | None
    split_hashes: dict[str, str]
    tokenizer_hash: str
    precision: str | None = None
    corpus_hash: str | None = None
    config_hash: str | None = None
    test_loss: float | None = None

    def loss(self, split: Split) -> float | None:
        """NLL per token that the run itself reported for this split."""
        return self.test_loss if split == "test" else self.val_loss


@dataclass(frozen=True)
class Curve:
    """Validation during training: one entry per validation, loss in nats per token."""

    tokens: np.ndarray
    training_flops: np.ndarray
    loss: np.ndarray
    bits_per_byte: np.ndarray

    def scores(self, figure: Figure) -> np.ndarray:
        """The loss in this unit."""
        return self.loss if figure == "nats per token" else self.bits_per_byte


@dataclass(frozen=True)
class Documents:
    """Likelihood by document: one entry per document."""

    document: np.ndarray  # its name or number
    tokens: np.ndarray  # scored ones
    bytes: np.ndarray  # of its text in UTF-8
    nll: np.ndarray  # sum over its tokens, in nats


_DOCUMENT_COLUMNS = [column.name for column in fields(Documents)]


def find_runs(paths: Iterable[Path]) -> tuple[list[Run], list[Path]]:
    """All finished or diverged runs at or below these paths, and the directories of the unfinished ones."""
    finished: list[Run] = []
    unfinished: list[Path] = []
    for directory in sorted({found.resolve() for path in paths for found in _run_directories(path)}):
        summary = _summary(directory)
        if summary is None:
            unfinished.append(directory)
        else:
            finished.append(_run(directory, summary))
    return finished, unfinished


def read_curve(run: Run) -> Curve:
    """The validations of a run, in order of tokens; empty where a run kept no history."""
    path = run.path / HISTORY
    if not path.exists():
        return Curve(*np.empty((4, 0)))
    # Most lines are training points. Parsing only the others, and those in one go, keeps 300 runs quick.
    lines = path.read_text(encoding="utf-8").split("\n")
    validations = [line for line in lines if '"val/loss"' in line]
    try:
        points = json.loads(f"[{','.join(validations)}]")
        rows = [
            (
                point["tokens"],
                point["training_flops"],
                point["val/loss"],
                point.get("val/bits_per_byte", np.nan),
            )
            for point in points
        ]
    except json.JSONDecodeError:
        number = next(i for i, line in enumerate(lines, 1) if line in validations and not _is_json(line))
        raise InputError(f"{path}, line {number}, is not JSON") from None
    except KeyError as error:
        raise InputError(f"{path}: a validation lacks the key {error}") from None
    return Curve(*np.array(sorted(rows), dtype=float).reshape(-1, 4).T)


def read_options(run: Run) -> dict[str, str]:
    """The options that a run was started with, flat (`model.width`) and as text; none if unreadable."""
    try:
        tree = yaml.load((run.path / CONFIG).read_text(encoding="utf-8"), YAMLLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return dict(_flat("", tree))


def read_documents(run: Run, split: Split) -> Documents:
    """The documents of a split, sorted by name."""
    path = run.path / DOCUMENTS
    try:
        with parquet.ParquetFile(path) as file:
            missing = sorted({"split", *_DOCUMENT_COLUMNS} - set(file.schema_arrow.names))
            if missing:
                raise InputError(f"{path} lacks the column(s) {', '.join(missing)}")
            table = file.read(["split", *_DOCUMENT_COLUMNS])
    except FileNotFoundError:
        raise InputError(f"{run.path} has no {DOCUMENTS}; it is needed to pair runs by document") from None
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    chosen = np.flatnonzero(columns["split"] == split)
    if not len(chosen):
        raise InputError(f"{path} has no document of the split {split!r}")
    chosen = chosen[np.argsort(columns["document"][chosen], kind="stable")]
    return Documents(*(columns[name][chosen] for name in _DOCUMENT_COLUMNS))


def _run_directories(path: Path) -> list[Path]:
    """Directories that hold what a run writes, from its first file on."""
    if not path.is_dir():
        raise InputError(f"{path} is not a directory; give run directories, or a directory above them")
    candidates = []
    for name, below, files in os.walk(path):
        below[:] = [directory for directory in below if directory != "checkpoints"]
        if not {CONFIG, HISTORY, SUMMARY}.isdisjoint(files):
            candidates.append(Path(name))
    # A directory above runs may hold a config.yaml of its own (a sweep's base): it is not a run.
    above = {parent for candidate in candidates for parent in candidate.parents}
    return [candidate for candidate in candidates if candidate not in above]


def _summary(directory: Path) -> dict[str, Any] | None:
    """A complete summary, or None where the run has not ended."""
    try:
        summary = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    complete = isinstance(summary, dict) and summary.get("status") in ("finished", "diverged")
    return summary if complete else None


def _run(directory: Path, summary: dict[str, Any]) -> Run:
    values = {}
    for key in fields(Run):
        if key.name == "path":
            continue
        if key.name in summary:
            values[key.name] = summary[key.name]
        elif key.default is not None:
            raise InputError(f"{directory / SUMMARY} lacks the key {key.name!r}")
    try:
        values["seeds"] = Seeds(init=values["seeds"]["init"], data=values["seeds"]["data"])
    except (KeyError, TypeError):
        raise InputError(f"{directory / SUMMARY}: 'seeds' must hold 'init' and 'data'") from None
    run = Run(path=directory, **values)
    # A loss that is not a number never counts as a result, whatever the run says of itself.
    losses = [loss for loss in (run.val_loss, run.test_loss) if loss is not None]
    broken = run.status == "finished" and (run.val_loss is None or not np.isfinite(losses).all())
    return replace(run, status="diverged") if broken else run


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def _flat(prefix: str, tree: object) -> Iterator[tuple[str, str]]:
    if not isinstance(tree, dict):
        yield prefix, str(tree)
        return
    for key, value in tree.items():
        yield from _flat(f"{prefix}.{key}" if prefix else str(key), value)
