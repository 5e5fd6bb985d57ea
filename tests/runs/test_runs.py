"""A run from its command line: what it leaves, how it goes on, what it refuses."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml

from ilr import load
from ilr.commands.train import main
from ilr.runs.directory import read_history
from ilr.training.module import LanguageModel

TINY: dict[str, Any] = {
    "seed_everything": 1,
    "val_every": 4,
    "save_every": 3,
    "log_every": 2,
    "model": {"schedule": [2, 1], "context": 16, "width": 16, "num_layers": 2, "num_heads": 2},
    "data": {"corpus": "pydoc", "vocab_size": 300, "batch_size": 2, "max_documents": 30},
    "trainer": {"max_epochs": -1, "max_steps": 10, "enable_progress_bar": False, "accelerator": "cpu"},
}
SUMMARY_KEYS = {
    "status", "label", "schedule", "operands", "depth", "sharing", "positions", "injection", "seeds", "steps",
    "tokens", "epochs", "training_flops", "parameters", "parameters_non_embedding", "flops_per_token",
    "learning_rate", "held_equal", "val_loss", "val_perplexity", "val_bits_per_byte", "best_val_loss", "best_step",
    "test_loss", "test_perplexity", "test_bits_per_byte", "train_loss", "scored_tokens", "tokens_per_second",
    "precision", "device", "threads", "checkpoints", "command", "config_hash", "corpus_hash", "split_hashes",
    "tokenizer_hash", "git_commit", "git_dirty", "versions", "device_model",
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    values = {**TINY, "data": {**TINY["data"], "cache_dir": str(folder / "cache")}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    return folder / "tiny.yaml"


@pytest.fixture(scope="module")
def run(config: Path) -> Path:
    """A finished run."""
    directory = config.parent / "run"
    assert fit(config, directory) == 0
    return directory


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The finished run, free to be changed."""
    return Path(shutil.copytree(run, tmp_path / "run"))


def fit(config: Path, directory: Path, *options: str) -> int:
    return main(["fit", "-c", str(config), "--run_dir", str(directory), *options])


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that must be refused says; it must be one short message with exit status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        main(list(arguments))
    assert exit.value.code == 2
    written = capsys.readouterr().err
    assert "error: " in written
    error = written[written.index("error: ") :]  # what was prepared before is said first
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 2
    return error


def summary_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "summary.json").read_text())  # type: ignore[no-any-return]


def test_a_run_leaves_what_the_contract_names(run: Path) -> None:
    summary = summary_of(run)
    assert set(summary) >= SUMMARY_KEYS
    assert (summary["status"], summary["label"], summary["steps"]) == ("finished", "2-1", 10)
    assert summary["tokens"] == 10 * 2 * 16
    assert summary["training_flops"] == summary["tokens"] * summary["flops_per_token"]
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
    assert all(Path(path).is_file() for path in summary["checkpoints"].values())
    points = read_history(run / "history.jsonl")
    assert [p["step"] for p in points if "train/loss" in p] == [1, 2, 4, 6, 8, 10]
    assert [p["step"] for p in points if "val/loss" in p] == [4, 8, 10]  # also at the last step
    assert all(p["training_flops"] == p["tokens"] * summary["flops_per_token"] for p in points)


def test_the_documents_add_up_to_the_summary(run: Path) -> None:
    summary, table = summary_of(run), pq.read_table(run / "documents.parquet").to_pandas()
    assert table.columns.tolist() == ["split", "document", "tokens", "bytes", "nll"]
    for split, prefix in (("validation", "val"), ("test", "test")):
        part = table[table.split == split]
        loss = part.nll.sum() / part.tokens.sum()
        assert loss == pytest.approx(summary[f"{prefix}_loss"], rel=1e-12)
        bits = part.nll.sum() / 0.6931471805599453 / part.bytes.sum()
        assert bits == pytest.approx(summary[f"{prefix}_bits_per_byte"], rel=1e-12)
    assert table[table.split == "validation"].tokens.sum() == summary["scored_tokens"]


def test_the_saved_configuration_repeats_the_run(run: Path, tmp_path: Path) -> None:
    assert fit(run / "config.yaml", tmp_path / "again") == 0
    first, second = summary_of(run), summary_of(tmp_path / "again")
    for key in ("val_loss", "test_loss", "config_hash", "seeds", "split_hashes", "train_loss"):
        assert first[key] == second[key], key


