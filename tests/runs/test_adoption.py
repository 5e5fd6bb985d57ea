"""What an evaluation takes over from a run: weights, text and tokenizer, and nothing that only trains."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from run_cases import fit, refusal, summary_of, write_config
from tokenizer_cases import byte_level

from ilr.cli import main as ilr
from ilr.commands.train import main
from ilr.runs.trained_run import TrainedRun


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="module")
def run(config: Path) -> Path:
    assert fit(config, config.parent / "run", "--trainer.max_steps", "2", "--val_every", "2") == 0
    return config.parent / "run"


def figures(out: str) -> dict[str, float]:
    lines = [line.split() for line in out.splitlines() if line.startswith("  ")]
    return {name: float(value) for name, value in lines}


OTHER = [f"another text, number {n}: half of it is {n / 2}, a third {n // 3}." for n in range(30)]


@pytest.mark.parametrize(
    ("stage", "option"), [("validate", "validation"), ("validate", "corpus"), ("test", "test")]
)
def test_another_text_is_encoded_by_the_tokenizer_that_the_weights_were_trained_with(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str, option: str
) -> None:
    """Right numbers, point 5: none is trained for it (5.667 nats where 5.661 was right)."""
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in OTHER))
    capsys.readouterr()
    whole = ("--data.splits", "[0.1,0.9,0]") if option == "corpus" else ()
    arguments = ["--data.document", "file", f"--data.{option}", str(path), *whole]
    assert main([stage, "--run_dir", str(run), *arguments]) == 0
    written = capsys.readouterr()
    assert "training a tokenizer" not in written.err
    if option == "corpus":
        return
    trained = TrainedRun.load(run)
    stream = [token for text in OTHER for token in (*trained.encode(text), trained.separator_id)]
    total = 0.0
    for begin in range(0, len(stream) - 1, 16):
        tokens = torch.tensor([stream[begin : begin + 17]])
        with torch.no_grad():
            logits = trained.decoder(tokens[:, :-1])[0]
        total += float(torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum"))
    prefix = {"validate": "val", "test": "test"}[stage]
    assert figures(written.out)[f"{prefix}/loss"] == pytest.approx(total / (len(stream) - 1), rel=1e-6)


def test_another_tokenizer_is_refused_whichever_option_asks_for_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 5: also where it has as many entries."""
    byte_level().save(str(tmp_path / "other.json"))
    for option, value, said in (
        ("vocab_size", "280", "--data.vocab_size is 280, the run has 300"),
        ("separator_token", "<s>", "--data.separator_token is <s>, the run has <|endoftext|>"),
        ("tokenizer", str(tmp_path / "none.json"), "none.json: another text is evaluated with the run's own"),
        ("tokenizer", str(tmp_path / "other.json"), "is not the tokenizer that the run was trained with"),
    ):
        assert said in refusal(capsys, "validate", "--run_dir", str(run), f"--data.{option}", value)
    own = ["--data.tokenizer", str(run / "tokenizer.json"), "--data.vocab_size", "300"]
    capsys.readouterr()
    assert main(["validate", "--run_dir", str(run), *own]) == 0
    assert figures(capsys.readouterr().out)["val/loss"] == pytest.approx(
        summary_of(run)["val_loss"], rel=1e-9
    )


@pytest.mark.parametrize(
    "cut",
    [("--data.split_seed", "4"), ("--data.splits", "[0.2,0.4,0.4]"), ("--data.validation", "squares.txt")],
)
def test_documents_of_another_text_that_were_trained_on_are_counted(
    config: Path,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cut: tuple[str, str],
) -> None:
    """Right numbers, point 9: the run's own training text is what counts, not that of the other cut."""
    monkeypatch.chdir(config.parent)
    arguments = ["--run_dir", str(run), *cut]
    capsys.readouterr()
    assert main(["validate", *arguments]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "the run was trained on" in line]
    own = set(TrainedRun.load(run).data.text_of("train"))
    lines = [f"the square of {n} is {n * n}, and its cube is {n**3}.\n" for n in range(300)]
    number = len(own) if "validation" in cut[0] else None
    assert own < set(lines)
    assert len(warned) == 1
    found, of = (int(word) for word in re.findall(r"\d+", warned[0])[:2])
    assert 0 < found <= of
    assert number in (None, found)


