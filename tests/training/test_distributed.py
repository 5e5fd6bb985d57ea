"""Two gloo processes give what one gives on the same global batch."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from process_cases import ONE_THREAD, fit_command

from ilr.commands.train import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CONFIG: dict[str, Any] = {
    "val_every": 2,
    "log_every": 1,
    "test_after_fit": False,
    "model": {"schedule": [3, 2, 1, 1], "context": 16, "width": 16, "num_layers": 4, "num_heads": 2},
    "data": {"corpus": "pydoc", "vocab_size": 300, "max_documents": 30},
    "trainer": {"max_epochs": -1, "max_steps": 3, "enable_progress_bar": False, "accelerator": "cpu"},
}


def fit(folder: Path, run: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = fit_command(folder, CONFIG, run, *options)
    return subprocess.run(words, env=ONE_THREAD, capture_output=True, text=True)


def fit_here(folder: Path, run: str, *options: str) -> int:
    """The same command in this process."""
    _, _, *words = fit_command(folder, CONFIG, run, *options)
    return main(words)


SHARDED = """
trainer:
  strategy:
    class_path: lightning.pytorch.strategies.ModelParallelStrategy
    init_args: {data_parallel_size: 2, tensor_parallel_size: 1, save_distributed_checkpoint: false}
"""


@pytest.mark.parametrize("compile", ["none", "sublayers"])
def test_sharded_weights_equal_one_process_and_say_their_traffic(tmp_path: Path, compile: str) -> None:
    assert fit_here(tmp_path, "one", "--data.batch_size", "4", "--trainer.devices", "1") == 0
    (tmp_path / "sharded.yaml").write_text(SHARDED)
    options = ("-c", str(tmp_path / "sharded.yaml"), "--data.batch_size", "2", "--trainer.devices", "2")
    two = fit(tmp_path, "two", *options, "--model.compile", compile)
    assert two.returncode == 0, two.stderr
    layer = 4 * 16 * 16 + 16 + 3 * 16 * 64 + 16
    assert f"each micro-batch gathers {7 * layer:,} weights forward" in two.stdout
    name = "step-00000003.ckpt"
    weights = [torch.load(tmp_path / run / "checkpoints" / name)["state_dict"] for run in ("one", "two")]
    for key in weights[0]:
        torch.testing.assert_close(weights[0][key], weights[1][key], rtol=0, atol=1e-5)


def test_an_unsupported_strategy_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        fit_here(tmp_path, "run", "--trainer.devices", "2", "--trainer.strategy", "fsdp")
    assert "--trainer.strategy fsdp is not supported" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
def test_two_processes_equal_one_on_the_same_global_batch(tmp_path: Path, sharing: str) -> None:
    shared = ("--model.sharing", sharing)
    assert fit_here(tmp_path, "one", *shared, "--data.batch_size", "4", "--trainer.devices", "1") == 0
    two = fit(
        tmp_path,
        "two",
        *shared,
        "--data.batch_size",
        "2",
        "--trainer.devices",
        "2",
        "--trainer.strategy",
        "ddp",
    )
    assert two.returncode == 0, two.stderr
    name = "step-00000003.ckpt"
    weights = [torch.load(tmp_path / run / "checkpoints" / name)["state_dict"] for run in ("one", "two")]
    for key in weights[0]:
        torch.testing.assert_close(weights[0][key], weights[1][key], rtol=0, atol=1e-5)
    summaries = [json.loads((tmp_path / run / "summary.json").read_text()) for run in ("one", "two")]
    assert summaries[0]["scored_tokens"] == summaries[1]["scored_tokens"]
    assert summaries[0]["tokens_per_step"] == summaries[1]["tokens_per_step"] == 64
    assert summaries[1]["world_size"] == 2
    assert summaries[0]["val_loss"] == pytest.approx(summaries[1]["val_loss"], rel=1e-6)
    assert summaries[0]["train_loss"] == pytest.approx(summaries[1]["train_loss"], rel=1e-6)
