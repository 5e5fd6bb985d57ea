"""Carrying out a sweep: failures, divergence, stops, in real runs where these matter."""

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sweep_cases import finish, sweep_of

from ilr.commands import sweep as command
from ilr.errors import InputError
from ilr.sweep import conduct
from ilr.sweep.engines import Resources, run_locally
from ilr.sweep.execute import Job, Outcome, execute, outcome
from ilr.sweep.runs import Sweep
from ilr.sweep.state import state_of


def job(folder: Path, name: str = "1-1-s0", *words: str) -> Job:
    records = folder / "records"
    records.mkdir(exist_ok=True)
    return Job(name, words, str(folder / name), str(records), str(folder))


def pretend(monkeypatch: pytest.MonkeyPatch, sweep: Sweep, fates: dict[str, int]) -> list[str]:
    """An engine that ends each run by its fate (0 where none is given) without training."""
    tried = []

    def engine(jobs: Sequence[Job], resources: Resources) -> Iterator[Outcome | None]:
        by_name = {run.name: run for run in sweep.runs}
        for one in jobs:
            tried.append(one.name)
            code = fates.get(one.name, 0)
            if code in (0, 3):
                finish(sweep, by_name[one.name], "finished" if code == 0 else "diverged")
            (Path(one.records) / f"{one.name}.err").write_text("Traceback\nerror: no luck\nhint: try again\n")
            yield outcome(one, code)

    monkeypatch.setitem(conduct.ENGINES, "local", engine)
    return tried


def sweep_command(sweep: Sweep) -> int:
    return command.main([str(sweep.file.path), "--engine", "local", "--output", str(sweep.directory)])


def test_a_failed_run_leaves_its_reason_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1], [3, 1], [3, 1]])
    tried = pretend(monkeypatch, sweep, {"2-1-s0": 2})
    assert sweep_command(sweep) == 1
    printed = capsys.readouterr().out
    assert [state_of(sweep, run) for run in sweep.runs] == ["finished", "failed", "finished"]
    assert "2-1-s0  failed: error: no luck" in printed
    assert "--model.schedule '[2, 1]'" in printed
    pretend(monkeypatch, sweep, {})
    tried.clear()
    assert sweep_command(sweep) == 0
    assert "3 runs, 2 done, 1 to do" in capsys.readouterr().out


def test_a_diverged_run_is_a_result_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]])
    tried = pretend(monkeypatch, sweep, {"2-1-s0": 3})
    assert sweep_command(sweep) == 0
    assert sweep_command(sweep) == 0
    assert tried == ["1-1-s0", "2-1-s0"]


def test_three_instant_failures_in_a_row_stop_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(tmp_path, arms=[{"generate": "all", "depth": 9}])
    tried = pretend(monkeypatch, sweep, {run.name: 1 for run in sweep.runs[2:]})
    assert sweep_command(sweep) == 1
    assert len(tried) == 5
    said = capsys.readouterr()
    assert "given up: 3 runs in a row failed before their first step" in said.err
    assert "3 not done: the same command goes on" in said.out


def test_a_process_that_dies_is_reported_by_its_signal(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    ended = outcome(job(tmp_path), -signal.SIGKILL)
    assert (ended.exit_code, ended.reason) == (137, "ended by SIGKILL (out of memory?)")
    assert ended.failed
    assert ended.instant
    assert not outcome(job(tmp_path), 143).failed


def test_resources_below_zero_are_refused() -> None:
    with pytest.raises(InputError, match="--cpus must be above 0"):
        Resources(cpus=0)


@pytest.mark.slow
def test_wrong_options_reach_the_record_as_one_line(tmp_path: Path) -> None:
    ended = execute(job(tmp_path, "1-1-s0", "fit", "--model.widht", "3"))
    assert ended.exit_code == 2
    assert ended.reason == "error: unrecognized arguments: --model.widht 3"
    assert json.loads((tmp_path / "records" / "1-1-s0.json").read_text())["state"] == "failed"


def test_the_local_engine_ends_what_runs_when_it_is_closed(tmp_path: Path) -> None:
    engine = run_locally([job(tmp_path, "1-1-s0", "fit", "--help")], Resources(cpus=1))
    assert next(engine) is None
    engine.close()
    assert json.loads((tmp_path / "records" / "1-1-s0.json").read_text())["state"] == "interrupted"
