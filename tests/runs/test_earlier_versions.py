"""Runs of the version before this one: compared, loaded, evaluated and gone on with, with the figures they had."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ilr import load
from ilr.cli import main as ilr
from ilr.comparison.analysis import compare
from ilr.comparison.runs import find_runs
from ilr.runs.directory import RunDirectory, read_history
from ilr.runs.text import text_beside

GOLDEN = Path(__file__).parents[1] / "golden" / "old_runs"
RUN = Path("runs/default/2-1-s3")
NEAR = {"rel": 0.0, "abs": 1e-6}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the two runs and of their text, as the working directory."""
    shutil.copytree(GOLDEN, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    monkeypatch.setenv("ILR_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-old-runs"))
    return tmp_path / "old"


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def unfinish(run: Path) -> None:
    """As if it had been killed after its first checkpoint."""
    (run / "summary.json").unlink()
    record = json.loads((run / "checkpoints" / "record.json").read_text())
    (run / "checkpoints" / record["last"].pop()["file"]).unlink()
    record["best"] = record["last"][0]
    (run / "checkpoints" / "record.json").write_text(json.dumps(record))


def refused(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    try:
        status: Any = ilr(list(command))
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_they_are_compared_by_the_figures_that_they_had(folder: Path) -> None:
    """Right numbers, point 20."""
    table = compare([folder / "runs" / "default"]).table.set_index("label")
    for label in ("2-1", "1-1"):
        expected = summary_of(folder / "runs" / "default" / f"{label}-s3")["test_loss"]
        assert table.loc[label, "nll_mean"] == pytest.approx(expected, **NEAR)


def test_they_are_loaded_and_score_what_they_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right numbers, point 19."""
    summary = summary_of(RUN)
    assert load(RUN).config.width == 8
    for command, split in (("validate", "val"), ("test", "test")):
        assert ilr([command, "--run_dir", str(RUN)]) == 0
        out = capsys.readouterr().out.splitlines()
        (loss,) = (float(line.split()[1]) for line in out if line.strip().startswith(f"{split}/loss"))
        assert loss == pytest.approx(summary[f"{split}_loss"], **NEAR)
        assert ilr(["evaluate", str(RUN), "--json", "--split", {"val": "validation"}.get(split, split)]) == 0
        assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(loss, **NEAR)
    assert ilr(["analyse", str(RUN), "--tokens", "64"]) == 0
    assert ilr(["generate", str(RUN), "--prompt", "the", "--max-new-tokens", "2"]) == 0


def test_one_that_was_killed_goes_on_to_the_figures_of_the_straight_run(folder: Path) -> None:
    """Right numbers, point 13: without its event file, too; and it is the same arm as before."""
    straight, history = summary_of(RUN), read_history(RUN / "history.jsonl")
    shutil.copytree(RUN, folder / "kept")
    unfinish(RUN)
    assert ilr(["fit", "--run_dir", str(RUN), "--resume", "auto"]) == 0
    resumed = summary_of(RUN)
    assert straight["val_loss"] == pytest.approx(5.404733602864755, **NEAR)
    for name in ("val_loss", "test_loss", "best_val_loss", "train_loss", "scored_tokens", "steps", "tokens"):
        assert resumed[name] == pytest.approx(straight[name], **NEAR)
    for before, now in zip(history, read_history(RUN / "history.jsonl"), strict=True):
        assert now["step"] == before["step"]
        assert {tag: now[tag] for tag in now if tag.endswith("loss")} == pytest.approx(
            {tag: before[tag] for tag in before if tag.endswith("loss")}, **NEAR
        )
    (old,) = find_runs([folder / "kept"]).runs
    (new,) = find_runs([RUN]).runs
    assert new.config_hash == old.config_hash


def test_one_that_was_stopped_and_called_finished_goes_on(folder: Path) -> None:
    """Records that lie, point 14: its checkpoint knows how many steps were asked for."""
    straight = summary_of(RUN)
    unfinish(RUN)
    (RUN / "summary.json").write_text(json.dumps({**straight, "steps": 6}))
    assert ilr(["fit", "--run_dir", str(RUN), "--resume", "auto"]) == 0
    assert summary_of(RUN)["steps"] == 12
    assert summary_of(RUN)["val_loss"] == pytest.approx(straight["val_loss"], **NEAR)


def test_another_text_is_not_taken_for_theirs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right numbers, point 19: their checkpoints do not say what they were trained on, the files beside do."""
    text = (folder / "words.txt").read_text()
    (folder / "words.txt").write_text("Quite another text, quite so.\n\n" * 300 + text)
    commands = [
        ("validate", "--run_dir", str(RUN)),
        ("test", "--run_dir", str(RUN)),
        ("evaluate", str(RUN)),
        ("analyse", str(RUN), "--tokens", "64"),
    ]
    for command in commands:
        said = refused(*command, capsys=capsys)
        assert (
            "not the text that the run was trained on: train, validation, test, the tokenizer differs" in said
        )
    unfinish(RUN)  # now only the tokenizer says it
    before = (RUN / "tokenizer.json").read_bytes()
    for command in [*commands, ("fit", "--run_dir", str(RUN), "--resume", "auto")]:
        said = refused(*command, capsys=capsys)
        assert "not the text that the run was trained on: the tokenizer differs" in said
    assert (RUN / "tokenizer.json").read_bytes() == before


def test_their_text_under_another_name_goes_on_and_its_loss_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 19: as for runs of this version."""
    (folder / "words.txt").rename(folder / "moved.txt")
    straight = summary_of(RUN)
    for command in (("validate", "--run_dir", str(RUN)), ("evaluate", str(RUN))):
        said = refused(*command, capsys=capsys)
        assert "put it back where it was, or give it to fit or validate by --data.corpus FILE" in said
    unfinish(RUN)
    assert ilr(["fit", "--run_dir", str(RUN), "--resume", "auto", "--data.corpus", "moved.txt"]) == 0
    assert summary_of(RUN)["val_loss"] == pytest.approx(straight["val_loss"], **NEAR)


def test_a_split_that_was_cut_is_not_held_against_the_whole_one(folder: Path) -> None:
    """Right numbers, point 19: summaries have the hashes of what was used."""
    data = yaml.safe_load((RUN / "config.yaml").read_text())["data"]
    for cut, whole in (
        ({}, {"train", "validation", "test"}),
        ({"max_train_tokens": 9}, {"validation", "test"}),
        ({"max_eval_tokens": 9}, {"train"}),
    ):
        text = text_beside(RunDirectory(RUN), {**data, **cut})
        assert text is not None
        assert set(text.split_hashes) == whole
        assert text.tokenizer_hash == summary_of(RUN)["tokenizer_hash"]
