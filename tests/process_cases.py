"""Training in processes of its own, for the tests of kills, signals and several processes."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

SCRIPT = Path(__file__).parent.parent / "train_lm.py"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""The environment of each process."""


def fit_command(folder: Path, config: dict[str, Any], run: str, *options: str) -> list[str]:
    """`train_lm.py fit` in this folder: prepared data below ``cache``, the run below its name."""
    values = {**config, "data": {**config["data"], "cache_dir": str(folder / "cache")}}
    (folder / "c.yaml").write_text(yaml.safe_dump(values))
    files = ["-c", str(folder / "c.yaml"), "--run_dir", str(folder / run)]
    return [sys.executable, str(SCRIPT), "fit", *files, *options]
