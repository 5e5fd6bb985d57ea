"""`ilr evaluate` on a real run: agreement with `validate`, the weights asked for, texts, files, wrong use."""

import csv
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tokenizer_cases import PLAIN, byte_level

from ilr.cli import main as ilr
from ilr.commands import evaluate as command

VERSES = "".join(
    f"{n} green bottles hanging on the wall, and if {n} should fall — größer.\n" for n in range(200)
)
OTHER = "".join(f"Ten little birds, {n} of them blue,\nsat on a größer tree.\n\n" for n in range(30))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best weights are not its last: the learning rate is far too high."""
    root = tmp_path_factory.mktemp("evaluated")
    (root / "verses.txt").write_text(VERSES, encoding="utf-8")
    (root / "other.txt").write_text(OTHER, encoding="utf-8")
    options = {
        "run_dir": root / "run",
        "data.corpus": root / "verses.txt",
        "data.cache_dir": root / "cache",
        "data.document": "line",
        "data.vocab_size": 280,
        "model.context": 24,
        "model.width": 16,
        "model.num_heads": 2,
        "model.num_layers": 2,
        "model.schedule": "[2,1]",
        "model.lr_schedule": "constant",
        "model.learning_rate": 3,
        "model.warmup_steps": 0,
        "trainer.max_steps": 6,
        "val_every": 1,
        "save_every": 1,
        "trainer.accelerator": "cpu",
        "trainer.enable_progress_bar": "false",
    }
    assert ilr(["fit", *(f"--{name}={value}" for name, value in options.items())]) == 0
    summary = json.loads((root / "run" / "summary.json").read_text())
    assert 0 < summary["best_step"] < summary["steps"]
    assert summary["best_val_loss"] < summary["val_loss"] - 0.01
    return root / "run"


def evaluated(capsys: pytest.CaptureFixture[str], *options: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert command.main([*map(str, options), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def validated(capsys: pytest.CaptureFixture[str], *options: Any) -> dict[str, float]:
    """What `ilr validate` prints."""
    capsys.readouterr()
    assert ilr(["validate", *map(str, options)]) == 0
    printed = capsys.readouterr().out
    return {name: float(value) for name, value in re.findall(r"^ *val/(\w+) +(\S+)$", printed, re.MULTILINE)}


def test_blocks_of_the_context_are_what_validate_and_the_summary_say(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((run / "summary.json").read_text())
    for weights, loss, step in (
        ("last", summary["val_loss"], summary["steps"]),
        ("best", summary["best_val_loss"], summary["best_step"]),
    ):
        ours = evaluated(capsys, run, "--weights", weights)
        theirs = validated(capsys, "--run_dir", run, "--weights", weights)
        for name in ("loss", "perplexity", "bits_per_byte", "perplexity_sequence_mean"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-6)
        assert ours["loss"] == pytest.approx(loss, rel=1e-6)
        assert (ours["step"], ours["scored_tokens"]) == (step, summary["scored_tokens"])
    tested = evaluated(capsys, run, "--split", "test")
    assert tested["loss"] == pytest.approx(summary["best_test_loss"], rel=1e-6)


def test_a_given_text_and_schedule_are_scored_as_validate_does(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, checkpoint = run.parent / "other.txt", next((run / "checkpoints").glob("*.ckpt"))
    ours = evaluated(capsys, checkpoint, "--corpus", other, "--split", "validation", "--schedule", "[1,3]")
    theirs = validated(capsys, "--ckpt_path", checkpoint, "--data.corpus", other, "--model.schedule", "[1,3]")
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
    assert ours["bits_per_byte"] == pytest.approx(theirs["bits_per_byte"], rel=1e-6)
    assert (ours["trained_schedule"], ours["schedule"]) == ("2-1", "1-3")


def test_a_given_text_is_scored_whole_and_measured_on_its_own_bytes_and_words(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = evaluated(capsys, run, "--corpus", run.parent / "other.txt", "--document", "paragraph")
    assert (whole["documents"], whole["bytes"]) == (30, len(OTHER.encode()))
    assert whole["words"] == len(OTHER.split())
    assert whole["scored_tokens"] == whole["tokens"] - 1
    nll = whole["total_nll"]
    assert whole["loss"] == pytest.approx(nll / whole["scored_tokens"], rel=1e-12)
    assert whole["perplexity"] == pytest.approx(math.exp(nll / whole["scored_tokens"]), rel=1e-12)
    assert whole["bits_per_byte"] == pytest.approx(nll / math.log(2) / len(OTHER.encode()), rel=1e-12)
    assert whole["word_perplexity"] == pytest.approx(math.exp(nll / len(OTHER.split())), rel=1e-12)
    paragraphs = evaluated(
        capsys, run, "--corpus", run.parent / "other.txt", "--document", "paragraph", "--documents-alone"
    )
    assert paragraphs["scored_tokens"] == whole["tokens"]


def test_a_given_table_is_scored_by_its_column_as_the_same_text_is(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Right numbers, points 6 and 7: text to evaluate is read by the same readers."""
    documents = re.findall(r"(?:.+\n)+\n*", OTHER)
    with (tmp_path / "rows.dat").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body"], *enumerate(documents)])
    rows = ["--corpus", tmp_path / "rows.dat", "--column", "body", "--document", "paragraph"]
    with pytest.raises(SystemExit, match="2"):
        command.main([str(run), *map(str, rows)])
    assert "begins like a table, which its name does not say: --data.format csv" in capsys.readouterr().err
    table = evaluated(capsys, run, *rows, "--format", "csv")
    text = evaluated(capsys, run, "--corpus", run.parent / "other.txt", "--document", "paragraph")
    for figure in ("documents", "bytes", "tokens", "total_nll"):
        assert table[figure] == text[figure], figure


