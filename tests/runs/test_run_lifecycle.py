"""What a run takes up again, what it refuses, and what it leaves: stops, leftovers, locks, damage, foreign code."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from run_cases import fit, record_of, refusal, summary_of, write_config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ilr import load
from ilr.commands.train import main
from ilr.files.lock import Holder, held
from ilr.runs.checkpoints import Checkpoints, Record, Saved, read_checkpoint
from ilr.runs.directory import RunDirectory, atomic_write, read_history
from ilr.runs.record import RunRecord


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="module")
def run(config: Path) -> Path:
    """A finished run of ten steps."""
    assert fit(config, config.parent / "run") == 0
    return config.parent / "run"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The finished run, free to be changed."""
    return Path(shutil.copytree(run, tmp_path / "run"))


class _Killed(BaseException):
    """Ends a run as a kill would: nothing is written on the way out."""


def flip(path: Path, share: float = 0.5) -> None:
    """Turn over a byte."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0xFF
    path.write_bytes(content)


# -- nothing left to train ---------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["score_validation", "score_tests", "finish"])
def test_a_run_killed_after_its_last_checkpoint_leaves_the_record_of_the_straight_run(
    config: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Records that lie, point 13."""
    work = getattr(RunRecord, moment)

    def cut(*arguments: Any) -> None:
        if moment == "score_tests":
            work(*arguments)  # the tests are in the history already
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(RunRecord, moment, cut)
        with pytest.raises(_Killed):
            fit(config, tmp_path / "killed")
    assert not (tmp_path / "killed" / "summary.json").exists()
    assert fit(config, tmp_path / "killed", "--resume", "auto") == 0
    assert record_of(tmp_path / "killed") == record_of(run)
    scalars = [
        EventAccumulator(str(path), purge_orphaned_data=False).Reload() for path in (run, tmp_path / "killed")
    ]
    assert scalars[0].Tags()["scalars"] == scalars[1].Tags()["scalars"]
    assert (
        scalars[0].summary_metadata.keys() == scalars[1].summary_metadata.keys()
    )  # with text and parameters


def test_a_finished_run_whose_documents_are_gone_can_be_finished_again(
    config: Path, run: Path, copy: Path
) -> None:
    """Records that lie, point 13: the same record from the last checkpoint alone."""
    (copy / "documents.parquet").unlink()
    (copy / "summary.json").unlink()
    assert fit(config, copy, "--resume", "auto") == 0
    assert record_of(copy) == record_of(run)


def test_a_checkpoint_that_a_killed_start_had_not_yet_removed_is_removed(
    config: Path, run: Path, copy: Path
) -> None:
    """Records that lie, point 13: killed between the record of the last checkpoint and the removal of an older one."""
    (newest, *_) = sorted((copy / "checkpoints").glob("*.ckpt"), reverse=True)
    shutil.copy(newest, copy / "checkpoints" / "step-00000001.ckpt")
    (copy / "summary.json").unlink()
    assert fit(config, copy, "--resume", "auto") == 0
    names = [sorted(path.name for path in (each / "checkpoints").iterdir()) for each in (run, copy)]
    assert names[0] == names[1]


def test_the_speed_after_a_resume_counts_only_tokens_that_were_timed(config: Path, tmp_path: Path) -> None:
    """Records that lie, point 13: ten steps logged as one interval, resumed at the ninth."""
    options = ("--log_every", "10", "--save_every", "3", "--val_every", "9")
    with pytest.raises(_Killed), _killed_at(9):
        fit(config, tmp_path / "run", *options)
    assert fit(config, tmp_path / "run", *options, "--resume", "auto") == 0
    last = [p for p in read_history(tmp_path / "run" / "history.jsonl") if "train/tokens_per_second" in p][-1]
    assert last["step"] == 10
    assert last["train/tokens_per_second"] * 0.0001 < 2 * 16  # one step's tokens, which take more than 0.1 ms