def test_a_run_s_own_text_and_one_that_it_has_not_seen_are_evaluated_without_a_word(
    config: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 9; `ilr evaluate` counts too, and a corpus that is cut otherwise is said."""
    (tmp_path / "new.txt").write_text("".join(text + "\n" for text in OTHER))
    squares = config.parent / "squares.txt"
    (tmp_path / "half.txt").write_text("".join(squares.read_text().splitlines(keepends=True)[:150]))
    own = set(TrainedRun.load(run).data.text_of("train"))
    half = sum(line in own for line in (tmp_path / "half.txt").read_text().splitlines(keepends=True))
    for said, command in (
        ("", ["validate", "--run_dir", str(run)]),
        ("", ["validate", "--run_dir", str(run), "--data.corpus", str(tmp_path / "new.txt")]),
        ("", ["evaluate", str(run), "--corpus", str(tmp_path / "new.txt")]),
        (
            f"trained on {half} of the 150 half",
            ["evaluate", str(run), "--corpus", str(tmp_path / "half.txt")],
        ),
        ("cut otherwise", ["validate", "--run_dir", str(run), "--data.document", "5 is"]),
    ):
        capsys.readouterr()
        assert ilr(command) == 0
        warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
        assert bool(warned) == bool(said), (command, warned)
        assert any(said in line for line in warned) == bool(said)


def test_a_precision_that_the_trainer_would_replace_is_refused(
    config: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 17: float16 became bfloat16 on CPUs, and was recorded and evaluated as float16."""
    for command in (
        ["fit", "-c", str(config), "--run_dir", str(tmp_path / "run")],
        ["validate", "--run_dir", str(run)],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([*command, "--trainer.precision", "16-mixed"])
        assert "would take bf16-mixed here" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_evaluate_takes_the_precision_of_a_plugin(config: Path, tmp_path: Path) -> None:
    """Right numbers, point 2: by default the one that the run was validated in."""
    plugin = "{class_path: lightning.pytorch.plugins.MixedPrecision, init_args: {precision: 16-mixed, device: cpu}}"
    options = ("--trainer.max_steps", "2", "--val_every", "2", f"--trainer.plugins=[{plugin}]")
    assert fit(config, tmp_path / "run", *options) == 0
    assert ilr(["evaluate", str(tmp_path / "run")]) == 0
    found = json.loads((tmp_path / "run" / "evaluation-validation.json").read_text())
    assert found["precision"] == "16-mixed"
    assert found["loss"] == pytest.approx(summary_of(tmp_path / "run")["val_loss"], rel=1e-9)


CALLBACKS = """
import pathlib
import lightning as L

MARK = pathlib.Path(__file__).with_name("called")


class Mine(L.Callback):
    def __init__(self):
        MARK.touch()
"""


@pytest.mark.parametrize(
    "option",
    [
        "callbacks=[{class_path: callbacks_of_training.Mine}]",
        "callbacks=[{class_path: lightning.pytorch.callbacks.EMAWeightAveraging, init_args: {decay: 0.5}}]",
        "callbacks=[{class_path: lightning.pytorch.callbacks.LambdaCallback}]",
        "profiler={class_path: lightning.pytorch.profilers.SimpleProfiler}",
        "max_time=00:00:10:00",
    ],
)
def test_an_evaluation_has_no_use_for_what_only_trains_and_needs_no_trust_for_it(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    """Bad input, point 23: callbacks of the user's own, and Lightning's; named anew, they act."""
    (tmp_path / "callbacks_of_training.py").write_text(CALLBACKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = ("--trainer.max_steps", "2", "--val_every", "2", f"--trainer.{option}")
    assert fit(config, tmp_path / "run", *options) == 0
    (tmp_path / "called").unlink(missing_ok=True)
    sys.modules.pop("callbacks_of_training", None)
    for stage, prefix in (("validate", "val"), ("test", "test")):
        capsys.readouterr()
        assert main([stage, "--run_dir", str(tmp_path / "run"), "--weights", "last"]) == 0
        found = figures(capsys.readouterr().out)[f"{prefix}/loss"]
        assert found == pytest.approx(summary_of(tmp_path / "run")[f"{prefix}_loss"], rel=1e-9)
    assert "callbacks_of_training" not in sys.modules
    if "Mine" in option:
        assert main(["validate", "--run_dir", str(tmp_path / "run"), f"--trainer.{option}"]) == 0
        assert (tmp_path / "called").exists()
    sys.modules.pop("callbacks_of_training", None)
