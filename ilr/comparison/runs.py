"""What a run leaves in its directory, read back: summary, validation curve, likelihood per document."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ilr.errors import InputError
from ilr.files.plain_yaml import read_mapping
from ilr.files.readers import read_json, read_jsonl, validated
from ilr.files.text import MissingFile
from ilr.runs.identity import arm_hash, identity
from ilr.runs.option_schema import check_options
from ilr.runs.options import flat
from ilr.runs.schema import Result, Summary, ValidationPoint
from ilr.runs.tables import read_documents as read_table

Split = Literal["validation", "test"]
Figure = Literal["nats per token", "bits per byte"]
SPLITS: tuple[Split, ...] = ("validation", "test")
SUMMARY, HISTORY, DOCUMENTS, CONFIG = "summary.json", "history.jsonl", "documents.parquet", "config.yaml"


@dataclass(frozen=True, order=True)
class Seeds:
    """What was random in a run: two runs with equal seeds saw the same weights and the same order of data."""

    init: int
    data: int
    dropout: int = -1  # -1: as init, or nothing is dropped


@dataclass(frozen=True)
class Run:
    """One finished run: the part of its summary that a comparison needs.

    Field names are the keys of `summary.json`. A diverged run has null where a figure would be.
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
    identity: dict[str, Any] | None = None
    test_loss: float | None = None
    share_of_split: dict[str, float] | None = None

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


@dataclass(frozen=True)
class Reading:
    """What a run leaves beside its summary: its documents by split, and its curve."""

    documents: dict[Split, Documents]
    curve: Curve


@dataclass(frozen=True)
class Found:
    """What lies below some directories: runs that ended, directories of those that did not, and for each run
    that cannot be read the line that says why.
    """

    runs: tuple[Run, ...]
    unfinished: tuple[Path, ...] = ()
    stopped: tuple[Path, ...] = ()
    damaged: tuple[str, ...] = ()


def find_runs(paths: Iterable[Path]) -> Found:
    """All runs at or below these paths, by how they ended."""
    runs: list[Run] = []
    unfinished: list[Path] = []
    stopped: list[Path] = []
    damaged: list[str] = []
    for directory in sorted({found.resolve() for path in paths for found in _run_directories(path)}):
        try:
            summary = read_json(directory / SUMMARY, Summary)
            if summary.status == "stopped":
                stopped.append(directory)
            else:
                runs.append(
                    _run(
                        directory,
                        validated(summary.model_dump(exclude_unset=True), Result, directory / SUMMARY),
                    )
                )
        except MissingFile:
            unfinished.append(directory)
        except InputError as error:
            damaged.append(str(error))
    return Found(tuple(runs), tuple(unfinished), tuple(stopped), tuple(damaged))


def read_all(runs: Iterable[Run]) -> tuple[dict[Path, Reading], list[str]]:
    """Documents and curve of each run with a result, by its path; and for each that cannot be read the line
    that says why.
    """
    readings: dict[Path, Reading] = {}
    damaged: list[str] = []
    for run in runs:
        try:
            documents = read_documents(run)
            for split in SPLITS:
                if run.loss(split) is not None and split not in documents:
                    raise InputError(f"{run.path / DOCUMENTS} has no document of the split {split!r}")
            readings[run.path] = Reading(documents, read_curve(run))
        except InputError as error:
            damaged.append(str(error))
    return readings, damaged


def read_curve(run: Run) -> Curve:
    """The validations of a run, in order of tokens; empty where a run kept no history."""
    try:
        # Most lines are training points. Parsing only the others keeps 300 runs quick.
        points = read_jsonl(run.path / HISTORY, ValidationPoint, containing='"val/loss"')
    except MissingFile:
        return Curve(*np.empty((4, 0)))
    rows = [(point.tokens, point.training_flops, point.val_loss, point.val_bits_per_byte) for point in points]
    return Curve(*np.array(sorted(rows, key=lambda row: row[:2]), dtype=float).reshape(-1, 4).T)


def read_documents(run: Run) -> dict[Split, Documents]:
    """The documents of each split that was scored, sorted by name."""
    path = run.path / DOCUMENTS
    try:
        columns = read_table(path)
    except MissingFile:
        raise InputError(f"{run.path} has no {DOCUMENTS}; it is needed to pair runs by document") from None
    found: dict[Split, Documents] = {}
    for split in SPLITS:
        chosen = np.flatnonzero(columns["split"] == split)
        if len(chosen):
            chosen = chosen[np.argsort(columns["document"][chosen], kind="stable")]
            found[split] = Documents(
                *(columns[name][chosen] for name in ("document", "tokens", "bytes", "nll"))
            )
            if not np.isfinite(found[split].nll).all():
                raise InputError(
                    f"{path}: nll: got a {split} value that is no number, allowed: finite numbers"
                )
    return found


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


def _run(directory: Path, summary: Result) -> Run:
    values = {
        name: getattr(summary, name) for name in Run.__dataclass_fields__ if name not in ("path", "seeds")
    }
    values["identity"] = same = summary.identity or _identity_of_older(directory, summary)
    if same is not None:
        values["config_hash"] = arm_hash(same, summary.split_hashes, summary.tokenizer_hash)
    run = Run(path=directory, seeds=_seeds(summary, same), **values)
    # A loss that is not a number never counts as a result, whatever the run says of itself.
    losses = [loss for loss in (run.val_loss, run.test_loss) if loss is not None]
    broken = run.status == "finished" and (run.val_loss is None or not np.isfinite(losses).all())
    return replace(run, status="diverged") if broken else run


def _identity_of_older(directory: Path, summary: Result) -> dict[str, Any] | None:
    """What an earlier version did not write into its summary, from the configuration beside; None where that is
    missing, or another one's.
    """
    try:
        settings = flat(read_mapping(directory / CONFIG, "configuration"))
        check_options(settings, directory / CONFIG)
        found = identity(settings, {}, summary.world_size)
    except InputError:
        return None
    return found if found["operands"] == summary.operands else None


def _seeds(summary: Result, same: dict[str, Any] | None) -> Seeds:
    seeds = summary.seeds
    drops = same is not None and same.get("model.dropout")
    own = drops and seeds.dropout not in (None, seeds.init)
    return Seeds(seeds.init, seeds.data, seeds.dropout if own and seeds.dropout is not None else -1)
