"""Sweep files and finished runs for the tests of sweeps: made by hand, without training."""

import json
from pathlib import Path
from typing import Any

import yaml

from ilr.sweep.file import read_sweep
from ilr.sweep.runs import Run, Sweep, make_sweep
from ilr.sweep.state import note_plan, settle

BASE: dict[str, Any] = {
    "val_every": 10,
    "save_every": 10,
    "log_every": 5,
    "model": {"context": 32, "width": 16, "num_layers": 2, "num_heads": 2, "learning_rate": 3e-3},
    "data": {"corpus": "pydoc", "max_documents": 30, "vocab_size": 300, "batch_size": 2},
    "trainer": {"max_epochs": -1, "max_steps": 20, "accelerator": "cpu"},
}
"""Small enough that a run takes as long as its imports."""


def write_sweep(folder: Path, base: dict[str, Any] | None = None, **keys: Any) -> Path:
    """A sweep file and its base configuration in this folder."""
    (folder / "base.yaml").write_text(yaml.safe_dump(BASE if base is None else base))
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"base": "base.yaml", **keys}))
    return path


def sweep_of(folder: Path, base: dict[str, Any] | None = None, **keys: Any) -> Sweep:
    """The sweep of such a file, its runs below the folder."""
    return settle(make_sweep(read_sweep(write_sweep(folder, base, **keys)), folder / "runs"))


def finish(sweep: Sweep, run: Run, status: str = "finished", **figures: Any) -> None:
    """Leave what a run leaves at its end, as far as a sweep reads it."""
    note_plan(sweep, [run])
    run.directory.path.mkdir(parents=True, exist_ok=True)
    summary = {
        "status": status,
        "operands": [list(one) for one in run.arm.plan.operands],
        "steps": run.steps,
        "flops_per_token": run.cost.flops_per_token,
        "tokens_per_second": 1000.0,
        "val_loss": 3.0,
        "val_perplexity": 20.09,
        "test_loss": 3.1,
        "test_perplexity": 22.2,
        **figures,
    }
    run.directory.summary_path.write_text(json.dumps(summary))
