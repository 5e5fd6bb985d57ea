"""The table's figures, its forms, and what is said before it."""

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_cases import write_run
from rich.console import Console
from test_compare_arms import row, sweep

from ilr.comparison.analysis import compare
from ilr.comparison.notes import notes
from ilr.comparison.reach import first_crossing
from ilr.comparison.report import COLUMNS, csv, markdown, print_report

SPENT = np.array([1.0, 2.0, 3.0, 4.0])
LOSS = np.array([5.0, 4.0, 3.5, 3.0])


@pytest.mark.parametrize(
    ("target", "expected"),
    [(3.75, 2.5), (4.0, 2.0), (6.0, 1.0), (3.0, 4.0), (2.9, math.inf), (math.nan, math.nan)],
)
def test_the_first_crossing_is_interpolated(target: float, expected: float) -> None:
    assert first_crossing(SPENT, LOSS, target) == pytest.approx(expected, nan_ok=True)


def test_a_validation_without_a_number_neither_crosses_nor_hides_a_crossing() -> None:
    loss = np.array([5.0, math.nan, 3.5, 3.0])
    assert first_crossing(SPENT, loss, 3.75) == pytest.approx(1 + 2 * 1.25 / 1.5)
    assert first_crossing(SPENT[:0], loss[:0], 3.75) != first_crossing(SPENT[:0], loss[:0], 3.75)


def test_a_row_holds_what_its_runs_hold(tmp_path: Path) -> None:
    sizes = (100, 300)
    for seed, (a, b) in enumerate([((3.0, 4.0), (2.8, 3.9)), ((3.1, 4.1), (2.9, 3.9))], 1):
        write_run(tmp_path / f"a{seed}", "1-1", (seed, seed), a, documents=sizes)
        write_run(tmp_path / f"b{seed}", "2-1", (seed, seed), b, documents=sizes)
    arm = row(compare([tmp_path]), "2-1")
    losses = np.array([(280 + 1170) / 400, (290 + 1170) / 400])
    assert arm["nll_mean"] == pytest.approx(losses.mean())
    assert arm["nll_sd"] == pytest.approx(losses.std(ddof=1))
    assert arm["perplexity"] == pytest.approx(math.exp(losses.mean()))
    assert arm["bits_per_byte"] == pytest.approx(losses.mean() / math.log(2) / 4)
    assert arm["delta"] == pytest.approx(losses.mean() - np.mean([3.75, 3.85]))
    assert arm["training_flops"] == arm["tokens"] * arm["flops_per_token"]
    assert (arm["depth"], arm["seeds"], arm["held_equal"]) == (3, 2, "tokens")


def test_cost_to_reach_the_baseline_is_in_flops_and_seconds_of_the_arm_itself(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1", "2-1"], seeds=2)  # the second is better by 0.05
    comparison = compare([tmp_path])
    base, arm = row(comparison, "1-1"), row(comparison, "2-1")
    assert base["flops_to_baseline"] == base["training_flops"]
    assert base["seconds_to_baseline"] == pytest.approx(base["tokens"] / base["tokens_per_second"])
    assert arm["flops_to_baseline"] < arm["training_flops"]
    tokens = arm["flops_to_baseline"] / arm["flops_per_token"]
    assert arm["seconds_to_baseline"] == pytest.approx(tokens / arm["tokens_per_second"], rel=1e-5)
    worse = row(compare([tmp_path], baseline="2-1"), "1-1")
    assert worse["flops_to_baseline"] == math.inf


def test_arms_come_best_first_and_diverged_ones_last(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1", "2-1-1-1", "3-1-1-1"])
    write_run(tmp_path / "lost", "9-1-1-1", status="diverged", val_loss=None, test_loss=None)
    comparison = compare([tmp_path])
    (tmp_path / "comparison.csv").write_text(csv(comparison))
    table = pd.read_csv(tmp_path / "comparison.csv")
    assert table["label"].tolist() == ["3-1-1-1", "2-1-1-1", "1-1-1-1", "9-1-1-1"]
    assert table["verdict"].tolist() == ["better", "better", "baseline", "diverged"]
    assert math.isnan(table["nll_mean"][3])
    lines = [line for line in markdown(comparison).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert all(line.count("|") == len(COLUMNS) + 1 for line in lines)


@pytest.mark.parametrize("width", [60, 100, 400])
def test_a_narrow_terminal_gets_every_column_in_blocks_that_name_the_arms(tmp_path: Path, width: int) -> None:
    comparison = compare([sweep(tmp_path, ["1-1-1-1", "2-1-1-1"])])
    text = io.StringIO()
    print_report(comparison, Console(file=text, width=width))
    printed = text.getvalue()
    assert all(name in printed for name, _ in COLUMNS)
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    blocks = sum(line.split()[:1] == ["label"] for line in printed.splitlines())
    assert (blocks == 1) == (width == 400)


def test_a_label_in_brackets_is_printed_as_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", learning_rate=0.001)
    text = io.StringIO()
    print_report(compare([tmp_path]), Console(file=text, width=400))
    assert "1-1-1-1 [learning_rate=0.001]" in text.getvalue()


def test_the_noise_of_seeds_is_said_first(tmp_path: Path) -> None:
    comparison = compare([sweep(tmp_path, ["1-1-1-1", "2-1-1-1"], seeds=3)])
    first = notes(comparison)[0]
    assert first.startswith(
        f"Seed noise floor: sd {math.sqrt(comparison.noise.residual_variance):.2g} nats per token"
    )


def test_one_seed_is_labelled_and_has_no_p(tmp_path: Path) -> None:
    comparison = compare([sweep(tmp_path, ["1-1-1-1", "2-1-1-1"], seeds=1)])
    assert notes(comparison)[0].startswith("Seed noise floor: unknown")
    arm = row(comparison, "2-1-1-1")
    assert arm["interval_covers"] == "documents only"
    assert math.isnan(arm["p_adjusted"])
    assert arm["verdict"] == "seed noise unknown"


def test_a_much_noisier_arm_is_said_and_named_differently(tmp_path: Path) -> None:
    noise = {"1-1": (0.0, 0.001, -0.001), "2-1": (0.0, 0.04, -0.05), "1-2": (0.001, 0.0, -0.001)}
    for label, shifts in noise.items():
        for seed, shift in enumerate(shifts, 1):
            write_run(tmp_path / f"{label}-{seed}", label, (seed, seed), np.full(20, 3.0) + shift)
    assert any("The arms' seed variances differ" in note for note in notes(compare([tmp_path])))


def test_unequal_cost_is_warned_of_and_equal_flops_are_not(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "1", "1-1", tokens=1_000_000)
    write_run(tmp_path / "a" / "2", "2-1", tokens=2_000_000)
    assert any(
        "equal neither in tokens nor in training FLOPs" in note for note in notes(compare([tmp_path / "a"]))
    )
    for label, flops in (("1-1", 620_000), ("2-1", 880_000)):
        write_run(tmp_path / "b" / label, label, tokens=10**9 // flops, training_flops=10**9)
    assert not any("equal neither" in note for note in notes(compare([tmp_path / "b"])))


def test_unfinished_runs_are_listed(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1"])
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "config.yaml").write_text("{}")
    assert any(note.startswith("Unfinished, not compared (1): ") for note in notes(compare([tmp_path])))