class _killed_at:  # noqa: N801  # reads as a statement
    """End the training before this step's first micro-batch, by way of the callback that shows validations."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __enter__(self) -> None:
        from ilr.commands import train as training_cli

        step = self.step

        class PowerCut(training_cli.ValidationLines):
            def on_train_batch_start(self, trainer: Any, *arguments: Any) -> None:
                if trainer.global_step == step:
                    raise _Killed

        self.module, self.original = training_cli, training_cli.ValidationLines
        training_cli.ValidationLines = PowerCut  # type: ignore[misc]

    def __exit__(self, *arguments: object) -> None:
        self.module.ValidationLines = self.original  # type: ignore[misc]


# -- stopped -----------------------------------------------------------------------------------------------

EARLY = (
    "--trainer.callbacks=[{class_path: lightning.pytorch.callbacks.EarlyStopping, "
    "init_args: {monitor: val/loss, mode: min, min_delta: 100, patience: 1}}]"
)


def test_early_stopping_is_a_status_of_its_own_and_the_run_goes_on_without_it(
    config: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 14."""
    assert fit(config, tmp_path / "run", EARLY) == 0
    summary = summary_of(tmp_path / "run")
    assert (summary["status"], summary["steps"], summary["tokens"]) == ("stopped", 8, 8 * 2 * 16)
    out = capsys.readouterr().out
    assert "stopped 2-1: 8 of 10 steps" in out
    assert "--resume auto" in out
    assert main(["validate", "--run_dir", str(tmp_path / "run")]) == 0
    assert fit(config, tmp_path / "run", "--resume", "auto", "--trainer.callbacks", "null") == 0
    assert record_of(tmp_path / "run") == record_of(run)


