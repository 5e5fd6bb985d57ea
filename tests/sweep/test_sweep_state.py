"""What is done, what is left, and what a sweep says about itself, from run directories alone."""

import csv
import inspect
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from compare_cases import write_run
from sweep_cases import finish, sweep_of, write_sweep

from ilr.commands import sweep as command
from ilr.comparison.statistics import effects, verdicts
from ilr.errors import InputError
from ilr.files.lock import held
from ilr.model.config import DecoderConfig
from ilr.runs.options import defaults_of
from ilr.sweep import dry_run, learning_rates
from ilr.sweep.detectable import Noise, detectable, measured
from ilr.sweep.display import Display, duration
from ilr.sweep.settings import BATCH_SIZE
from ilr.sweep.state import note_plan, progress_of, record_of, settle, state_of


def test_a_summary_decides_and_the_record_adds_what_it_cannot_say(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1], [3, 1], [4, 1], [5, 1]])
    finished, diverged, failed, begun, _ = sweep.runs
    finish(sweep, finished)
    finish(sweep, diverged, "diverged")
    note_plan(sweep, [failed])
    record_of(sweep, failed).update(state="failed", reason="out of luck")
    begun.directory.path.mkdir()
    begun.directory.history.write_text("")
    assert [state_of(sweep, run) for run in sweep.runs] == [
        *("finished", "diverged", "failed", "interrupted", "waiting")
    ]
    record_of(sweep, finished).update(state="failed")
    assert state_of(sweep, finished) == "finished"


def test_seeds_arms_and_names_can_be_added_to_a_finished_sweep(tmp_path: Path) -> None:
    before = sweep_of(tmp_path, arms=[[1, 1]], seeds=[0])
    finish(before, before.runs[0])
    after = sweep_of(tmp_path, arms=[[1, 1], [2, 1]], seeds=[0, 1], learning_rates=[3e-3, 1e-3])
    done = [run.name for run in after.runs if state_of(after, run) == "finished"]
    assert len(after.runs) == 8
    assert done == ["1-1-s0"]  # the base's learning rate is in the grid: found by its key, under its old name


def test_a_directory_that_holds_another_configuration_is_refused(tmp_path: Path) -> None:
    before = sweep_of(tmp_path, arms=[[1, 1]])
    finish(before, before.runs[0])
    with pytest.raises(
        InputError, match=r"trainer.max_steps is 20 there and 40 here\. Give another --output"
    ):
        sweep_of(tmp_path, arms=[[1, 1]], set={"trainer.max_steps": 40})


def test_a_run_made_without_the_sweep_counts_where_it_is_the_same_function(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]])
    for run in sweep.runs:
        finish(sweep, run)
        record_of(sweep, run).path.unlink()
    assert [state_of(sweep, run) for run in settle(sweep).runs] == ["finished", "finished"]
    finish(sweep, sweep.runs[0], operands=[[0, 0, 0]])
    record_of(sweep, sweep.runs[0]).path.unlink()
    with pytest.raises(InputError, match="it was not started by this sweep"):
        settle(sweep)


