"""What a user gave is kept, or refused by its own name: devices, seeds, least steps, keys of a callback's table."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from run_cases import fit, refusal, summary_of, write_config

from ilr.cli import main as ilr
from ilr.errors import InputError
from ilr.files.plain_yaml import parse
from ilr.model.device import usable_device

ROOT = Path(__file__).parents[2]
TABLE = "trainer:\n  callbacks:\n  - class_path: {}\n    init_args: {{scheduling: {{1: 2}}}}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    assert fit(write_config(folder), folder / "run") == 0
    return folder / "run"


@pytest.mark.parametrize("name", ["meta", "nowhere", "", "cuda:99", "cpu:x", "vulkan"])
def test_a_device_that_keeps_no_numbers_is_refused_by_its_name(name: str) -> None:
    """Right numbers, point 21."""
    with pytest.raises(InputError, match=f"--device '{name}' cannot be used: .+"):
        usable_device(name)
    assert usable_device("cpu").type == "cpu"


@pytest.mark.parametrize("command", ["evaluate", "generate", "analyse", "bench"])
def test_every_command_with_a_device_refuses_meta(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 21: `bench` hung and `evaluate` gave a traceback."""
    capsys.readouterr()
    words = ["--schedules", "[1,1]"] if command == "bench" else [str(run)]
    try:
        status = ilr([command, *words, "--device", "meta"])
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr().err
    assert status == 2
    assert "--device 'meta' cannot be used" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("given", ["false", "null", "-1"])
def test_a_seed_that_is_none_is_refused_and_not_replaced(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 21: false became seed 0."""
    config = write_config(tmp_path)
    said = refusal(
        capsys, "fit", "-c", str(config), "--run_dir", str(tmp_path / "run"), "--seed_everything", given
    )
    assert "seed_everything" in said
    assert not (tmp_path / "run").exists()


def test_the_context_of_the_data_is_referred_to_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "fit", "-c", str(write_config(tmp_path)), "--data.context", "32")
    assert "give --model.context" in said


def test_least_steps_within_an_epoch_train_as_without_them(run: Path, tmp_path: Path) -> None:
    """Right numbers, point 21: Lightning made one least epoch of them, which was refused by a name nobody gave."""
    config = run.parent / "small.yaml"
    assert fit(config, tmp_path / "run", "--trainer.min_steps", "2") == 0
    ours, theirs = summary_of(tmp_path / "run"), summary_of(run)
    for name in ("status", "steps", "tokens", "val_loss", "test_loss", "identity"):
        assert ours[name] == theirs[name]


def test_a_callback_with_numbers_as_keys_gets_its_proper_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 17."""
    config, more = write_config(tmp_path), tmp_path / "more.yaml"
    more.write_text(TABLE.format("lightning.pytorch.callbacks.GradientAccumulationScheduler"))
    said = refusal(capsys, "fit", "-c", str(config), "-c", str(more), "--run_dir", str(tmp_path / "run"))
    assert "GradientAccumulationScheduler is not supported" in said


def test_only_the_arguments_of_a_class_have_numbers_as_keys() -> None:
    """Right numbers, point 20."""
    assert parse(TABLE.format("a.B"), "x") == yaml.safe_load(TABLE.format("a.B"))
    for text in (
        "1: 2",
        "{model: {1: 2}}",
        "{a: [{2: 3}]}",
        "{init_args: {1.5: 2}}",
        "{init_args: {null: 2}}",
    ):
        with pytest.raises(InputError, match="allowed: text"):
            parse(text, "x")


def test_an_interrupt_while_torch_loads_is_one_line(tmp_path: Path) -> None:
    """Right numbers, point 20: Ctrl-C in the first seconds gave a traceback."""
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")
    said = subprocess.run(
        [sys.executable, str(ROOT / "train_lm.py"), "fit"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )
    assert said.returncode == 130
    assert said.stderr == "interrupted before anything was begun\n"