def test_a_stop_asked_for_within_a_window_waits_for_its_end_and_nothing_is_lost(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that lie, point 14: a state saved after half an accumulation window would lose half a gradient."""
    windows = ("--trainer.accumulate_grad_batches", "2", "--model.dropout", "0.1", "--val_every", "20")
    assert fit(config, tmp_path / "straight", *windows) == 0
    (tmp_path / "lifecycle_callbacks.py").write_text(
        "from lightning.pytorch.callbacks import Callback\n\n\n"
        "class Timer(Callback):\n"
        "    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n"
        "        trainer.should_stop |= batch_idx == 10\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    stop = "--trainer.callbacks=[{class_path: lifecycle_callbacks.Timer}]"
    assert fit(config, tmp_path / "run", *windows, stop) == 0
    assert (summary_of(tmp_path / "run")["status"], summary_of(tmp_path / "run")["steps"]) == ("stopped", 6)
    assert fit(config, tmp_path / "run", *windows, "--resume", "auto", "--trainer.callbacks", "null") == 0
    straight, resumed = record_of(tmp_path / "straight"), record_of(tmp_path / "run")
    assert resumed["documents"] == straight["documents"]
    extra = [point for point in resumed["history"] if point not in straight["history"]]
    assert [point["step"] for point in extra] == [6]  # it was validated where it stopped


def test_a_run_stopped_by_max_time_goes_on_with_more_time_or_none(config: Path, tmp_path: Path) -> None:
    """Records that lie, point 14."""
    steps = ("--trainer.max_steps", "30", "--model.dropout", "0.1", "--trainer.accumulate_grad_batches", "2")
    assert fit(config, tmp_path / "straight", *steps) == 0
    assert fit(config, tmp_path / "run", *steps, "--trainer.max_time", "00:00:00:00") == 0
    first = summary_of(tmp_path / "run")
    assert first["status"] == "stopped"
    assert first["steps"] < 30
    more = ("--resume", "auto", "--trainer.max_time", "00:01:00:00")
    assert fit(config, tmp_path / "run", *steps, *more) == 0
    assert summary_of(tmp_path / "run")["status"] == "finished"
    weights = [
        read_checkpoint(tmp_path / name / "checkpoints" / "step-00000030.ckpt")["state_dict"]
        for name in ("straight", "run")
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_compare_says_which_runs_were_stopped(
    config: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 14."""
    from ilr.commands.compare import main as compare

    shutil.copytree(run, tmp_path / "runs" / "whole")
    assert fit(config, tmp_path / "runs" / "early", EARLY, "--model.schedule", "[1,1]") == 0
    capsys.readouterr()
    assert compare([str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 0
    notes = (tmp_path / "out" / "comparison.md").read_text()
    assert "Stopped before their last step, can go on, not compared (1): " in notes
    assert "runs/early" in notes


# -- one writer --------------------------------------------------------------------------------------------


@pytest.fixture
def other_fit(copy: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the directory's lock as a fit does, until it is killed."""
    code = (
        "import sys, time, pathlib\nfrom ilr.files.lock import held\n"
        "with held(pathlib.Path(sys.argv[1]), 'x'):\n    print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(copy)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_fit_is_told_who_holds_the_directory_and_a_killed_holder_does_not_block(
    config: Path, copy: Path, other_fit: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 15."""
    import socket

    before = {path: path.read_bytes() for path in sorted(copy.rglob("*")) if path.is_file()}
    for options in ((), ("--resume", "auto")):
        error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(copy), *options)
        assert f"in use by process {other_fit.pid} on {socket.gethostname()}, started 20" in error
    assert {path: path.read_bytes() for path in sorted(copy.rglob("*")) if path.is_file()} == before
    assert main(["validate", "--run_dir", str(copy)]) == 0  # reading needs no lock
    other_fit.send_signal(signal.SIGKILL)
    other_fit.wait()
    assert fit(config, copy, "--resume", "auto") == 0
    assert "already finished" in capsys.readouterr().out


def test_the_lock_is_held_from_the_first_byte_to_the_last(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that lie, point 15."""
    found: list[Any] = []
    begin, finish = RunRecord.begin, RunRecord.finish

    def note(work: Any) -> Any:
        def noted(*arguments: Any) -> None:
            work(*arguments)
            found.append(Holder.read(tmp_path / "run" / ".lock"))
            with (
                pytest.raises(ValueError, match=f"is in use by process {os.getpid()} on"),
                held(tmp_path / "run", "it"),
            ):
                pass

        return noted

    monkeypatch.setattr(RunRecord, "begin", note(begin))
    monkeypatch.setattr(RunRecord, "finish", note(finish))
    assert fit(config, tmp_path / "run", "--trainer.max_steps", "1") == 0
    assert found == [Holder.this_process()] * 3  # begin is asked for twice
    with held(tmp_path / "run", "it"):
        pass
    assert (tmp_path / "run" / ".lock").read_text() == ""


def test_a_lock_left_by_a_dead_process_says_nothing(tmp_path: Path) -> None:
    """Records that lie, point 15: the file of a process that a reboot ended."""
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "elsewhere", "started": "2020", "command": "fit"}')
    with held(tmp_path, "it"):
        assert Holder.read(tmp_path / ".lock") == Holder.this_process()
    (tmp_path / ".lock").write_bytes(b"\xff\xfe[")
    with held(tmp_path, "it"):
        pass


# -- beginning again ---------------------------------------------------------------------------------------


def test_a_run_without_a_checkpoint_begins_again_with_the_values_given_now(
    config: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 16."""
    with pytest.raises(_Killed), _killed_at(2):
        fit(config, tmp_path / "run", "--model.learning_rate", "0.5", "--seed_everything", "9")
    (tmp_path / "run" / "documents.parquet").write_bytes(b"of the run before")
    (tmp_path / "run" / "config-resume-1.yaml").write_text("model: {}")
    (tmp_path / "run" / ".config.yaml.77.partial").write_text("half")
    (tmp_path / "run" / "checkpoints" / "step-00000003.ckpt.partial").write_text("half")
    (tmp_path / "run" / "checkpoints" / ".step-00000003.ckpt.1@x.partial").write_text("half")
    assert fit(config, tmp_path / "run", "--resume", "auto") == 0
    assert "without a checkpoint: it begins again at step 0" in capsys.readouterr().out
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (kept["model"]["learning_rate"], kept["seed_everything"]) == (0.003, 1)
    assert record_of(tmp_path / "run") == record_of(run)
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if not p.name.startswith("events")) == sorted(
        p.name for p in run.iterdir() if not p.name.startswith("events")
    )
    assert not list((tmp_path / "run").rglob("*.partial"))


@pytest.mark.parametrize("options", [(), ("--resume", "auto")], ids=["new", "auto"])
@pytest.mark.parametrize(
    "left", ["checkpoints", "documents.parquet", "tokenizer.json", "analysis", "history.jsonl"]
)
def test_what_is_left_of_a_deleted_run_is_refused_and_not_adopted(
    config: Path, copy: Path, capsys: pytest.CaptureFixture[str], left: str, options: tuple[str, ...]
) -> None:
    """Records that lie, point 16: after `rm RUN/*` the folder of checkpoints is still there."""
    (copy / "analysis").mkdir()
    for path in copy.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(copy.rglob("*"))
    error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(copy), *options)
    assert "what is left of one without a config.yaml" in error
    assert sorted(copy.rglob("*")) == before


def test_a_directory_with_other_files_of_the_user_can_hold_a_run(config: Path, tmp_path: Path) -> None:
    """Records that lie, point 16."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.md").write_text("mine")
    assert fit(config, tmp_path / "run", "--trainer.max_steps", "1") == 0
    assert (tmp_path / "run" / "notes.md").read_text() == "mine"


def test_a_finished_run_without_its_checkpoints_is_not_trained_again(
    config: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 16: the summary says that it was finished."""
    shutil.rmtree(copy / "checkpoints")
    assert fit(config, copy, "--resume", "auto") == 0
    assert "already finished at step 10" in capsys.readouterr().out


def test_checkpoints_whose_record_is_lost_are_not_thrown_away(
    config: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 16."""
    (copy / "summary.json").unlink()
    (copy / "checkpoints" / "record.json").unlink()
    before = sorted(copy.rglob("*.ckpt"))
    error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(copy), "--resume", "auto")
    assert "no record.json" in error
    assert "--ckpt_path" in error
    assert sorted(copy.rglob("*.ckpt")) == before


def test_what_a_killed_writer_left_goes_with_the_next_write_of_the_file(tmp_path: Path) -> None:
    """Records that lie, point 16."""
    code = (
        "import os, sys, pathlib\nfrom ilr.runs.directory import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1]) / 'a.json') as file:\n"
        "    file.write('half'); file.flush(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with atomic_write(tmp_path / "a.json") as file:
        file.write("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_record_is_cut_where_a_run_goes_on(tmp_path: Path) -> None:
    """Records that lie, point 16: what was saved after that step is taken again, and is not the best before it is."""
    record = Record([Saved("a", 3), Saved("b", 6, 2.0)], Saved("b", 6, 2.0))
    assert record.cut(3) == Record([Saved("a", 3)], None)
    assert record.cut(6) == record
    directory = RunDirectory(tmp_path)
    directory.create()
    record.write(directory)
    assert Checkpoints(directory, 1).record == Record([])  # a new run owns nothing of what it finds
    assert Checkpoints(directory, 1, 6).record == record


# -- damage ------------------------------------------------------------------------------------------------


def test_a_flipped_byte_is_noticed_wherever_a_checkpoint_is_read(
    run: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 18: torch reads without the checksums that it writes."""
    from ilr.commands.evaluate import main as evaluate
    from ilr.commands.generate import main as generate

    record = json.loads((copy / "checkpoints" / "record.json").read_text())
    best = copy / "checkpoints" / record["best"]["file"]
    flip(best)
    torch.load(best, weights_only=True)  # says nothing
    for arguments in (["validate", "--run_dir", str(copy)], ["test", "--ckpt_path", str(best)]):
        assert f"{best} is damaged" in refusal(capsys, *arguments)
    with pytest.raises(ValueError, match="is damaged"):
        load(copy)
    for command in (evaluate, generate):
        try:
            status: Any = command([str(copy)])
        except SystemExit as end:
            status = end.code
        assert status == 2
        assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.7, 0.9])
def test_a_damaged_newest_checkpoint_gives_way_to_an_older_one_with_a_word(
    config: Path, run: Path, copy: Path, share: float
) -> None:
    """Records that lie, point 18: the record at the end is that of the straight run."""
    (copy / "summary.json").unlink()
    newest = copy / "checkpoints" / "step-00000010.ckpt"
    flip(newest, share)
    with pytest.warns(UserWarning, match="step-00000010.ckpt.*going back to the one before it"):
        assert fit(config, copy, "--resume", "auto") == 0
    assert record_of(copy) == record_of(run)
    read_checkpoint(newest)


def test_where_all_checkpoints_are_damaged_nothing_is_thrown_away(
    config: Path, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that lie, point 18."""
    (copy / "summary.json").unlink()
    files = sorted((copy / "checkpoints").glob("*.ckpt"))
    for path in files:
        flip(path)
    with pytest.warns(UserWarning, match="going back"):
        error = refusal(capsys, "fit", "-c", str(config), "--run_dir", str(copy), "--resume", "auto")
    assert "no checkpoint of" in error
    assert sorted((copy / "checkpoints").glob("*.ckpt")) == files


def test_a_damaged_best_checkpoint_at_the_end_gives_a_warning_and_nulls(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that lie, point 18."""
    score = RunRecord.score_tests

    def damaged(self: RunRecord, *arguments: Any) -> Any:
        record = Record.read(self.directory)
        assert record.best is not None
        shutil.copy(
            self.directory.checkpoints / record.last[0].file, self.directory.checkpoints / "best.ckpt"
        )
        record.best = Saved("best.ckpt", record.last[0].step, record.best.val_loss)
        record.write(self.directory)
        flip(self.directory.checkpoints / "best.ckpt")
        return score(self, *arguments)

    monkeypatch.setattr(RunRecord, "score_tests", damaged)
    with pytest.warns(UserWarning, match=r"best\.ckpt is damaged.*the best weights are not tested"):
        assert fit(config, tmp_path / "run") == 0
    summary = summary_of(tmp_path / "run")
    assert summary["status"] == "finished"
    assert summary["test_loss"] > 0
    assert (summary["best_test_loss"], summary["best_test_bits_per_byte"]) == (None, None)


# -- code from data ----------------------------------------------------------------------------------------

IMPORTS = {
    "a callback": ("trainer", "callbacks", [{"class_path": "sent_along.Callback"}]),
    "a callback by its name": ("trainer", "callbacks", "sent_along.Callback"),
    "a function within a callback": (
        "trainer",
        "callbacks",
        [
            {
                "class_path": "lightning.pytorch.callbacks.LambdaCallback",
                "init_args": {"setup": "sent_along.f"},
            }
        ],
    ),
    "a hook within a known strategy": (
        "trainer",
        "strategy",
        {
            "class_path": "lightning.pytorch.strategies.DDPStrategy",
            "init_args": {"ddp_comm_hook": "sent_along.f"},
        },
    ),
    "a logger": ("trainer", "logger", "sent_along.Logger"),
    "a profiler": ("trainer", "profiler", {"class_path": "sent_along.Profiler"}),
    "a plugin": ("trainer", "plugins", [{"class_path": "sent_along.Plugin"}]),
    "a class in a schedule": ("model", "schedule", [{"class_path": "sent_along.Schedule"}]),
    "JSON in a schedule": ("model", "schedule", ['{"class_path": "sent_along.Schedule"}']),
    "a class for data": ("data", "corpus", {"class_path": "sent_along.Corpus"}),
}


@pytest.fixture
def module_sent_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a mark when it is imported."""
    mark = tmp_path / "imported"
    (tmp_path / "sent_along.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
        "from lightning.pytorch.callbacks import Callback\n\n\ndef f(*a): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("sent_along", None)


@pytest.mark.parametrize(("section", "option", "value"), IMPORTS.values(), ids=IMPORTS.keys())
def test_a_run_directory_has_nothing_imported_that_the_user_did_not_name(
    config: Path,
    copy: Path,
    module_sent_along: Path,
    capsys: pytest.CaptureFixture[str],
    section: str,
    option: str,
    value: Any,
) -> None:
    """Bad input, point 23."""
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings[section][option] = value
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    (copy / "summary.json").unlink()
    checkpoint = copy / "checkpoints" / "step-00000010.ckpt"
    if section == "model":
        content = torch.load(checkpoint, weights_only=True)
        content["hyper_parameters"][option] = value
        torch.save(content, checkpoint)
    commands = [
        ["fit", "--run_dir", str(copy), "--resume", "auto"],
        ["fit", "--ckpt_path", str(checkpoint)],
    ]
    validate = ["validate", "--run_dir", str(copy), "--weights", "last"]
    if option in ("callbacks", "logger", "profiler"):  # an evaluation has no use for them
        assert main(validate) == 0
        assert main(["test", *validate[1:]]) == 0
    else:
        commands.append(validate)
    for arguments in commands:
        error = refusal(capsys, *arguments)
        assert "sent_along" in error or "LambdaCallback" in error
        # A value of a type that the option cannot have is refused before anyone asks what it names.
        assert "--trust" in error or "allowed: a valid string" in error
        assert f"{section}.{option}" in error
    with pytest.raises((ValueError, TypeError)) if section == "model" else nullcontext():
        load(copy, weights="last")
    assert not module_sent_along.exists()


def test_what_the_user_trusts_or_names_is_imported(
    config: Path, run: Path, copy: Path, module_sent_along: Path
) -> None:
    """Bad input, point 23."""
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings["trainer"]["callbacks"] = [{"class_path": "sent_along.Callback"}]
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    (copy / "summary.json").unlink()
    again = ("--resume", "auto")
    assert fit(config, copy, *again, "--trainer.callbacks=[{class_path: sent_along.Callback}]") == 0
    assert module_sent_along.exists()
    (copy / "summary.json").unlink()
    assert fit(config, copy, *again, "--trust") == 0
    assert record_of(copy)["documents"] == record_of(run)["documents"]


def test_known_classes_of_one_s_own_runs_need_no_trust(config: Path, tmp_path: Path) -> None:
    """Bad input, point 23: a callback that only stops, with plain arguments."""
    assert fit(config, tmp_path / "run", EARLY) == 0
    assert main(["validate", "--run_dir", str(tmp_path / "run")]) == 0
    assert fit(config, tmp_path / "run", "--resume", "auto") == 0


# -- foreign weights ---------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_are_refused_with_both_names_or_shapes(
    config: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input, point 24."""
    path = copy / "checkpoints" / "step-00000010.ckpt"
    whole = torch.load(path, weights_only=True)
    key = "decoder.attention.0.key.weight"
    (copy / "summary.json").unlink()
    for state, words in (
        ({**whole["state_dict"], key: torch.zeros(8, 16)}, (key, "(8, 16)", "(16, 16)")),
        (
            {name.replace(".key.", ".k_proj."): t for name, t in whole["state_dict"].items()},
            ("attention.0.k_proj.weight", key),
        ),
    ):
        torch.save({**whole, "state_dict": state}, path)
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are checked below
            load(path)
        said = [
            str(error.value),
            refusal(capsys, "validate", "--ckpt_path", str(path)),
            refusal(capsys, "fit", "--ckpt_path", str(path)),
        ]
        assert all(word in text for word in words for text in said), said
    foreign = tmp_path / "foreign.ckpt"
    torch.save({"model.embed_tokens.weight": torch.zeros(3)}, foreign)
    with pytest.raises(
        ValueError, match=r"it has the keys model\.embed_tokens\.weight; needed are .*state_dict"
    ):
        load(foreign)


def test_a_tied_head_written_out_is_accepted_where_it_equals_the_embedding(copy: Path) -> None:
    """Bad input, point 24."""
    path = copy / "checkpoints" / "step-00000010.ckpt"
    whole = torch.load(path, weights_only=True)
    embedding = whole["state_dict"]["decoder.embedding.weight"]
    for name in ("lm_head.weight", "decoder.head.weight"):
        torch.save({**whole, "state_dict": {**whole["state_dict"], name: embedding.clone()}}, path)
        assert torch.equal(load(path).embedding.weight, embedding)
        torch.save({**whole, "state_dict": {**whole["state_dict"], name: embedding + 1}}, path)
        with pytest.raises(ValueError, match=name):
            load(path)
        torch.save({**whole, "state_dict": {**whole["state_dict"], name: embedding.clone()}}, path)
    assert main(["validate", "--ckpt_path", str(path)]) == 0
