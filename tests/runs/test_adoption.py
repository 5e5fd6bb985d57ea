"""What an evaluation takes over from a run: weights, text and tokenizer, and nothing that only trains."""

import json
import sys
from pathlib import Path

import pytest
import torch
from run_cases import fit, refusal, summary_of, write_config
from tokenizer_cases import byte_level

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