def test_a_second_sweep_of_the_same_directory_is_told_who_is_at_work_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 15."""
    from ilr.commands.sweep import main

    path = write_sweep(tmp_path, arms=[[1, 1]])
    sweep = sweep_of(tmp_path, arms=[[1, 1]])
    sweep.records.mkdir(parents=True)
    with held(sweep.records, "it"), pytest.raises(SystemExit):
        main([str(path), "--output", str(sweep.directory)])
    error = capsys.readouterr().err
    assert f"{sweep.directory} is in use by process {os.getpid()} on" in error


def test_a_hundred_finished_arms_are_skipped_in_seconds_without_torch_or_ray(tmp_path: Path) -> None:
    path = write_sweep(tmp_path, arms=[{"generate": "all", "depth": 101}])
    sweep = sweep_of(tmp_path, arms=[{"generate": "all", "depth": 101}])
    for run in sweep.runs:
        finish(sweep, run)
    program = (
        f"import sys; from ilr.cli import main; code = main(['sweep', {str(path)!r}, '--output', "
        f"{str(sweep.directory)!r}]); sys.exit(code or 'torch' in sys.modules or 'ray' in sys.modules)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "100 runs, 100 done, 0 to do" in done.stdout
    assert time.monotonic() - begun < 15


def test_help_loads_neither_ray_nor_rich_nor_torch() -> None:
    program = (
        "import sys\nfrom ilr.cli import main\ntry: main(['sweep', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(bool({'ray', 'rich', 'torch', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_a_dry_run_prints_all_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_sweep(
        tmp_path, arms=[[1, 1], [2, 1], [2, 1]], seeds=[0, 1], anchors=["deeper"], held_equal="flops"
    )
    before = sorted(tmp_path.iterdir())
    options = ["--dry-run", "--output", str(tmp_path / "runs"), "--flops-per-second", "1e6"]
    assert command.main([str(path), *options]) == 0
    printed = capsys.readouterr().out
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]], seeds=[0, 1], anchors=["deeper"], held_equal="flops")
    assert sorted(tmp_path.iterdir()) == before
    for run in sweep.runs:
        row = next(line for line in printed.splitlines() if line.startswith(f"{run.name} ")).split()
        assert run.training_flops is not None
        figures = [f"{run.cost.parameters:,}", f"{run.cost.flops_per_token:,}", f"{run.tokens:,}"]
        assert row[2:6] == [*figures, f"{run.training_flops:.3g}"]
        assert " ".join(row[6:]) == duration(run.training_flops / 1e6)
    assert "given more than once, run once: 2-1" in printed
    assert "Detectable difference: 0." in printed
    assert "mismatch +0.00% training FLOPs per token" in printed


def test_time_is_estimated_by_finished_runs(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]])
    finish(sweep, sweep.runs[0], tokens_per_second=100.0)
    seconds = sweep.runs[1].training_flops / (100 * sweep.runs[0].cost.flops_per_token)  # type: ignore[operator]
    printed = dry_run.describe(sweep, None, None, 1)
    assert f"{duration(seconds)} one after another" in printed
    assert "measured on 1 runs of this sweep" in printed


def test_the_detectable_difference_is_found_in_four_of_five_simulated_sweeps() -> None:
    arms, seeds, documents, sweeps = 4, 3, 100, 1500
    noise = Noise(seed_sd=0.01, document_sd=0.05, source="")
    size = detectable(noise, arms, seeds, documents)
    generator = np.random.default_rng(0)
    amounts = generator.normal(3, 1, (sweeps, 1, 1, documents)) * np.ones((1, arms, seeds, 1))
    amounts += generator.normal(0, noise.seed_sd, (sweeps, arms, seeds, 1))
    own = generator.normal(0, noise.document_sd / math.sqrt(2), (sweeps, arms, 1, documents))
    amounts += own
    amounts[:, 1] -= size
    result, seen = effects(amounts, np.ones(documents), 0)
    better = verdicts(result, size / 4)[:, 1] == "better"
    assert 0.76 < better[~seen.differs].mean() < 0.85


def test_one_seed_detects_nothing_and_more_seeds_detect_less_noise() -> None:
    noise = Noise(0.01, 0.05, "")
    assert math.isnan(detectable(noise, 4, 1, 100))
    sizes = [detectable(noise, 4, seeds, 100) for seeds in (2, 3, 5, 9)]
    assert sizes == sorted(sizes, reverse=True)


def test_noise_is_measured_on_finished_runs(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    text = generator.normal(3, 1, 400)
    for number, schedule in enumerate(("1-1-1-1", "2-1-1-1", "1-2-1-1")):
        of_arm = text + generator.normal(0, 0.05, 400)
        for seed in range(8):
            nll = of_arm + 0.02 * generator.normal()
            write_run(tmp_path / f"{number}-{seed}", schedule, (seed, seed), nll)
    noise = measured([tmp_path])
    assert noise is not None
    assert noise.documents == 400
    assert noise.seed_sd == pytest.approx(0.02, rel=0.3)
    assert noise.document_sd == pytest.approx(0.05 * math.sqrt(2), rel=0.15)


def test_learning_rates_are_chosen_on_validation_and_reported_on_test(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]], learning_rates=[1e-3, 2e-3, 4e-3], seeds=[0, 1])
    losses = {"1-1": {1e-3: 3.0, 2e-3: 2.9, 4e-3: 2.95}, "2-1": {1e-3: 3.0, 2e-3: 2.9, 4e-3: 2.8}}
    for run in sweep.runs:
        loss = losses[run.arm.label][run.learning_rate or 0] + 0.01 * run.seeds.init
        finish(sweep, run, val_loss=loss, test_loss=9 - loss)
    inside, edge = learning_rates.choices(sweep)
    assert (inside.best.learning_rate, inside.at_edge) == (2e-3, False)
    assert inside.best.test_loss == pytest.approx(9 - 2.905)
    assert (edge.best.learning_rate, edge.at_edge) == (4e-3, True)
    said = learning_rates.describe(sweep)
    assert "at the edge of the grid for 2-1" in said
    rows = list(csv.DictReader((sweep.directory / "learning_rates.csv").open()))
    assert [(row["arm"], row["learning_rate"]) for row in rows if row["chosen"] == "True"] == [
        *(("1-1", "0.002"), ("2-1", "0.004"))
    ]


def test_a_diverged_learning_rate_is_never_chosen(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1]], learning_rates=[1e-3, 2e-3])
    finish(sweep, sweep.runs[0])
    finish(sweep, sweep.runs[1], "diverged", val_loss=None, test_loss=None)
    assert learning_rates.choices(sweep)[0].best.learning_rate == 1e-3


def test_progress_is_read_from_the_end_of_a_history_being_written(tmp_path: Path) -> None:
    run = sweep_of(tmp_path, arms=[[1, 1]]).runs[0]
    run.directory.path.mkdir(parents=True)
    points = [{"step": step, "train/loss": 1.0} for step in range(5000)]
    points[4990]["val/perplexity"] = 12.5
    run.directory.history.write_text("".join(json.dumps(point) + "\n" for point in points) + '{"step": 5')
    progress = progress_of(run.directory)
    assert (progress.step, progress.perplexity) == (4999, 12.5)


def test_the_live_table_shows_state_perplexity_and_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 100.0, 110.0, 110.0, 120.0])
    sweep = sweep_of(tmp_path, arms=[[1, 1]], set={"trainer.max_steps": 100})
    run = sweep.runs[0]
    note_plan(sweep, [run])
    record_of(sweep, run).update(state="running")
    display = Display(sweep, sweep.runs, live=False)
    display.states[run.name] = "running"
    monkeypatch.setattr("ilr.sweep.display.time.monotonic", lambda: next(clock))
    run.directory.path.mkdir()
    run.directory.history.write_text('{"step": 10, "val/perplexity": 50.0}\n')
    assert display.row(run) == (run.name, "running", "10 of 100", "50.00", "")
    run.directory.history.write_text('{"step": 20, "val/perplexity": 40.0}\n')
    assert display.row(run)[:4] == (run.name, "running", "20 of 100", "40.00")
    assert display.time_left(run, progress_of(run.directory)) == pytest.approx(80 * 10 / 10)


def test_options_read_without_torch_are_those_of_the_classes_that_take_them() -> None:
    from ilr.data import TextData
    from ilr.training.module import LanguageModel

    model, data = (inspect.signature(taker).parameters for taker in (LanguageModel, TextData))
    assert set(defaults_of("model")) == {*model, *DecoderConfig.__dataclass_fields__} - {"model"}
    assert dict(defaults_of("data")) == {name: one.default for name, one in data.items()}
    assert all(defaults_of("model")[name] == one.default for name, one in model.items() if name != "model")
    assert data["batch_size"].default == BATCH_SIZE
