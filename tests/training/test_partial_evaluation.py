"""Right numbers, point 1: a figure is over all tokens of its split but the first, or it is not made."""

import json
import math
from pathlib import Path
from typing import Any

import lightning as L
import pyarrow.parquet as pq
import pytest
import yaml
from jsonargparse import Namespace
from training_cases import tiny_model, tiny_text

from ilr.cli import main as ilr
from ilr.commands.train import main
from ilr.errors import InputError
from ilr.training.trainer_checks import check_trainer

VALUES: dict[str, Any] = {
    "seed_everything": 1,
    "val_every": 2,
    "model": {"schedule": [2, 1], "context": 16, "width": 16, "num_layers": 2, "num_heads": 2},
    "data": {"corpus": "pydoc", "vocab_size": 300, "batch_size": 4, "max_documents": 30},
    "trainer": {"max_epochs": -1, "max_steps": 2, "enable_progress_bar": False, "accelerator": "cpu"},
}
PARTS = [
    ("limit_val_batches", "2"),
    ("limit_val_batches", "0.1"),
    ("limit_val_batches", "0"),
    ("limit_val_batches", "100000"),
    ("limit_test_batches", "1"),
    ("limit_test_batches", "0.5"),
    ("limit_predict_batches", "2"),
    ("fast_dev_run", "true"),
    ("fast_dev_run", "3"),
    ("overfit_batches", "2"),
    ("overfit_batches", "0.5"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partial")
    values = {**VALUES, "data": {**VALUES["data"], "cache_dir": str(folder / "cache")}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    return folder


def fit(folder: Path, run: str, *options: str) -> Path:
    assert main(["fit", "-c", str(folder / "tiny.yaml"), "--run_dir", str(folder / run), *options]) == 0
    return folder / run


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return fit(folder, "run")


@pytest.mark.parametrize("command", ["fit", "validate", "test"])
@pytest.mark.parametrize(("option", "value"), PARTS, ids=lambda one: one)
def test_an_option_that_cuts_an_evaluation_is_refused_by_name(
    folder: Path, run: Path, capsys: pytest.CaptureFixture[str], command: str, option: str, value: str
) -> None:
    """Right numbers, point 1 (field case N2: 0.300 bits per byte of a split that has 3.3198)."""
    where = ["-c", str(folder / "tiny.yaml"), "--run_dir", str(folder / "refused")]
    arguments = where if command == "fit" else ["--run_dir", str(run)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([command, *arguments, f"--trainer.{option}", value])
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert f"--trainer.{option}" in error
    assert len(error.splitlines()) == 1
    assert "bits" not in out
    assert not (folder / "refused").exists()


def test_one_batch_is_not_all_batches() -> None:
    """Right numbers, point 1: the integer 1 equals 1.0."""
    options = Namespace(fast_dev_run=False, limit_val_batches=1, limit_test_batches=None)
    with pytest.raises(InputError, match="limit_val_batches 1 would call a part the whole"):
        check_trainer("validate", options)


def test_a_whole_evaluation_named_so_is_let_through(folder: Path, run: Path) -> None:
    """Right numbers, point 1: 1.0 is all batches, and a sanity check before training leaves no trace."""
    other = fit(folder, "named", "--trainer.limit_val_batches", "1.0", "--trainer.num_sanity_val_steps", "1")
    one, two = (json.loads((path / "summary.json").read_text()) for path in (run, other))
    for key in ("val_loss", "val_bits_per_byte", "test_bits_per_byte", "scored_tokens"):
        assert one[key] == two[key]


@pytest.mark.parametrize(("stage", "split"), [("validate", "validation"), ("test", "test")])
def test_no_figure_of_a_part_is_made_whatever_has_cut_it(folder: Path, stage: str, split: str) -> None:
    """Right numbers, point 1: the tokens scored are counted against the split's wherever a figure is made."""
    model, data = tiny_model(), tiny_text(str(folder / "cache"))
    options: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = L.Trainer(**options, limit_val_batches=2, limit_test_batches=0.5)
    with pytest.raises(InputError, match=f"tokens of the {split} split were scored, not each of its"):
        getattr(trainer, stage)(model, datamodule=data, verbose=False)
    assert model.figures == model.scores == {}
    getattr(L.Trainer(**options), stage)(model, datamodule=data, verbose=False)
    (scores,) = model.scores.values()
    assert scores.scored_tokens == len(data.stream(split)) - 1


def test_a_split_cut_by_the_data_is_scored_over_its_own_bytes_and_marked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 1: in the terminal, the summary, the history and `validate`."""
    capsys.readouterr()
    cut = fit(folder, "cut", "--data.max_eval_tokens", "4000")
    lines = [line for line in capsys.readouterr().out.splitlines() if "bits per byte" in line]
    summary = json.loads((cut / "summary.json").read_text())
    table = pq.read_table(cut / "documents.parquet").to_pandas()
    whole = tiny_text(str(folder / "cache"))
    whole.setup()
    for split, prefix in (("validation", "val"), ("test", "test")):
        part = table[table.split == split]
        bits = part.nll.sum() / math.log(2) / part.bytes.sum()
        assert summary[f"{prefix}_bits_per_byte"] == pytest.approx(bits, rel=1e-12)
        share = (part.tokens.sum() + 1) / len(whole.stream(split))
        assert 0 < share < 1
        assert summary["share_of_split"][split] == pytest.approx(share)
        mark = f"(of the first {100 * share:.3g} % of the split)"
        assert any(line.strip().startswith(split) and line.endswith(mark) for line in lines)
    points = [json.loads(line) for line in (cut / "history.jsonl").read_text().splitlines()]
    marked = [point["val/share_of_split"] for point in points if "val/loss" in point]
    assert marked == [summary["share_of_split"]["validation"]]
    assert main(["validate", "--run_dir", str(cut)]) == 0
    assert "val/share_of_split" in capsys.readouterr().out


def test_a_part_is_marked_by_evaluate_and_compare_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 1: every output of a split that is cut says so; of a whole one none does."""
    for seed in ("1", "2"):
        for schedule in ("[1,1]", "[2,1]"):
            words = (
                "--data.max_eval_tokens",
                "4000",
                "--seed_everything",
                seed,
                "--model.schedule",
                schedule,
            )
            run = fit(folder, f"cut-runs/{schedule[1]}-{seed}", *words)
    share = json.loads((run / "summary.json").read_text())["share_of_split"]["test"]
    mark = f"the first {100 * share:.3g} % of "
    capsys.readouterr()
    assert ilr(["evaluate", str(run), "--split", "test"]) == 0
    assert f" words; {mark}the split" in capsys.readouterr().out
    assert json.loads((run / "evaluation-test.json").read_text())["share_of_split"] == share
    assert ilr(["compare", str(folder / "cut-runs"), "--output", str(tmp_path / "compared")]) == 0
    assert f"Compared on {mark}the test split" in (tmp_path / "compared" / "comparison.md").read_text()
    whole = fit(folder, "whole")
    capsys.readouterr()
    assert ilr(["evaluate", str(whole)]) == 0
    assert " words\n" in capsys.readouterr().out


def test_a_cut_leaves_a_split_without_documents_as_it_is(folder: Path, tmp_path: Path) -> None:
    """Right numbers, point 1: another text has no split but one, and a run may have no validation text."""
    run = fit(folder, "cut-other", "--data.max_eval_tokens", "4000")
    (tmp_path / "other.txt").write_text("A text of its own.\n" * 30)
    assert ilr(["evaluate", str(run), "--corpus", str(tmp_path / "other.txt")]) == 0
    found = json.loads((run / "evaluation-other.json").read_text())
    assert (found["share_of_split"], found["bytes"]) == (1, 30 * len("A text of its own.\n"))
    data = tiny_text(str(folder / "cache"), splits=(0.9, 0.0, 0.1), max_eval_tokens=4000)
    data.setup()
    assert (data.share_of("validation"), len(data.stream("validation"))) == (1, 0)
    assert 0 < len(data.stream("test")) <= 4000
