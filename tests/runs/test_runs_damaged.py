"""Whatever is wrong with a file of a run, every command that reads it gives a result or says so in one line."""

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from damage_cases import KINDS, damaged
from run_cases import fit, write_config

from ilr.commands.evaluate import main as evaluate
from ilr.commands.generate import main as generate
from ilr.commands.train import main as train

FILES = ("config.yaml", "checkpoints/record.json", "summary.json", "history.jsonl", "tokenizer.json")
WRONG = {
    "config.yaml": [
        {"model": []}, {"data": 3}, {"data": {"corpus": 3}}, {"data": {"splits": "x"}}, {"data": {"no_such": 1}},
        {"data": {"batch_size": "x"}}, {"trainer": []}, {"trainer": {"precision": []}}, {"model": {"width": "x"}},
        {"seed_everything": "x"}, {"val_every": "x"}, {"model": {"schedule": {"a": 1}}}, {"data": None},
    ],
    "checkpoints/record.json": [
        {"last": 3}, {"last": [{"file": 3, "step": 1}]}, {"last": [{"file": "../a", "step": 1}], "best": None},
        {"last": [], "best": []}, {"last": [], "best": {"file": "absent.ckpt", "step": 10, "val_loss": "x"}},
    ],
    "summary.json": [
        {"status": 3}, {"status": "finished", "steps": "x"}, {"status": "finished", "steps": None},
        {"status": "finished", "epochs": []}, {"status": "finished", "split_hashes": 3}, {"status": "finished"},
    ],
    "history.jsonl": [{"step": "x", "tokens": 1, "training_flops": 1}, {"step": 1}],
    "tokenizer.json": [{"added_tokens": 3}, {"model": {}}, {}, {"added_tokens": [{"content": 3}]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    assert fit(write_config(folder), folder / "run") == 0
    return folder / "run"


def said_by(command: Callable[[list[str]], int], words: list[str]) -> tuple[int, str]:
    """The status of a command, and what it says on stderr. Anything but an exit is raised."""
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = command(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, heard.getvalue()


def commands(run: Path, out: Path) -> list[tuple[Callable[[list[str]], int], list[str]]]:
    cpu = ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
    config = str(run.parent.parent / "config" / "small.yaml")
    return [
        (train, ["validate", "--run_dir", str(run), *cpu]),
        (train, ["fit", "-c", config, "--run_dir", str(run), "--resume", "auto", *cpu]),
        (train, ["fit", "-c", config, "--run_dir", str(run), *cpu]),
        (generate, [str(run), "--tokens", "2", "--prompt", "the"]),
        (evaluate, [str(run)]),
    ]


def tried(finished: Path, folder: Path, file: str, content: bytes, which: list[int]) -> None:
    """Put this content in place of a file of a run, and give it to the commands of these numbers."""
    for number in which:
        run = folder / "runs" / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(finished, run)
        (folder / "config").mkdir()
        shutil.copy(finished.parent / "small.yaml", folder / "config")
        (run / file).write_bytes(content)
        command, words = commands(run, folder / "out")[number]
        status, said = said_by(command, words)
        wrong = said[said.rfind("error:") :] if status else ""
        assert status in (0, 2, 3), (file, content[:60], words, said)
        assert "Traceback" not in said, (file, content[:60], words, said)
        if status == 2:
            assert "error:" in said, (file, content[:60], words, said)
            assert len(wrong.strip().splitlines()) <= 2, (file, content[:60], words, said)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5), ids=["validate", "resume", "fit", "generate", "evaluate"])
@pytest.mark.parametrize("file", FILES)
def test_every_command_says_what_is_damaged(file: str, number: int, finished: Path, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    whole = (finished / file).read_bytes()
    contents = [damaged(kind, whole) for kind in KINDS]
    for one in WRONG[file]:
        dumped = yaml.safe_dump(one) if file.endswith("yaml") else json.dumps(one) + "\n"
        contents.append(dumped.encode())
    for content in contents:
        tried(finished, tmp_path / "case", file, content, [number])


@pytest.mark.parametrize("file", FILES)
def test_a_wrong_type_in_each_file_is_said_in_a_line(file: str, finished: Path, tmp_path: Path) -> None:
    """Right numbers, point 20: the first commands that read each file."""
    number = {"config.yaml": 4, "tokenizer.json": 3, "summary.json": 2}.get(file, 1)
    for one in WRONG[file][:2]:
        dumped = yaml.safe_dump(one) if file.endswith("yaml") else json.dumps(one) + "\n"
        tried(finished, tmp_path / "case", file, dumped.encode(), [number])
