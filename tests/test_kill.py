"""A real `train_lm.py fit`, killed at random moments and resumed, ends as if it had never stopped."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from process_cases import ONE_THREAD, fit_command

from ilr.run_directory import read_history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KILLS = 20
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


def test_a_run_killed_twenty_times_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Epochs end at step 77, 155, …, so that kills fall before, in and after epoch ends and validations."""
    subprocess.run(fit_command(tmp_path, CONFIG, "straight"), check=True, env=ONE_THREAD, capture_output=True)
    again = fit_command(tmp_path, CONFIG, "killed", "--resume", "auto")

    moment = random.Random(7)
    killed = 0
    history = tmp_path / "killed" / "history.jsonl"
    while killed < KILLS:
        before = last_step(history)
        process = subprocess.Popen(
            again, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        goal = min(before + moment.randint(1, 20), STEPS - 1)
        while process.poll() is None and last_step(history) < goal:
            time.sleep(0.02)
        time.sleep(moment.uniform(0, 0.1))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
    done = subprocess.run(again, env=ONE_THREAD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert killed == KILLS

    def points(run: str) -> list[dict[str, float]]:
        clocks = ("train/tokens_per_second", "train/data_wait")
        return [
            {k: v for k, v in p.items() if k not in clocks}
            for p in read_history(tmp_path / run / "history.jsonl")
        ]

    assert points("killed") == points("straight")
    name = f"step-{STEPS:08d}.ckpt"
    weights = [
        torch.load(tmp_path / run / "checkpoints" / name)["state_dict"] for run in ("straight", "killed")
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    summaries = [json.loads((tmp_path / run / "summary.json").read_text()) for run in ("straight", "killed")]
    assert summaries[0]["val_loss"] == summaries[1]["val_loss"]
    assert len(list((tmp_path / "killed").glob("events.out.tfevents.*"))) == 1
    assert len(list((tmp_path / "killed").glob("config-resume-*.yaml"))) >= 1


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
