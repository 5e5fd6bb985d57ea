"""A run that cannot be read, or whose figures are infinite, takes nothing else down."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_cases import write_run
from damage_cases import KINDS, damaged

from ilr.commands.compare import main
from ilr.comparison.analysis import compare

FILES = ("summary.json", "history.jsonl", "documents.parquet")


def sweep(folder: Path) -> None:
    """Two arms with two seeds."""
    for label in ("1-1-1-1", "2-1-1-1"):
        for seed in (1, 2):
            write_run(
                folder / f"{label}-s{seed}", label, (seed, seed), nll=(3 + seed / 100, 4 - len(label) / 9)
            )


@pytest.mark.parametrize("file", FILES)
def test_the_others_are_compared_and_the_damaged_run_is_named(file: str, tmp_path: Path) -> None:
    """Right numbers, point 20: one line for the run, the figures of the others as without it."""
    sweep(tmp_path)
    without = compare([tmp_path]).table
    bad = write_run(tmp_path / "bad", "3-1-1-1") / file
    whole = bad.read_bytes()
    for kind in KINDS:
        if file == "history.jsonl":
            bad.write_bytes(whole + damaged(kind, whole) + b'\n{"val/loss": \n')
        else:
            # Of a table its end says where all else lies, so that what stands before it does no harm.
            bad.write_bytes(damaged(kind, whole).removesuffix(whole))
        found = compare([tmp_path])
        assert len(found.damaged) == 1, kind
        assert str(bad) in found.damaged[0], kind
        pd.testing.assert_frame_equal(found.table, without)


def test_a_run_left_out_is_said_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right numbers, point 20."""
    sweep(tmp_path)
    bad = write_run(tmp_path / "bad", "3-1-1-1") / "documents.parquet"
    bad.write_bytes(b"PAR1")
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert str(bad) in said.err
    assert len(said.err.splitlines()) == 1
    assert "Warning: left out, its files cannot be used" in said.out


def test_only_damaged_runs_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right numbers, point 20."""
    (write_run(tmp_path / "bad") / "summary.json").write_text("3")
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "no finished run found" in said
    assert "bad/summary.json: got 3, allowed: an object" in said
    assert len(said.splitlines()) == 1


def test_a_run_of_infinite_perplexity_is_a_row_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 19: a loss of 800 nats is finite, its exponential is not."""
    sweep(tmp_path)
    with np.errstate(over="ignore"):
        for seed in (1, 2):
            write_run(tmp_path / f"high-{seed}", "3-1-1-1", (seed, seed), nll=(900.0, 800.0 + seed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "comparison" / "comparison.csv", index_col="label")
    assert table.loc["3-1-1-1", "perplexity"] == np.inf
    assert table.loc["3-1-1-1", "nll_mean"] == pytest.approx((900 + 801.5) / 2)
    assert np.isfinite(table.loc[["1-1-1-1", "2-1-1-1"], "perplexity"]).all()
    assert "infinite" in capsys.readouterr().out


def test_all_runs_may_be_of_infinite_perplexity(tmp_path: Path) -> None:
    """Right numbers, point 19."""
    with np.errstate(over="ignore"):
        for label in ("1-1-1-1", "2-1-1-1"):
            for seed in (1, 2):
                write_run(tmp_path / f"{label}-{seed}", label, (seed, seed), nll=(900.0, 800.0 + seed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([str(tmp_path)]) == 0
