"""What is kept, which is the best, and what happens when the disk does not play along."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ilr.errors import InputError
from ilr.runs.checkpoints import AtomicCheckpointIO, Checkpoints, Record, Saved
from ilr.runs.directory import RunDirectory


class Trainer:
    """As much of a trainer as saving asks for."""

    is_global_zero = True

    def __init__(self) -> None:
        self.global_step = 0
        self.weight = torch.nn.Parameter(torch.zeros(3))
        self.lightning_module = SimpleNamespace(parameters=lambda: [self.weight])

    def save_checkpoint(self, path: Path) -> None:
        values = {"global_step": self.global_step, "state_dict": {}, "hyper_parameters": {}, "ilr": {}}
        AtomicCheckpointIO().save_checkpoint(values, path)


def saved(directory: RunDirectory, losses: list[float | None]) -> Checkpoints:
    directory.create()
    callback, trainer = Checkpoints(directory, every=1), Trainer()
    for step, loss in enumerate(losses, 1):
        trainer.global_step = step
        callback.save(trainer, loss)  # type: ignore[arg-type]
    return callback


NAN = float("nan")


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([NAN, 3.0, NAN, 2.0], 4),
        ([3.0, 2.0, NAN], 2),
        ([2.0, 3.0, 4.0], 1),
        ([NAN, NAN], None),
        ([None, 5.0, None], 2),
    ],
)
def test_a_nan_never_wins_and_never_blocks(
    tmp_path: Path, losses: list[float | None], best: int | None
) -> None:
    saved(RunDirectory(tmp_path), losses)
    record = Record.read(RunDirectory(tmp_path))
    assert (record.best and record.best.step) == best


def test_the_two_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    saved(RunDirectory(tmp_path), [1.0, 2.0, 3.0, 4.0, None])
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.ckpt"))
    assert kept == ["step-00000001.ckpt", "step-00000004.ckpt", "step-00000005.ckpt"]
    record = Record.read(RunDirectory(tmp_path))
    assert record.best == Saved("step-00000001.ckpt", 1, 1.0)
    assert [entry.step for entry in record.last] == [4, 5]


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    callback, trainer = saved(directory, [1.0]), Trainer()
    trainer.global_step = 2
    with torch.no_grad():
        trainer.weight[0] = NAN
    with pytest.warns(UserWarning, match="not finite at step 2"):
        callback.save(trainer, 0.5)  # type: ignore[arg-type]
    assert [entry.step for entry in Record.read(directory).last] == [1]


def test_a_damaged_newest_file_falls_back_to_the_one_before(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    saved(directory, [1.0, 2.0])
    newest = directory.checkpoints / "step-00000002.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(
        UserWarning, match=r"step-00000002.ckpt is no checkpoint, or one that was cut short; going back"
    ):
        found = Record.read(directory).newest_readable(directory)
    assert found is not None
    assert (found[0].name, found[1]["global_step"]) == ("step-00000001.ckpt", 1)


def test_a_full_disk_is_one_message_and_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "step-00000001.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)

    def full(checkpoint: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match=r"No space left on device.*earlier checkpoints are intact"):
        AtomicCheckpointIO().save_checkpoint({"step": 2}, path)
    monkeypatch.undo()
    assert AtomicCheckpointIO().load_checkpoint(path)["step"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["step-00000001.ckpt"]


def test_a_directory_without_a_record_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert Record.read(RunDirectory(tmp_path)).newest_readable(RunDirectory(tmp_path)) is None
