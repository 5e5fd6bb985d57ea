"""The data module under a real Trainer: the same samples in every run, also after stopping anywhere."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from data_cases import LINES
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from ilr.data import TextData

BATCHES = 5


class Recorder(LightningModule):
    """One weight, and the block indices of every training batch in the order seen."""

    def __init__(self, extra_draws: int = 0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.extra_draws = extra_draws
        self.seen: list[list[int]] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.seen.append(batch["blocks"].tolist())
        torch.rand(self.extra_draws)  # as dropout in more visits would draw
        return self.weight * batch["inputs"].float().mean()

    def validation_step(
        self, batch: dict[str, torch.Tensor], batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        torch.rand(self.extra_draws)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "squares.txt").write_text("".join(LINES))
    return directory


def text_data(corpus: Path, **options: Any) -> TextData:
    """Training data of exactly BATCHES batches an epoch."""
    settings: dict[str, Any] = {"vocab_size": 300, "context": 8, "document": "line", "seed": 1, **options}
    settings["cache_dir"] = str(corpus / "cache")
    probe = TextData(str(corpus / "squares.txt"), **settings)
    probe.setup()
    batch_size = probe.train_blocks // BATCHES
    return TextData(str(corpus / "squares.txt"), **{**settings, "batch_size": batch_size})


def train(
    corpus: Path,
    model: Recorder | None = None,
    *,
    resume: Path | None = None,
    save_to: Path | None = None,
    save: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **options: Any,
) -> list[list[int]]:
    """The blocks of every batch of a run."""
    model = model or Recorder()
    callbacks = (
        []
        if save_to is None
        else [ModelCheckpoint(save_to, filename="{step}", save_top_k=-1, **(save or {}))]
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=callbacks,
        enable_checkpointing=save_to is not None,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **{"limit_val_batches": 0, **options},
    )
    trainer.fit(model, text_data(corpus, **(data or {})), ckpt_path=resume)
    return model.seen


@pytest.fixture(scope="module")
def straight(corpus: Path) -> list[list[int]]:
    """The blocks of a run of four epochs that nothing interrupts."""
    return train(corpus, max_epochs=4)


def test_epochs_have_their_own_orders_and_no_block_twice(straight: list[list[int]]) -> None:
    assert len(straight) == 4 * BATCHES
    starts = range(0, len(straight), BATCHES)
    epochs = [list(chain.from_iterable(straight[start : start + BATCHES])) for start in starts]
    for number, epoch in enumerate(epochs):
        assert len(set(epoch)) == len(epoch)
        assert epoch not in epochs[:number]


@pytest.mark.parametrize(
    ("draws", "options", "workers"),
    [
        (3, {}, 0),
        (50, {"limit_val_batches": 1.0}, 0),
        (0, {"limit_val_batches": 1.0, "val_check_interval": 2}, 0),
        (1, {}, 2),
    ],
)
def test_the_order_does_not_depend_on_draws_validation_or_workers(
    corpus: Path, straight: list[list[int]], draws: int, options: dict[str, Any], workers: int
) -> None:
    assert (
        train(corpus, Recorder(draws), data={"num_workers": workers}, max_epochs=2, **options)
        == straight[: 2 * BATCHES]
    )


@pytest.mark.parametrize("horizon", [{"max_steps": 14}, {"max_epochs": 3}], ids=["steps", "epochs"])
@pytest.mark.parametrize(
    ("save", "options"),
    [
        ({"every_n_train_steps": 1}, {}),
        ({"every_n_train_steps": 1}, {"limit_val_batches": 1.0, "val_check_interval": 2}),
        ({"every_n_epochs": 1, "save_on_train_epoch_end": True}, {}),
        ({"every_n_epochs": 1, "save_on_train_epoch_end": False}, {"limit_val_batches": 1.0}),
    ],
    ids=["each step", "each step, with validation", "end of epoch", "after validation"],
)
def test_a_run_resumed_from_any_checkpoint_sees_the_rest_of_the_samples(
    corpus: Path,
    straight: list[list[int]],
    tmp_path: Path,
    horizon: dict[str, int],
    save: dict[str, Any],
    options: dict[str, Any],
) -> None:
    train(corpus, save_to=tmp_path, save=save, max_epochs=2, **options)
    checkpoints = sorted(tmp_path.glob("step=*.ckpt"))
    assert len(checkpoints) == (2 * BATCHES if "every_n_train_steps" in save else 2)
    end = 14 if "max_steps" in horizon else 3 * BATCHES
    for checkpoint in checkpoints:
        step = int(checkpoint.stem.removeprefix("step="))
        seen = train(corpus, resume=checkpoint, **horizon, **options)
        assert seen == straight[step:end], f"resumed after step {step}"


def test_a_run_stopped_after_three_batches_twice_sees_every_sample_once(
    corpus: Path, straight: list[list[int]], tmp_path: Path
) -> None:
    save = {"every_n_train_steps": 1}
    first = train(corpus, save_to=tmp_path / "1", save=save, max_steps=3)
    second = train(
        corpus, save_to=tmp_path / "2", save=save, max_steps=8, resume=tmp_path / "1" / "step=3.ckpt"
    )
    third = train(corpus, max_steps=20, resume=tmp_path / "2" / "step=8.ckpt")
    assert first + second + third == straight


def test_runs_stopped_at_two_epoch_ends_do_not_replay_the_first_order(
    corpus: Path, straight: list[list[int]], tmp_path: Path
) -> None:
    save = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
    first = train(corpus, save_to=tmp_path / "1", save=save, max_epochs=1)
    second = train(
        corpus, save_to=tmp_path / "2", save=save, max_epochs=2, resume=tmp_path / "1" / "step=5.ckpt"
    )
    third = train(corpus, max_epochs=4, resume=tmp_path / "2" / "step=10.ckpt")
    assert first + second + third == straight


def test_epochs_of_a_limited_number_of_batches_move_on_to_the_next_order(
    corpus: Path, straight: list[list[int]]
) -> None:
    assert (
        train(corpus, limit_train_batches=2, max_epochs=3) == straight[0:2] + straight[5:7] + straight[10:12]
    )


def test_accumulation_drops_micro_batches_to_whole_windows_also_over_a_resume(
    corpus: Path, straight: list[list[int]], tmp_path: Path
) -> None:
    expected = straight[0:4] + straight[5:9] + straight[10:14]
    seen = train(corpus, accumulate_grad_batches=2, max_epochs=3)
    assert seen == expected
    train(corpus, accumulate_grad_batches=2, max_steps=3, save_to=tmp_path, save={"every_n_train_steps": 1})
    assert (
        train(corpus, accumulate_grad_batches=2, max_epochs=3, resume=tmp_path / "step=3.ckpt")
        == expected[6:]
    )


def test_the_order_follows_the_global_seed_unless_one_is_given(
    corpus: Path, straight: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")
    assert train(corpus, data={"seed": None}, max_epochs=1) == straight[:BATCHES]
    monkeypatch.setenv("PL_GLOBAL_SEED", "2")
    assert train(corpus, data={"seed": None}, max_epochs=1) != straight[:BATCHES]
    assert train(corpus, max_epochs=1) == straight[:BATCHES]
