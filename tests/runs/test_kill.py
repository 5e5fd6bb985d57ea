"""A fit that was killed, wherever that was, and resumed ends as if it had never stopped; signals save first."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from process_cases import ONE_THREAD, fit_command

from ilr.runs.directory import read_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
STEPS = 1000
CONFIG: dict[str, Any] = {
    "seed_everything": 1,
    "val_every": 50,
    "save_every": 7,
    "log_every": 1,
    "model": {
        "schedule": [2, 1], "context": 16, "width": 16, "num_layers": 2, "num_heads": 2, "dropout": 0.1,
    },
    "data": {"corpus": "pydoc", "vocab_size": 300, "batch_size": 2, "max_documents": 30, "max_train_tokens": 5000},
    "trainer": {
        "max_epochs": -1, "max_steps": STEPS, "enable_progress_bar": False, "accelerator": "cpu",
        "accumulate_grad_batches": 2,
    },
}  # fmt: skip


def last_step(history: Path) -> int:
    return max((point["step"] for point in read_history(history)), default=0)


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came of each killed run: `kill_server` makes them, in forks of one process."""
    folder = tmp_path_factory.mktemp("kills")
    server = Path(__file__).parents[1] / "kill_server.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(server), str(folder)],
        env=ONE_THREAD,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())  # type: ignore[no-any-return]


def test_runs_killed_at_every_kind_of_file_event_leave_the_record_of_the_straight_run(
    kills: list[dict[str, Any]],
) -> None:
    """Records that lie, point 13: weights bitwise, summary, documents, history, board, checkpoints, files left."""
    chosen = [case for case in kills if case["chosen"]]
    assert len(chosen) >= 50
    assert sum(case["fired"] >= 1 for case in chosen) >= 50
    assert [case for case in chosen if case["status"] or case["differs"]] == []


def test_runs_killed_at_random_moments_leave_the_record_of_the_straight_run(
    kills: list[dict[str, Any]],
) -> None:
    """Records that lie, point 13: once or twice, wherever the run just is."""
    at_random = [case for case in kills if not case["chosen"]]
    assert len(at_random) == 20
    assert [case for case in at_random if case["status"] or case["differs"]] == []


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, signum: int, status: int) -> None:
    process = subprocess.Popen(
        fit_command(tmp_path, {**CONFIG, "save_every": 1000}, "run"),
        env=ONE_THREAD,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and last_step(tmp_path / "run" / "history.jsonl") < 5:
        time.sleep(0.05)
    process.send_signal(signum)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status
    assert "--resume auto" in error
    saved = json.loads((tmp_path / "run" / "checkpoints" / "record.json").read_text())["last"][-1]["step"]
    assert saved >= 5
    assert not (tmp_path / "run" / "summary.json").exists()
