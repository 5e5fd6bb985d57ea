"""Right numbers, point 17: every callback works with right numbers, or one line says that it is not supported."""

import inspect
import json
import math
from pathlib import Path
from typing import Any

import lightning as L
import lightning.pytorch.callbacks as known
import pytest
import torch
import yaml

from ilr.commands.train import main
from ilr.runs.directory import read_history

VALUES: dict[str, Any] = {
    "seed_everything": 1,
    "val_every": 100,
    "save_every": 100,
    "log_every": 1,
    "test_after_fit": True,
    "model": {"schedule": [2, 1], "context": 16, "width": 16, "num_layers": 2, "num_heads": 2},
    "data": {"corpus": "pydoc", "vocab_size": 300, "batch_size": 2, "max_documents": 30},
    "trainer": {"max_epochs": -1, "max_steps": 4, "enable_progress_bar": False, "accelerator": "cpu"},
}
ABSTRACT = {"Callback", "Checkpoint", "ProgressBar", "BaseFinetuning", "BasePredictionWriter"}
REFUSED: dict[str, dict[str, Any]] = {
    "LearningRateFinder": {},
    "BatchSizeFinder": {},
    "GradientAccumulationScheduler": {"scheduling": {"1": 2}},
    "StochasticWeightAveraging": {"swa_lrs": 0.01},
    "BackboneFinetuning": {},
    "OnExceptionCheckpoint": {"dirpath": "kept"},
    "ModelPruning": {"pruning_fn": "l1_unstructured"},
}
UNCHANGED: dict[str, dict[str, Any]] = {
    "DeviceStatsMonitor": {},
    "EarlyStopping": {"monitor": "val/loss"},
    "LambdaCallback": {},
    "LearningRateMonitor": {},
    "ModelCheckpoint": {"monitor": "val/loss"},
    "ModelSummary": {},
    "RichModelSummary": {},
    "SpikeDetection": {},
    "ThroughputMonitor": {"batch_size_fn": "builtins.len"},
    "Timer": {"duration": "00:01:00:00"},
}
BARS: dict[str, dict[str, Any]] = {"RichProgressBar": {}, "TQDMProgressBar": {}}
AVERAGED: dict[str, dict[str, Any]] = {"WeightAveraging": {}, "EMAWeightAveraging": {"decay": 0.5}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("callbacks")


def fit(folder: Path, run: str, callbacks: list[Any], *options: str, **trainer: Any) -> Path:
    """A run with these callbacks, each (class path, arguments); its directory."""
    listed = [{"class_path": path, "init_args": arguments} for path, arguments in callbacks]
    values = {**VALUES, "data": {**VALUES["data"], "cache_dir": str(folder / "cache")}}
    values["trainer"] = {**VALUES["trainer"], "callbacks": listed, **trainer}
    (folder / f"{run}.yaml").write_text(yaml.safe_dump(values))
    assert main(["fit", "-c", str(folder / f"{run}.yaml"), "--run_dir", str(folder / run), *options]) == 0
    return folder / run


def refusal(capsys: pytest.CaptureFixture[str], folder: Path, run: str, *rest: Any, **trainer: Any) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        fit(folder, run, *rest, **trainer)
    assert end.value.code == 2
    written = capsys.readouterr().err
    error = written[written.index("error: ") :]
    assert "Traceback" not in written
    assert len(error.splitlines()) == 1
    assert not (folder / run).exists()
    return error


def lightning(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return f"lightning.pytorch.callbacks.{name}", arguments


def losses(directory: Path) -> list[float]:
    points = read_history(directory / "history.jsonl")
    return [
        point[tag]
        for point in points
        for tag in ("train/loss", "val/loss", "health/gradient_norm")
        if tag in point
    ]


def summary_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "summary.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    return fit(folder, "plain", [])


def test_every_callback_of_lightning_is_in_one_of_the_tables() -> None:
    """Right numbers, point 17."""
    tables = {*ABSTRACT, *REFUSED, *UNCHANGED, *BARS, *AVERAGED}
    assert tables == {name for name in known.__all__ if inspect.isclass(getattr(known, name))}


@pytest.mark.parametrize("name", REFUSED)
def test_a_callback_that_would_falsify_the_record_is_refused_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Right numbers, point 17 (field cases N19, N25): before anything is made."""
    error = refusal(capsys, folder, f"refused-{name}", [lightning(name, REFUSED[name])])
    assert f"--trainer.callbacks: {name} is not supported: " in error


@pytest.mark.parametrize("names", [list(UNCHANGED), *([bar] for bar in BARS)], ids=["watchers", *BARS])
def test_callbacks_that_watch_change_no_number(
    folder: Path, plain: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """Right numbers, point 17: the same curve, and the same test figures."""
    monkeypatch.chdir(folder)
    arguments = {**UNCHANGED, **BARS}
    bar = {"enable_progress_bar": None} if names[0] in BARS else {}
    run = fit(folder, "watched-" + names[0], [lightning(name, arguments[name]) for name in names], **bar)
    assert losses(run) == losses(plain)
    for key in ("status", "val_loss", "test_loss", "steps", "tokens", "learning_rate"):
        assert summary_of(run)[key] == summary_of(plain)[key]


@pytest.mark.parametrize("name", AVERAGED)
def test_averaged_weights_are_the_ones_scored_kept_and_tested(
    folder: Path, plain: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Right numbers, point 17: the figures are those of the checkpoint, whose weights are the average."""
    run = fit(folder, f"averaged-{name}", [lightning(name, AVERAGED[name])])
    summary = summary_of(run)
    assert losses(run)[:4] == losses(plain)[:4]  # training itself is the same
    assert summary["val_loss"] != summary_of(plain)["val_loss"]
    for split, prefix in (("validate", "val"), ("test", "test")):
        capsys.readouterr()
        assert main([split, "--run_dir", str(run), "--weights", "last"]) == 0
        out = capsys.readouterr().out
        loss = float(next(line for line in out.splitlines() if f"{prefix}/loss" in line).split()[-1])
        assert loss == pytest.approx(summary[f"{prefix}_loss"], rel=1e-9)


class ChangeRate(L.Callback):
    """A finder of the user's own."""

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        module.learning_rate = 0.0009


class ChangeLimit(L.Callback):
    def on_fit_start(self, trainer: Any, module: Any) -> None:
        trainer.limit_val_batches = 1


class ChangeWindow(L.Callback):
    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        trainer.accumulate_grad_batches = 2


class ChangeBatch(L.Callback):
    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        trainer.datamodule.batch_size = 4


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (ChangeRate, "--model.learning_rate was 0.003 when the configuration was read"),
        (ChangeLimit, "--trainer.limit_val_batches was 1.0"),
        (ChangeWindow, "--trainer.accumulate_grad_batches was 1"),
        (ChangeBatch, "--data.batch_size was 2"),
    ],
)
def test_a_value_changed_after_the_configuration_is_refused_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: type[L.Callback], named: str
) -> None:
    """Right numbers, point 17: config.yaml is the configuration that repeats the run."""
    assert named in refusal(capsys, folder, kind.__name__, [(f"{__name__}.{kind.__name__}", {})])


