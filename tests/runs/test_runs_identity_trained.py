"""The table of options that change a number, tried by training: equal numbers exactly where the hashes are equal."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_cases import fit, write_config

from ilr.comparison.analysis import compare
from ilr.runs.directory import read_history

LOOK = "[{class_path: lightning.pytorch.callbacks.LearningRateMonitor}]"
TRIED = [
    ("--model.ffn_width", "64"), ("--model.ffn_width", "62"), ("--model.num_kv_heads", "1"),
    ("--model.injection", "add"),
    ("--model.weight_decay", "0.5"), ("--model.decay_norms", "true"), ("--model.repeated_weight_decay", "0.9"),
    ("--model.warmup_steps", "3"), ("--model.rope_theta", "50"), ("--model.compile", "none"),
    ("--model.recompute", "full"), ("--model.val_precision", "32-true"), ("--data.num_workers", "1"),
    ("--data.eval_contexts", "[8]"), ("--data.max_documents", "100000"), ("--data.vocab_size", "280"),
    ("--data.batch_size", "3"), ("--save_every", "5"), ("--log_every", "3"), ("--val_every", "3"),
    ("--trainer.gradient_clip_val", "0.05"), ("--trainer.accumulate_grad_batches", "2"),
    ("--trainer.num_sanity_val_steps", "1"), ("--trainer.detect_anomaly", "true"),
    ("--trainer.inference_mode", "false"),
    ("--trainer.deterministic", "true"), ("--trainer.max_steps", "9"),
    ("--trainer.callbacks", LOOK), ("--held_equal", "flops"),
]  # fmt: skip


def numbers(run: Path) -> list[Any]:
    """Validations along the way, and the figures of both splits."""
    summary = json.loads((run / "summary.json").read_text())
    points = [
        (point["step"], point["val/loss"])
        for point in read_history(run / "history.jsonl")
        if "val/loss" in point
    ]
    return [points, *(summary[name] for name in ("best_val_loss", "test_loss", "best_test_loss"))]


@pytest.mark.slow
def test_runs_have_equal_numbers_exactly_where_they_have_equal_hashes(tmp_path: Path) -> None:
    """Right numbers, point 8. Of what only stops a run, the equality of numbers is a matter of time: not tried."""
    config = write_config(tmp_path)
    assert fit(config, tmp_path / "base") == 0
    wrong = []
    for option, value in TRIED:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        assert fit(config, run, option, value) == 0, option
        hashes = [
            json.loads((one / "summary.json").read_text())["config_hash"] for one in (run, tmp_path / "base")
        ]
        if (hashes[0] == hashes[1]) != (numbers(run) == numbers(tmp_path / "base")):
            wrong.append((option, value, hashes[0] == hashes[1]))
    assert wrong == []


def test_the_same_bytes_under_another_path_are_one_arm(tmp_path: Path) -> None:
    """Right numbers, point 8: two arms with two seeds each, however the text is called and held."""
    config = write_config(tmp_path)
    shutil.copy(tmp_path / "squares.txt", tmp_path / "copy.txt")
    for schedule in ("[1,1]", "[2,1]"):
        for seed, text in (("1", "squares.txt"), ("2", "copy.txt")):
            words = ("--model.schedule", schedule, "--seed_everything", seed, "--trainer.max_steps", "2")
            directory = tmp_path / "runs" / f"{schedule[1]}-{seed}"
            assert fit(config, directory, *words, "--data.corpus", str(tmp_path / text)) == 0
    comparison = compare([tmp_path / "runs"])
    assert {arm.label: len(arm.runs) for arm in comparison.evaluation.arms} == {"1-1": 2, "2-1": 2}
    assert comparison.noise.degrees == 1
    # A summary without an identity, as earlier versions wrote it, is the same arm by the configuration beside it.
    path = tmp_path / "runs" / "1-1" / "summary.json"
    summary = json.loads(path.read_text())
    del summary["identity"]
    path.write_text(json.dumps({**summary, "config_hash": "of an earlier version"}))
    older = compare([tmp_path / "runs"])
    assert {arm.label: len(arm.runs) for arm in older.evaluation.arms} == {"1-1": 2, "2-1": 2}
