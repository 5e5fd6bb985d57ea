"""Small trainings from the command line within this process, for the tests of what a run leaves and takes up."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from ilr.commands.train import main
from ilr.runs.directory import read_history

SMALL: dict[str, Any] = {
    "seed_everything": 1,
    "val_every": 4,
    "save_every": 3,
    "log_every": 2,
    "model": {"schedule": [2, 1], "context": 16, "width": 16, "num_layers": 2, "num_heads": 2},
    "data": {"vocab_size": 300, "batch_size": 2, "document": "line"},
    "trainer": {"max_epochs": -1, "max_steps": 10, "enable_progress_bar": False, "accelerator": "cpu"},
}
CLOCKS = ("train/tokens_per_second", "train/data_wait")
"""Figures of the history that the machine's load changes."""

OF_THE_START = ("tokens_per_second", "command", "checkpoints", "git_commit", "git_dirty")
"""Fields of the summary that differ between equal runs: speed, how it was started, where it lies."""


def write_config(folder: Path) -> Path:
    """A configuration over a text of its own, in this folder."""
    lines = [f"the square of {n} is {n * n}, and its cube is {n**3}.\n" for n in range(300)]
    (folder / "squares.txt").write_text("".join(lines))
    data = {**SMALL["data"], "corpus": str(folder / "squares.txt"), "cache_dir": str(folder / "cache")}
    (folder / "small.yaml").write_text(yaml.safe_dump({**SMALL, "data": data}))
    return folder / "small.yaml"


def fit(config: Path, directory: Path, *options: str) -> int:
    return main(["fit", "-c", str(config), "--run_dir", str(directory), *options])


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that must be refused says; it must be one short message with exit status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        main(list(arguments))
    error = capsys.readouterr().err
    assert exit.value.code == 2, error
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 2, error
    return error


def summary_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "summary.json").read_text())  # type: ignore[no-any-return]


def record_of(directory: Path) -> dict[str, Any]:
    """All that a run leaves but times and places: summary, documents and history."""
    history = read_history(directory / "history.jsonl")
    return {
        "summary": {key: value for key, value in summary_of(directory).items() if key not in OF_THE_START},
        "documents": pq.read_table(directory / "documents.parquet").to_pylist(),
        "history": [{tag: v for tag, v in point.items() if tag not in CLOCKS} for point in history],
    }
