"""Sweeps that really train, are stopped and killed, and go on: nothing lost, nothing counted twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_cases import BASE, sweep_of, write_sweep

from ilr.sweep.runs import Run
from ilr.sweep.state import state_of

pytestmark = pytest.mark.slow
LONG = {**BASE, "trainer": {**BASE["trainer"], "max_steps": 1500}, "val_every": 500, "save_every": 50}


def train(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    words = [
        sys.executable,
        "-m",
        "ilr.cli",
        "sweep",
        str(path),
        "--output",
        str(path.parent / "runs"),
        *options,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


def test_a_local_sweep_trains_skips_and_isolates_a_failing_arm(tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text("word\n")  # what is wrong with it shows when it is prepared
    arms = [[1, 1], {"schedule": [2, 1], "set": {"data.corpus": str(tmp_path / "tiny.txt")}}, [1, 2]]
    path = write_sweep(tmp_path, arms=arms)
    first = train(path, "--engine", "local")
    assert first.returncode == 1, first.stderr
    sweep = sweep_of(tmp_path, arms=arms)
    assert [state_of(sweep, run) for run in sweep.runs] == ["finished", "failed", "finished"]
    assert "too few for the splits" in first.stdout
    again = train(path, "--engine", "local")
    assert "3 runs, 2 done, 1 to do" in again.stdout


def test_a_local_sweep_goes_on_after_a_stop_and_after_a_kill_of_its_driver(tmp_path: Path) -> None:
    path = write_sweep(tmp_path, LONG, arms=[[1, 1]])
    words = [sys.executable, "-m", "ilr.cli", "sweep", str(path), "--engine", "local"]
    words += ["--output", str(tmp_path / "runs")]
    run = sweep_of(tmp_path, LONG, arms=[[1, 1]]).runs[0]
    driver = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_for_steps(run, 20)
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "the same command goes on" in said
    reached = len(steps_of(run))
    driver = subprocess.Popen(words)
    wait_for_steps(run, reached + 20)
    driver.kill()
    driver.wait()
    # Nobody asked the run itself: it has to notice, save and leave.
    wait_until(lambda: not children_of(tmp_path), 30)
    assert steps_of(run)[-1] < 1500
    assert train(path, "--engine", "local").returncode == 0
    assert (run.directory.path / "config-resume-2.yaml").is_file()
    assert_every_step_once(run)


def test_ray_survives_a_killed_worker_a_killed_driver_and_a_stop(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    arms = [[1, 1], [2, 1]]
    path = write_sweep(tmp_path, LONG, arms=arms)
    words = [sys.executable, "-m", "ilr.cli", "sweep", str(path), "--output", str(tmp_path / "runs")]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    runs = sweep_of(tmp_path, LONG, arms=arms).runs
    wait_for_steps(runs[0], 20)
    child = next(pid for pid in children_of(tmp_path) if "1-1-s0" in children_of(tmp_path)[pid])
    os.kill(parent_of(child), signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{child}").exists(), 30)
    wait_until((runs[0].directory.path / "config-resume-1.yaml").is_file, 90)
    driver.kill()
    driver.wait()
    wait_until(lambda: not children_of(tmp_path), 60)
    reached = len(steps_of(runs[0]))
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    wait_for_steps(runs[0], reached + 10)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert not children_of(tmp_path)
    assert runs[0].directory.summary() is None
    done = train(path)
    assert done.returncode == 0, done.stdout + done.stderr
    for run in runs:
        assert_every_step_once(run)
    wait_until(lambda: not children_of(tmp_path), 30)


def steps_of(run: Run) -> list[int]:
    try:
        lines = run.directory.history.read_text().split("\n")[:-1]
    except OSError:
        return []
    return [point["step"] for line in lines if "train/loss" in (point := json.loads(line))]


def assert_every_step_once(run: Run) -> None:
    summary = run.directory.summary()
    assert summary is not None
    assert (summary["status"], summary["steps"]) == ("finished", 1500)
    steps = steps_of(run)
    assert steps == sorted(set(steps))
    assert steps[-300:] == list(range(5, 1501, 5))


def wait_for_steps(run: Run, points: int) -> None:
    wait_until(lambda: len(steps_of(run)) >= points, 120)


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


def children_of(folder: Path) -> dict[int, str]:
    """Training processes of sweeps below this folder, by process id, with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "ilr.sweep.child" in line and str(folder) in line:
            found[int(path.parent.name)] = line
    return found


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
