"""What a run does where its directory is moved, replaced or linked, or holds files that are not its own."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_cases import fit, record_of, write_config

from ilr.commands.evaluate import main as evaluate
from ilr.commands.train import main
from ilr.errors import InputError
from ilr.files.lock import Holder, check_held, held
from ilr.runs.checkpoints import Checkpoints
from ilr.runs.directory import read_history


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
    """The run as if it had been killed after its last checkpoint."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("instead", ["nothing", "another run"])
def test_a_run_whose_directory_was_replaced_writes_nothing_into_the_new_one(
    config: Path,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    instead: str,
) -> None:
    """Records that lie, point 15: the lock is of the directory that was there, not of its name."""
    save, replaced = Checkpoints.save, tmp_path / "run"
    before: dict[str, bytes] = {}

    def replace(self: Checkpoints, trainer: Any, val_loss: float | None = None) -> None:
        save(self, trainer, val_loss)
        if not before and trainer.global_step >= 3:
            shutil.rmtree(replaced)
            if instead == "another run":
                shutil.copytree(run, replaced)
                (replaced / ".lock").write_text("of the other process")
            before.update(contents(replaced) or {"none": b""})

    monkeypatch.setattr(Checkpoints, "save", replace)
    with pytest.raises(SystemExit, match="2"):
        fit(config, replaced)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "run was removed or replaced while this process was writing there" in error
    assert contents(replaced) == (before if instead == "another run" else {})


def test_whoever_lets_go_of_a_lock_leaves_that_of_another_alone(tmp_path: Path) -> None:
    """Records that lie, point 15."""
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / ".lock"
    with held(tmp_path / "run", "it"):
        check_held(tmp_path / "run")
        lock.rename(tmp_path / "old")
        lock.write_text("of another")
        with pytest.raises(InputError, match="was removed or replaced"):
            check_held(tmp_path / "run")
    assert (tmp_path / "run" / ".lock").read_text() == "of another"
    check_held(tmp_path / "run")  # of what is not held there is nothing to say
    with held(tmp_path / "run", "it"):
        assert Holder.read(tmp_path / "run" / ".lock") == Holder.this_process()


def test_a_checkpoint_under_a_name_of_the_user_stays(config: Path, run: Path, copy: Path) -> None:
    """Records that lie, point 16: what is deleted is what the run has written."""
    folder = copy / "checkpoints"
    oldest = min(folder.glob("step-*.ckpt"))
    shutil.copy(oldest, folder / "mine.ckpt")
    kept = (folder / "mine.ckpt").read_bytes()
    assert main(["fit", "--run_dir", str(copy), "--ckpt_path", str(folder / "mine.ckpt")]) == 0
    assert (folder / "mine.ckpt").read_bytes() == kept
    assert record_of(copy) == record_of(run)


@pytest.mark.parametrize("linked", ["run", "checkpoints"])
def test_a_run_behind_links_is_a_run(
    config: Path, run: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], linked: str
) -> None:
    """Records that lie, points 13 and 19: checkpoints are kept on another disk."""
    place = copy if linked == "run" else copy / "checkpoints"
    (tmp_path / "disk").mkdir()
    shutil.move(str(place), tmp_path / "disk" / "there")
    place.symlink_to(tmp_path / "disk" / "there")
    newest = max((copy / "checkpoints").glob("step-*.ckpt"))
    for path in (copy, newest):
        capsys.readouterr()
        assert evaluate([str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["checkpoint"].endswith(newest.name)
    assert fit(config, copy, "--resume", "auto") == 0
    assert record_of(copy) == record_of(run)
    assert place.is_symlink()


def test_a_run_moved_elsewhere_goes_on_there(
    config: Path, run: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that lie, point 13: no record holds a path that matters; line ends and marks do not either."""
    for name in ("config.yaml", "history.jsonl", "checkpoints/record.json"):
        (copy / name).write_bytes(b"\xef\xbb\xbf" + (copy / name).read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "else").mkdir()
    shutil.move(str(copy), tmp_path / "else" / "where")
    monkeypatch.chdir(tmp_path / "else")
    assert main(["fit", "--run_dir", "where", "--resume", "auto"]) == 0
    assert record_of(Path("where")) == record_of(run)
    assert os.listdir() == ["where"]


def test_a_history_of_two_fits_at_once_has_each_point_once_after_a_resume(run: Path, copy: Path) -> None:
    """Records that lie, point 15: as earlier versions left it."""
    lines = (copy / "history.jsonl").read_text().splitlines(keepends=True)
    (copy / "history.jsonl").write_text("".join([*lines[:4], *lines[2:], *lines[1:3]]))
    assert main(["fit", "--run_dir", str(copy), "--resume", "auto"]) == 0
    assert record_of(copy) == record_of(run)
    assert len(read_history(copy / "history.jsonl")) == len(lines)
