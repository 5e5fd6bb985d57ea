"""Reading run directories."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare_cases import write_run

from ilr.comparison.runs import Seeds, find_runs, read_all, read_curve, read_documents
from ilr.errors import InputError


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "3-2-1-1", (7, 8), nll=(3.0, 4.0), documents=(100, 300), points=4)
    found = find_runs([tmp_path])
    [run] = found.runs
    assert not found.unfinished
    assert run.label == "3-2-1-1"
    assert run.seeds == Seeds(init=7, data=8)
    assert run.val_loss == pytest.approx((300 + 1200) / 400)
    curve = read_curve(run)
    assert curve.tokens.tolist() == [250_000, 500_000, 750_000, 1_000_000]
    assert curve.loss[-1] == pytest.approx(run.val_loss)
    assert read_documents(run)["test"].nll.tolist() == [300.0, 1200.0]


def test_runs_are_found_below_any_directory_and_counted_once(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a" / "deep" / "one")
    write_run(tmp_path / "b" / "two", seed=(2, 2))
    (tmp_path / "a" / "config.yaml").write_text("a sweep's base, not a run")
    found = find_runs([tmp_path, tmp_path / "a", one])
    assert sorted(run.path.name for run in found.runs) == ["one", "two"]
    assert found.unfinished == ()


def test_a_run_without_a_summary_is_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path / "done")
    started = tmp_path / "started"
    started.mkdir()
    (started / "config.yaml").write_text("{}")
    found = find_runs([tmp_path])
    assert [run.path.name for run in found.runs] == ["done"]
    assert found.unfinished == (started.resolve(),)


def test_a_run_stopped_before_its_last_step_is_told_apart(tmp_path: Path) -> None:
    """Right numbers, point 14."""
    write_run(tmp_path / "done")
    write_run(tmp_path / "early", status="stopped")
    found = find_runs([tmp_path])
    assert [run.path.name for run in found.runs] == ["done"]
    assert found.stopped == ((tmp_path / "early").resolve(),)


@pytest.mark.parametrize("content", ["", '{"status": "finis', '{"status": "running"}', "[]"])
def test_a_damaged_summary_is_named_and_the_other_runs_are_read(tmp_path: Path, content: str) -> None:
    """Right numbers, point 20."""
    write_run(tmp_path / "done")
    (write_run(tmp_path / "bad") / "summary.json").write_text(content)
    found = find_runs([tmp_path])
    assert [run.path.name for run in found.runs] == ["done"]
    assert len(found.damaged) == 1
    assert "bad/summary.json" in found.damaged[0]


@pytest.mark.parametrize("key", ["label", "tokens", "split_hashes", "seeds", "held_equal"])
def test_a_missing_key_is_named_together_with_its_run(tmp_path: Path, key: str) -> None:
    path = write_run(tmp_path / "run") / "summary.json"
    summary = json.loads(path.read_text())
    del summary[key]
    path.write_text(json.dumps(summary))
    [line] = find_runs([tmp_path]).damaged
    assert f"run/summary.json: lacks the key '{key}'" in line


def test_seeds_without_init_or_data_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "run", seeds={"global": 1})
    [line] = find_runs([tmp_path]).damaged
    assert "lacks the key 'seeds.init'" in line


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_a_loss_that_is_no_number_is_a_diverged_run_whatever_its_status_says(
    tmp_path: Path, loss: float | None
) -> None:
    write_run(tmp_path / "run", val_loss=loss)
    [run] = find_runs([tmp_path]).runs
    assert run.status == "diverged"


def test_a_path_that_is_no_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a directory"):
        find_runs([tmp_path / "nowhere"])


def test_a_broken_line_of_the_history_is_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", points=2)
    with (directory / "history.jsonl").open("a") as file:
        file.write('{"step": 3, "val/loss": \n')
    [run] = find_runs([tmp_path]).runs
    with pytest.raises(InputError, match=r"history.jsonl, line 5 is not JSON"):
        read_curve(run)


def test_missing_or_unreadable_documents_are_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    [run] = find_runs([tmp_path]).runs
    (directory / "documents.parquet").write_bytes(b"not a table")
    with pytest.raises(InputError, match="parquet cannot be read"):
        read_documents(run)
    (directory / "documents.parquet").unlink()
    with pytest.raises(InputError, match="it is needed to pair runs"):
        read_documents(run)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("tokens", ["a", "b"], "tokens: got a column of (large_)?string, allowed: whole numbers"),
        ("tokens", [1, None], "tokens: got a column of double|tokens: got 1 entries without"),
        ("bytes", [1, -1], "bytes: got -1, allowed: at least 0"),
        ("nll", ["a", "b"], "nll: got a column of (large_)?string, allowed: numbers"),
        ("nll", [1.0, np.inf], "nll: got a test value that is no number"),
        ("split", [1, 2], "split: got a column of int64, allowed: text"),
        ("document", [0.5, 1.5], "document: got a column of double"),
        ("split", ["train", "train"], "has no document of the split 'validation'"),
    ],
)
def test_a_column_that_is_not_what_it_should_be_is_named(
    column: str, values: list[Any], said: str, tmp_path: Path
) -> None:
    """Right numbers, point 20."""
    directory = write_run(tmp_path / "run")
    table = pd.DataFrame(
        {"split": ["test"] * 2, "document": [0, 1], "tokens": [5, 5], "bytes": [9, 9], "nll": [1.0, 2.0]}
    )
    table.assign(**{column: values}).to_parquet(directory / "documents.parquet")
    [line] = read_all(find_runs([tmp_path]).runs)[1]
    assert re.search(said, line), line
    assert "documents.parquet" in line
