"""Values in a run's configuration and in its checkpoints that fit nothing: one line that names them, no traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from run_cases import fit, refusal, write_config

from ilr.commands.evaluate import main as evaluate
from ilr.commands.train import main as train

STOPPING = {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}}
VALUES: list[tuple[str, str, Any, str]] = [
    ("trainer", "callbacks", ["NoSuch"], "Expected a dot import path"),
    ("trainer", "callbacks", [{"class_path": "EarlyStopping"}], "missing 1 required positional argument"),
    ("trainer", "callbacks", [{**STOPPING, "init_args": {"monitor": "a", "no": 1}}], "unexpected keyword argument"),
    ("trainer", "callbacks", [{"class_path": "Timer", "init_args": {"duration": "x"}}], "not a valid duration"),
    ("trainer", "profiler", {}, "Not a valid subclass"),
    ("trainer", "precision", "nope", "32-true"),
    ("trainer", "strategy", {}, "Not a valid subclass"),
    ("trainer", "plugins", "x", "Expected a dot import path"),
    ("trainer", "logger", [{}], "Not a valid subclass"),
    ("trainer", "deterministic", "x", "warn"),
    ("data", "duplicates", "x", "keep"),
    ("data", "splits", [1.0, 0.0], "3 elements"),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    assert fit(write_config(folder), folder / "run") == 0
    return folder / "run"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    return tmp_path / "run"


@pytest.mark.parametrize(("section", "key", "value", "why"), VALUES, ids=[f"{v[1]} {v[2]}" for v in VALUES])
def test_a_value_that_fits_no_option_is_named_with_what_is_allowed(
    copy: Path, capsys: pytest.CaptureFixture[str], section: str, key: str, value: Any, why: str
) -> None:
    """Bad input, point 20: the values of a run's configuration pass no parser of the command line."""
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings[section][key] = value
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    before = sorted(copy.rglob("*"))
    error = refusal(capsys, "fit", "--run_dir", str(copy), "--resume", "auto")
    assert f"--{section}.{key}: got {value}" in error
    assert why in error
    assert {path for path in copy.rglob("*") if path.name != ".lock"} == set(before) - {copy / ".lock"}


def _changed(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda checkpoint: {**checkpoint, **values}


CHECKPOINTS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "no place of the training": (_changed(ilr={}), "does not say where its training was"),
    "a place of another kind": (
        _changed(ilr={"window": {"nll": "x"}, "horizon": 10}),
        "does not say where its training was",
    ),
    "no loops": (_changed(loops={}), "does not say where its training was"),
    "sparse weights": (
        lambda found: {**found, "state_dict": {n: t.to_sparse() for n, t in found["state_dict"].items()}},
        "embedding.weight is torch.sparse_coo, allowed: dense",
    ),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_of_odd_content_is_refused_in_a_line(
    copy: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """Bad input, point 24."""
    change, message = CHECKPOINTS[case]
    path = copy / "checkpoints" / "step-00000010.ckpt"
    torch.save(change(torch.load(path, weights_only=True)), path)
    commands: list[tuple[Callable[[list[str]], int], list[str]]] = [
        (train, ["validate", "--ckpt_path", str(path)]),
        (train, ["fit", "--ckpt_path", str(path)]),
    ]
    if case == "sparse weights":
        commands.append((evaluate, [str(path)]))
    for command, words in commands:
        with pytest.raises(SystemExit, match="2"):
            command(words)
        assert message in capsys.readouterr().err.splitlines()[-1]