def test_a_second_run_in_the_same_directory_is_refused_and_harms_nothing(
    config: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(run))
    assert "--resume auto" in error
    assert "--run_dir" in error
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_finished_run_says_that_it_is_finished(
    config: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(path.name for path in copy.iterdir())
    assert fit(config, copy, "--resume", "auto") == 0
    assert "already finished at step 10; nothing to do" in capsys.readouterr().out
    assert sorted(path.name for path in copy.iterdir()) == files


def test_resume_auto_in_an_empty_directory_starts_at_step_0(config: Path, tmp_path: Path) -> None:
    assert fit(config, tmp_path / "new", "--resume", "auto", "--trainer.max_steps", "2") == 0
    assert summary_of(tmp_path / "new")["steps"] == 2


@pytest.mark.parametrize("cut_at", [3, 6])
def test_going_on_from_a_checkpoint_equals_never_having_stopped(
    config: Path, run: Path, tmp_path: Path, cut_at: int
) -> None:
    straight = tmp_path / "straight"
    assert fit(config, straight, "--model.dropout", "0.1", "--trainer.accumulate_grad_batches", "2") == 0
    stopped = tmp_path / "stopped"
    options = ("--model.dropout", "0.1", "--trainer.accumulate_grad_batches", "2")
    with pytest.raises(_Stop):
        _fit_and_stop(config, stopped, cut_at, *options)
    assert fit(config, stopped, "--resume", "auto", *options) == 0
    assert _comparable(straight) == _comparable(stopped)
    weights = [
        torch.load(d / "checkpoints" / "step-00000010.ckpt")["state_dict"] for d in (straight, stopped)
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert (stopped / "config-resume-1.yaml").is_file()
    assert len(list(stopped.glob("events.out.tfevents.*"))) == 1


class _Stop(BaseException):
    """Ends a run as a power cut would: nothing is saved on the way out."""


def _fit_and_stop(config: Path, directory: Path, step: int, *options: str) -> None:
    from lightning.pytorch.callbacks import Callback

    from ilr.commands import train as training_cli

    class PowerCut(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == step and batch_idx % 2 == 1:  # in the middle of an accumulation window
                raise _Stop

    original = training_cli.ValidationLines
    training_cli.ValidationLines = PowerCut  # type: ignore[assignment, misc]
    try:
        fit(config, directory, *options)
    finally:
        training_cli.ValidationLines = original  # type: ignore[misc]


def _comparable(directory: Path) -> list[dict[str, Any]]:
    """The history without clock times."""
    clocks = ("train/tokens_per_second", "train/data_wait")
    return [
        {k: v for k, v in p.items() if k not in clocks} for p in read_history(directory / "history.jsonl")
    ]


def test_a_truncated_newest_checkpoint_falls_back_to_the_one_before(config: Path, copy: Path) -> None:
    (copy / "summary.json").unlink()
    newest = copy / "checkpoints" / "step-00000010.ckpt"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    with pytest.warns(UserWarning, match="going back to the one before it"):
        assert fit(config, copy, "--resume", "auto") == 0
    assert summary_of(copy)["steps"] == 10


def test_a_diverged_run_is_marked_and_keeps_its_last_good_checkpoint(config: Path, tmp_path: Path) -> None:
    directory = tmp_path / "diverged"
    options = (
        "--model.learning_rate",
        "1e30",
        "--model.warmup_steps",
        "6",
        "--model.lr_schedule",
        "constant",
    )
    assert fit(config, directory, *options, "--trainer.gradient_clip_val", "null") == 3
    summary = summary_of(directory)
    assert summary["status"] == "diverged"
    for path in (directory / "checkpoints").glob("*.ckpt"):
        weights = torch.load(path, weights_only=True)["state_dict"]
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())
    assert fit(config, directory, *options, "--trainer.gradient_clip_val", "null", "--resume", "auto") == 3


def test_a_constant_schedule_can_be_extended_and_a_cosine_cannot(
    config: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = ("--resume", "auto", "--trainer.max_steps", "14")
    assert "cannot be extended" in refusal(capsys, "fit", "-c", str(config), "--run_dir", str(copy), *longer)
    constant = ("--model.lr_schedule", "constant", "--model.warmup_steps", "2")
    assert fit(config, tmp_path / "a", *constant) == 0
    assert fit(config, tmp_path / "a", *constant, *longer) == 0
    assert fit(config, tmp_path / "b", *constant, "--trainer.max_steps", "14") == 0
    extended, straight = summary_of(tmp_path / "a"), summary_of(tmp_path / "b")
    assert extended["steps"] == 14
    assert extended["val_loss"] == straight["val_loss"]


def test_a_run_made_longer_is_the_one_with_the_warm_up_that_it_had(config: Path, tmp_path: Path) -> None:
    """Right numbers, point 8: a share of the steps is another number of them in a run that was so long at once."""
    options = ("--model.lr_schedule", "constant", "--model.warmup_ratio", "0.2", "--val_every", "30")
    longer = ("--trainer.max_steps", "30")
    assert fit(config, tmp_path / "longer", *options) == 0
    assert fit(config, tmp_path / "longer", *options, *longer, "--resume", "auto") == 0
    assert fit(config, tmp_path / "straight", *options, *longer) == 0
    assert fit(config, tmp_path / "same", *options, *longer, "--model.warmup_steps", "2") == 0
    extended, straight, same = (summary_of(tmp_path / name) for name in ("longer", "straight", "same"))
    assert (extended["config_hash"] == same["config_hash"], extended["val_loss"]) == (True, same["val_loss"])
    assert extended["config_hash"] != straight["config_hash"]
    assert extended["val_loss"] != straight["val_loss"]


def test_no_limit_of_epochs_may_be_said_by_null(config: Path, tmp_path: Path) -> None:
    """Right numbers, point 17: no callback has changed it."""
    null = ("--trainer.max_epochs", "null")
    assert fit(config, tmp_path / "null", *null) == 0
    assert fit(config, tmp_path / "none", "--trainer.max_epochs", "-1") == 0
    one, other = summary_of(tmp_path / "null"), summary_of(tmp_path / "none")
    assert (one["config_hash"], one["val_loss"]) == (other["config_hash"], other["val_loss"])


def test_a_schedule_at_test_time_is_used_and_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loss(*options: str) -> tuple[float, str]:
        capsys.readouterr()
        assert main(["validate", "--run_dir", str(run), *options]) == 0
        out = capsys.readouterr().out
        return float(next(line for line in out.splitlines() if "val/loss" in line).split()[-1]), out

    trained, text = loss()
    assert trained == pytest.approx(summary_of(run)["best_val_loss"], rel=1e-9)
    assert "schedule [2, 1]" in text
    other, text = loss("--model.schedule", "[1,1]")
    assert other != trained
    assert "schedule [1, 1] (trained under [2, 1])" in text
    decoder = load(run)
    assert decoder.plan.label == "2-1"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model.learning_rate", "0.5"),
        ("model.width", "32"),
        ("model.schedule", "[1,1]"),
        ("data.batch_size", "4"),
    ],
)
def test_a_value_that_differs_from_the_checkpoint_is_refused_by_name(
    copy: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    (copy / "summary.json").unlink()
    checkpoint = str(copy / "checkpoints" / "step-00000010.ckpt")
    assert f"--{option}" in refusal(capsys, "fit", "--ckpt_path", checkpoint, f"--{option}", value)


def test_validate_refuses_another_architecture_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--model.width" in refusal(capsys, "validate", "--run_dir", str(run), "--model.width", "32")


def test_load_gives_the_trained_logits_in_any_process(run: Path) -> None:
    checkpoint = torch.load(run / "checkpoints" / "step-00000010.ckpt", weights_only=True)
    decoder = load(run, weights="last")
    for key, tensor in decoder.state_dict().items():
        assert torch.equal(tensor, checkpoint["state_dict"][f"decoder.{key}"])
    assert not decoder.training
    assert all(
        isinstance(v, str | int | float | bool | list | dict | tuple | None)
        for v in checkpoint["hyper_parameters"].values()
    )
    assert not any("_orig_mod" in key for key in checkpoint["state_dict"])


WRONG = {
    "no list": (["--model.schedule", "3,1"], "--model.schedule"),
    "several words": (["--model.schedule", "3", "1"], "model.schedule"),
    "a float": (["--model.schedule", "[1.0,2]"], "--model.schedule"),
    "a bool": (["--model.schedule", "[true,1]"], "--model.schedule"),
    "zero": (["--model.schedule", "[0,1]"], "--model.schedule"),
    "negative": (["--model.schedule", "[-1,1]"], "--model.schedule"),
    "empty": (["--model.schedule", "[]"], "--model.schedule"),
    "another length": (["--model.schedule", "[1,1,1]"], "--model.schedule"),
    "a misspelt option": (["--model.shedule", "[1,1]"], "--model.shedule"),
    "an abbreviated option": (["--model.widt", "32"], "--model.widt"),
    "a missing file": (["-c", "nowhere.yaml"], "nowhere.yaml"),
    "no corpus": (["--data.corpus", "nowhere.txt"], "--data.corpus"),
    "an unknown choice": (["--model.positions", "cope"], "model.positions"),
    "sizes that do not divide": (["--model.width", "33"], "--model.width"),
    "a warm-up without end": (["--model.warmup_steps", "99"], "warm-up"),
    "a context above learned": (
        ["--model.positions", "learned", "--data.eval_contexts", "[64]"],
        "learned positions end at the context of 16",
    ),
    "another vocabulary": (["--model.vocab_size", "7"], "model.vocab_size is 7"),
    "more processes than processors": (["--trainer.devices", "4096"], "--trainer.devices 4096 would start"),
    "an accelerator that is not there": (["--trainer.accelerator", "foo"], "accelerator='foo'"),
    "Lightning's units": (["--trainer.val_check_interval", "3"], "--val_every"),
}


@pytest.mark.parametrize(("options", "named"), WRONG.values(), ids=WRONG.keys())
def test_wrong_use_gets_one_message_and_leaves_nothing(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    directory = tmp_path / "runs" / "wrong"
    error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(directory), *options)
    assert named in error
    assert not directory.parent.exists()


def test_what_is_no_run_and_no_checkpoint_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.md").write_text("# no weights here")
    for path in (tmp_path, tmp_path / "nowhere"):
        assert f"--run_dir {path} is not a run directory" in refusal(
            capsys, "validate", "--run_dir", str(path)
        )
    for path, words in ((tmp_path, "is not a run directory"), (tmp_path / "notes.md", "is no checkpoint")):
        with pytest.raises(ValueError, match=words):
            load(path)


def test_an_evaluation_that_is_interrupted_says_so_with_its_status(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageModel, "validation_step", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert main(["validate", "--run_dir", str(run)]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning has it ignored
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_a_run_directory_that_cannot_be_written_is_said_before_any_work(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(tmp_path / "file" / "run"))
    assert "cannot write to --run_dir" in error


def test_two_spellings_are_one_configuration_exactly_where_their_numbers_are_one(
    config: Path, tmp_path: Path
) -> None:
    """Right numbers, point 8: injection acts between passes; a segment run once has none."""
    hashes, losses = {}, {}
    for injection in ("none", "add"):
        for number, schedule in enumerate(("[2,1]", "[{layers: [0,0,1]}]")):
            directory = tmp_path / f"{injection}{number}"
            options = ("--model.schedule", schedule, "--model.injection", injection)
            assert fit(config, directory, *options, "--trainer.max_steps", "1") == 0
            hashes[injection, number] = summary_of(directory)["config_hash"]
            losses[injection, number] = summary_of(directory)["val_loss"]
    assert hashes["none", 0] == hashes["none", 1] == hashes["add", 1] != hashes["add", 0]
    assert losses["none", 0] == losses["none", 1] == losses["add", 1] != losses["add", 0]


def test_a_users_callbacks_do_not_remove_ours(config: Path, tmp_path: Path) -> None:
    stop = (
        "[{class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: val/loss, mode: min}}]"
    )
    assert fit(config, tmp_path / "run", f"--trainer.callbacks={stop}") == 0
    summary = summary_of(tmp_path / "run")
    assert Path(summary["checkpoints"]["best"]).is_file()
    assert Path(summary["checkpoints"]["last"]).is_file()


def test_a_checkpoint_file_alone_gives_the_same_logits_in_a_fresh_process(run: Path, tmp_path: Path) -> None:
    alone = shutil.copy(run / "checkpoints" / "step-00000010.ckpt", tmp_path / "alone.ckpt")
    code = (
        "import torch, ilr; decoder = ilr.load('alone.ckpt'); "
        "torch.save(decoder(torch.arange(32).view(2, 16)), 'logits.pt')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert alone.exists()
    here = load(run, weights="last")(torch.arange(32).view(2, 16))
    assert torch.equal(torch.load(tmp_path / "logits.pt"), here)


def test_intervals_are_optimiser_steps_whatever_the_epoch_and_the_window(
    config: Path, tmp_path: Path
) -> None:
    """Accumulation of 4, epochs of a few steps: validation at 10, 20, 30 and a peak of the rate at step 10."""
    options = {
        "--trainer.accumulate_grad_batches": "4", "--data.max_train_tokens": "2000", "--trainer.max_steps": "30",
        "--val_every": "10", "--log_every": "1", "--model.warmup_steps": "10",
    }  # fmt: skip
    assert fit(config, tmp_path / "run", *(word for pair in options.items() for word in pair)) == 0
    assert summary_of(tmp_path / "run")["epochs"] > 2
    points = read_history(tmp_path / "run" / "history.jsonl")
    assert [p["step"] for p in points if "val/loss" in p] == [10, 20, 30]
    rates = {p["step"]: p["health/learning_rate"] for p in points if "health/learning_rate" in p}
    assert sorted(rates) == list(range(1, 31))
    assert max(rates, key=lambda step: rates[step]) == 10
    assert rates[10] == pytest.approx(3e-3)
    assert rates[1] == pytest.approx(3e-4)


def test_a_repeated_run_is_bitwise_the_same(config: Path, run: Path, tmp_path: Path) -> None:
    assert fit(config, tmp_path / "twin", "--test_after_fit", "false") == 0
    name = "step-00000010.ckpt"
    weights = [torch.load(d / "checkpoints" / name)["state_dict"] for d in (run, tmp_path / "twin")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