class OwnSchedule(L.Callback):
    """Replaces scheduler and optimiser, and notes the rates that steps used."""

    rates: list[float] = []  # noqa: RUF012

    def on_train_start(self, trainer: Any, module: Any) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        trainer.strategy.optimizers = [optimizer]
        trainer.strategy.lr_scheduler_configs[0].scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("kind", [None, OwnSchedule], ids=["its own", "replaced"])
def test_the_logged_learning_rate_is_the_one_that_the_step_used(
    folder: Path, kind: type[L.Callback] | None
) -> None:
    """Right numbers, point 17: whoever the scheduler belongs to."""
    OwnSchedule.rates.clear()
    run = fit(folder, f"rates-{kind}", [] if kind is None else [(f"{__name__}.{kind.__name__}", {})])
    points = read_history(run / "history.jsonl")
    logged = [point["health/learning_rate"] for point in points if "health/learning_rate" in point]
    if kind is None:
        expected = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / 4)) for step in (1, 2, 3, 4)]
        assert logged == pytest.approx([0.003 * factor for factor in expected])
    else:
        assert logged == OwnSchedule.rates == pytest.approx([0.5, 0.5, 0.05, 0.05])


def test_the_same_callbacks_and_plugins_go_on(folder: Path) -> None:
    """Right numbers, point 2 and 17: in float16, also past a stop; the loss is that of the straight run."""
    half = {"class_path": "lightning.pytorch.plugins.MixedPrecision", "init_args": {"precision": "16-mixed"}}
    half["init_args"] |= {"device": "cpu"}  # type: ignore[operator]
    monitor = [lightning("LearningRateMonitor", {"logging_interval": "step"})]
    constant = ("--model.lr_schedule", "constant", "--model.warmup_steps", "1", "--test_after_fit", "false")
    fit(folder, "goes-on", monitor, *constant, plugins=[half])
    fit(folder, "goes-on", monitor, *constant, "--resume", "auto", plugins=[half], max_steps=6)
    straight = fit(folder, "straight", monitor, *constant, plugins=[half], max_steps=6)
    assert summary_of(folder / "goes-on")["val_loss"] == summary_of(straight)["val_loss"]