def test_windows_batches_and_documents_alone_are_named_and_do_not_depend_on_the_batch(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = [evaluated(capsys, run, "--window", 16, "--stride", 5, "--batch_size", rows) for rows in (1, 7)]
    alone = [evaluated(capsys, run, "--documents-alone", "--batch_size", rows) for rows in (1, 7)]
    assert stream[0]["loss"] == pytest.approx(stream[1]["loss"], rel=1e-6)
    assert (stream[0]["window"], stream[0]["stride"]) == (16, 5)
    assert "perplexity_sequence_mean" not in stream[0]
    assert alone[0]["doc_loss"] == pytest.approx(alone[1]["doc_loss"], rel=1e-6)
    assert {name for name in alone[0] if name.startswith("doc_")} == {
        "doc_loss",
        "doc_perplexity",
        "doc_bits_per_byte",
        "doc_word_perplexity",
    }
    assert "loss" not in alone[0]
    # Every token of every document, the first one of the stream too.
    assert alone[0]["scored_tokens"] == stream[0]["scored_tokens"] + 1 == alone[0]["tokens"]


def test_the_printed_text_says_what_was_evaluated(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--schedule", "[1,1]", "--by-position", "--by-frequency", "--documents-alone"]
    result = evaluated(capsys, run, *options)
    assert command.main([str(run), *options]) == 0
    printed = capsys.readouterr().out
    for said in (
        f"{result['checkpoint']}, step {result['step']}",
        "1-1 (other than trained: 2-1)",
        result["corpus_hash"][:12],
        result["tokenizer_hash"][:12],
        "24 tokens, stride 24",
        f"{result['scored_tokens']:,} tokens, 32-true on cpu",
        f"{result['doc_bits_per_byte']:.4f}",
        "each document alone from <|endoftext|>",
        "tokens seen",
        "decile",
    ):
        assert said in printed


def test_tables_add_up_and_lie_in_the_run_and_on_its_board(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--stride", "7", "--by-position", "--by-frequency", "--tensorboard"]
    result = evaluated(capsys, run, *options)
    for table in ("position_bins", "frequency_deciles"):
        rows = [row for row in result[table] if row["tokens"]]
        assert sum(row["tokens"] for row in rows) == result["scored_tokens"]
        total = sum(row["tokens"] * row["loss"] for row in rows)
        assert total == pytest.approx(result["total_nll"], rel=1e-9)
    # Past the first window nothing is predicted from less than 24 − 7 + 1 tokens.
    assert all(row["tokens"] == row["last"] - row["first"] + 1 for row in result["position_bins"][:-1])
    assert json.loads((run / "evaluation-validation-s7.json").read_text()) == result
    assert not list(run.glob(".*partial"))
    board = EventAccumulator(str(run / "evaluation" / "validation-s7"), size_guidance={"images": 0})
    board.Reload()
    assert set(board.Tags()["images"]) == {"evaluation/loss_by_position", "evaluation/loss_by_frequency"}
    (loss,) = board.Scalars("evaluation/loss")
    assert (loss.step, loss.value) == (result["step"], pytest.approx(result["loss"]))
    curve = board.Scalars("evaluation/loss_by_position")
    assert [point.step for point in curve] == list(range(1, 25))
    np.testing.assert_allclose([point.value for point in curve], result["loss_by_position"], rtol=1e-6)
    evaluated(capsys, run, *options)
    assert len(list((run / "evaluation" / "validation-s7").iterdir())) == 1
    assert len(list(run.glob("events.out.tfevents.*"))) == 1


def test_the_precision_is_that_of_the_runs_validation(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    wide = evaluated(capsys, run)
    try:
        config.write_text(yaml.safe_dump(settings | {"trainer": {"precision": "bf16-mixed"}}))
        half = evaluated(capsys, run)
    finally:
        config.write_text(yaml.safe_dump(settings))
    assert (wide["precision"], half["precision"]) == ("32-true", "bf16-mixed")
    assert half["loss"] != wide["loss"]
    assert half["loss"] == pytest.approx(wide["loss"], rel=2e-2)
    assert half["loss"] == evaluated(capsys, run, "--precision", "bf16-mixed")["loss"]


def test_a_text_that_was_changed_or_trained_on_is_remarked_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run / "summary.json"
    kept = summary.read_text()
    try:
        changed = json.loads(kept)
        changed["split_hashes"]["validation"] = "0"
        summary.write_text(json.dumps(changed))
        assert command.main([str(run)]) == 0
        assert "warning: the validation text is not the one that was there" in capsys.readouterr().err
    finally:
        summary.write_text(kept)
    assert command.main([str(run), "--corpus", str(run.parent / "verses.txt")]) == 0
    assert "warning: this is the text that the run was trained on" in capsys.readouterr().err
    assert command.main([str(run)]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "no checkpoint file or run directory nowhere"),
        (["RUN", "--stride", "25"], "--stride between 1 and the window, got window 24 and stride 25"),
        (["RUN", "--window", "0"], "--window must be a whole number of at least 1, got 0"),
        (["RUN", "--window", "8", "--context", "8"], "not both"),
        (["RUN", "--schedule", "[1,1,1]"], "one entry per layer"),
        (["RUN", "--document", "line"], "--document belongs to --corpus"),
        (["RUN", "--format", "csv"], "--format belongs to --corpus"),
        (["RUN", "--corpus", "configs", "--format", "jsonl"], "--data.format must be one of auto, text"),
        (["RUN", "--corpus", "nowhere.txt"], "'nowhere.txt' is no file"),
        (["RUN", "--precision", "8"], "--precision must be one of 32-true"),
        (["RUN", "--split", "train"], "invalid choice: 'train'"),
        (["RUN", "--window", "x"], "window"),
        (["RUN", "--schedule", "3"], "schedule"),
        (["RUN", "--device", "nowhere"], "--device 'nowhere' cannot be used"),
        (["RUN", "--windows", "8"], "--windows"),
    ],
)
def test_wrong_use_ends_in_one_line(
    run: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        command.main([str(run) if option == "RUN" else option for option in options])
    assert ended.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last


def test_help_and_refusals_load_no_torch() -> None:
    code = (
        "import sys; from ilr.cli import main\n"
        "try: main(['evaluate', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_documents_that_stand_in_train_are_counted_in_the_json_as_in_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 9: the figure was on standard error alone."""
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"text": f"row {n % 7}."}) + "\n" for n in range(70))
    )
    options = {
        "run_dir": tmp_path / "run",
        "data.corpus": tmp_path / "rows.jsonl",
        "data.cache_dir": tmp_path / "cache",
        "data.vocab_size": 280,
        **{"model.context": 8, "model.width": 16, "model.num_heads": 2, "model.num_layers": 1},
        **{"model.schedule": "[1]", "trainer.max_steps": 1, "trainer.accelerator": "cpu"},
        "trainer.enable_progress_bar": "false",
    }
    assert ilr(["fit", *(f"--{name}={value}" for name, value in options.items())]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    for split in ("validation", "test"):
        found = evaluated(capsys, tmp_path / "run", "--split", split)
        assert found["duplicates"] == summary["duplicates"][split]
        assert found["duplicates"]["documents"] == found["documents"] == 7
    assert evaluated(capsys, tmp_path / "run", "--corpus", tmp_path / "rows.jsonl")["duplicates"] is None
    assert command.main([str(tmp_path / "run")]) == 0
    assert "7 of these documents (100.0% of the tokens) also stand in train" in capsys.readouterr().out


def test_a_text_that_the_runs_tokenizer_loses_is_refused_without_advice_on_other_tokenizers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 4: weights have one tokenizer, so that no other can be chosen for them."""
    byte_level(alphabet=False, texts=[f"{one}\n" for one in PLAIN]).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "plain.txt").write_text("".join(f"{one}\n" for one in PLAIN) * 9)
    (tmp_path / "odd.txt").write_text("你好世界\n" * 9, encoding="utf-8")
    options = {
        "run_dir": tmp_path / "run",
        "data.corpus": tmp_path / "plain.txt",
        "data.tokenizer": tmp_path / "tokenizer.json",
        "data.cache_dir": tmp_path / "cache",
        "data.document": "line",
        **{"model.context": 8, "model.width": 16, "model.num_heads": 2, "model.num_layers": 1},
        **{"model.schedule": "[1]", "trainer.max_steps": 1, "trainer.accelerator": "cpu"},
        "trainer.enable_progress_bar": "false",
    }
    assert ilr(["fit", *(f"--{name}={value}" for name, value in options.items())]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "run"), "--corpus", str(tmp_path / "odd.txt")])
    said = capsys.readouterr().err
    assert "does not give the text back" in said
    assert "--corpus must be text that the run's tokenizer" in said
    assert "give none" not in said
