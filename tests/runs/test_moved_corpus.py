"""A run whose corpus was moved, changed or lost after training, or whose tokenizer.json was."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizer_cases import PLAIN, byte_level

from ilr.cli import main as ilr
from ilr.runs.trained_run import TrainedRun

OPTIONS = {
    "model.context": 16,
    "model.width": 16,
    "model.num_heads": 2,
    "model.num_layers": 2,
    "model.schedule": "[2,1]",
    "model.lr_schedule": "constant",
    "trainer.max_steps": 2,
    "val_every": 1,
    "trainer.accelerator": "cpu",
    "trainer.enable_progress_bar": "false",
}


def words(**options: Any) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a tokenizer file and a validation file of its own."""
    root = tmp_path_factory.mktemp("moved")
    for name, texts in (("corpus", PLAIN), ("other", [text.upper() for text in PLAIN])):
        (root / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    byte_level().save(str(root / "tokenizer.json"))
    files = {
        "data.corpus": root / "corpus.jsonl",
        "data.validation": root / "other.jsonl",
        "data.tokenizer": root / "tokenizer.json",
        "data.cache_dir": root / "cache",
        "run_dir": root / "run",
    }
    assert ilr(["fit", *words(**OPTIONS, **files)]) == 0
    return root


FILES = ["corpus.jsonl", "other.jsonl", "tokenizer.json"]


@contextmanager
def away(*paths: Path) -> Iterator[None]:
    """Without these files or folders for a while."""
    hidden = {path: path.with_name(f"hidden-{path.name}") for path in paths}
    for path, name in hidden.items():
        path.rename(name)
    try:
        yield
    finally:
        for path, name in hidden.items():
            if path.is_dir():
                shutil.rmtree(path)
            name.replace(path)


def run_of(trained: Path, to: Path) -> Path:
    shutil.copytree(trained / "run", to / "run")
    return to / "run"


def refusal(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    try:
        status = ilr(list(command))
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    said = capsys.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    return said


def figures(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What each command that reads the run's text prints."""
    found = {}
    for name, command in (
        ("evaluate", ["evaluate", str(run), "--json"]),
        ("test split", ["evaluate", str(run), "--split", "test", "--json"]),
        ("validate", ["validate", "--run_dir", str(run)]),
        ("test", ["test", "--run_dir", str(run)]),
    ):
        capsys.readouterr()
        assert ilr(command) == 0
        found[name] = capsys.readouterr().out
    return found


@pytest.mark.parametrize("what", ["moved", "changed"])
def test_evaluations_give_the_same_figures_from_the_prepared_data(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Right numbers, point 19: corpus, validation text and tokenizer file need not be there any more."""
    run = run_of(trained, tmp_path)
    before = figures(run, capsys)
    with away(*(trained / name for name in FILES)):
        if what == "changed":
            for name in FILES:
                (trained / name).write_text('{"text": "another"}\n')
        assert figures(run, capsys) == before
        if what == "moved":
            assert ilr(["analyse", str(run), "--tokens", "64"]) == 0


def test_a_run_goes_on_from_the_prepared_data_as_if_its_corpus_were_there(
    trained: Path, tmp_path: Path
) -> None:
    """Right numbers, point 19: the weights are those of a run whose corpus has stayed."""
    weights = []
    for place in ("stayed", "moved"):
        run = run_of(trained, tmp_path / place)
        command = ["fit", *words(**{"run_dir": run, "resume": "auto", "trainer.max_steps": 4})]
        with away(*(trained / name for name in (FILES if place == "moved" else ()))):
            assert ilr(command) == 0
        summary = json.loads((run / "summary.json").read_text())
        weights.append(
            torch.load(run / "checkpoints" / Path(summary["checkpoints"]["last"]).name)["state_dict"]
        )
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_lost_cache_is_prepared_again_and_must_give_the_same(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 19: without cache the corpus is asked, and one that has changed is not taken for it."""
    run = run_of(trained, tmp_path)
    before = figures(run, capsys)
    resume = ["fit", *words(**{"run_dir": run, "resume": "auto", "trainer.max_steps": 4})]
    commands = (["evaluate", str(run)], ["validate", "--run_dir", str(run)], ["analyse", str(run)], resume)
    with away(trained / "cache"):
        assert figures(run, capsys) == before
    with away(trained / "cache", trained / "corpus.jsonl"):
        for command in commands:
            said = refusal(*command, capsys=capsys)
            assert "corpus.jsonl" in said
            assert "$ILR_CACHE" in said
        (trained / "corpus.jsonl").write_text(
            "".join(json.dumps({"text": text + "!"}) + "\n" for text in PLAIN)
        )
        for command in commands:
            said = refusal(*command, capsys=capsys)
            assert "not the text that the run was trained on: train, test differs" in said


def test_a_resumed_run_takes_its_text_under_another_name_and_no_other_text(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 19: what to do where cache and place are both lost."""
    run = run_of(trained, tmp_path)
    moved = tmp_path / "elsewhere.jsonl"
    shutil.copy(trained / "corpus.jsonl", moved)
    resume = {"run_dir": run, "resume": "auto", "trainer.max_steps": 3}
    said = refusal("fit", *words(**resume, **{"data.corpus": trained / "other.jsonl"}), capsys=capsys)
    assert "not the text that the run was trained on" in said
    with away(trained / "cache", trained / "corpus.jsonl"):
        assert ilr(["fit", *words(**resume, **{"data.corpus": moved})]) == 0


def test_prepared_data_that_were_damaged_are_not_used(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, points 18 and 19: without the corpus it is said which file is damaged."""
    run = run_of(trained, tmp_path)
    key = TrainedRun.load(run).data.manifest.key
    stream = trained / "cache" / key / "validation.tokens"
    whole = stream.read_bytes()
    stream.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with away(trained / "other.jsonl"):
        said = refusal("evaluate", str(run), capsys=capsys)
        assert "validation.tokens is not as it was written" in said
        assert "other.jsonl" in said
    assert ilr(["evaluate", str(run)]) == 0
    assert "damaged, preparing again" in capsys.readouterr().err
    assert stream.read_bytes() == whole


@pytest.mark.parametrize("damage", ["letter", "empty", "other tokenizer", "no text"])
def test_a_changed_tokenizer_of_a_run_is_refused(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Right numbers, point 18: by its recorded hash."""
    run = run_of(trained, tmp_path)
    path = run / "tokenizer.json"
    content = path.read_text()
    match damage:
        case "letter":
            path.write_text(content.replace('"t":', '"tt":', 1))
        case "empty":
            path.write_text("")
        case "other tokenizer":
            path.write_text(byte_level(texts=PLAIN[:9]).to_str())
        case "no text":
            path.write_bytes(b"\xff\xfe" + os.urandom(50))
    for command in (
        ["generate", str(run), "--max_new_tokens", "1"],
        ["evaluate", str(run)],
        ["evaluate", str(run), "--corpus", str(trained / "other.jsonl")],
        ["validate", "--run_dir", str(run), "--data.corpus", str(trained / "other.jsonl")],
    ):
        assert "tokenizer.json" in refusal(*command, capsys=capsys)
