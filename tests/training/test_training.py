"""The LightningModule against a plain torch loop, a brute-force score, and itself under other arrangements."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ilr.data import TextData
from ilr.errors import InputError
from ilr.model.metrics import IGNORED
from ilr.training.module import LanguageModel
from ilr.training.optimiser import learning_rate_factor, parameter_groups

SIZES: dict[str, Any] = {"context": 16, "width": 16, "num_layers": 2, "num_heads": 2}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def text(cache: str, **options: Any) -> TextData:
    settings = {"context": 16, "batch_size": 4, "vocab_size": 300, "max_documents": 30, "seed": 3, **options}
    return TextData("pydoc", cache_dir=cache, **settings)


class Ids(L.Callback):
    """Notes the blocks of every training batch."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def on_train_batch_start(
        self, trainer: Any, module: Any, batch: dict[str, Tensor], batch_idx: int
    ) -> None:
        self.seen.append(batch["blocks"].tolist())


def train(model: LanguageModel, data: TextData, steps: int, **options: Any) -> L.Trainer:
    settings: dict[str, Any] = {
        "max_steps": steps, "max_epochs": -1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0,
        "limit_val_batches": 0, "gradient_clip_val": 1.0, "accelerator": "cpu", "use_distributed_sampler": False,
        **options,
    }  # fmt: skip
    trainer = L.Trainer(**settings)
    trainer.fit(model, datamodule=data)
    return trainer


def weights(model: LanguageModel) -> dict[str, Tensor]:
    return {key: tensor.detach().clone() for key, tensor in model.decoder.state_dict().items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor], atol: float = 0.0) -> None:
    for key in one:
        torch.testing.assert_close(
            one[key], other[key], rtol=0, atol=atol, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_training_equals_a_plain_torch_loop(cache: str) -> None:
    model, data = LanguageModel([2, 1], warmup_steps=2, **SIZES), text(cache)
    train(model, data, 6)

    twin = LanguageModel([2, 1], vocab_size=data.vocab_size_actual, **SIZES)
    twin.configure_model()
    decoder = twin.decoder
    optimizer = torch.optim.AdamW(
        parameter_groups(decoder, 0.1, None, False), lr=3e-3, betas=(0.9, 0.95), fused=True
    )
    factor = learning_rate_factor("cosine", 2, 6, 0.1)
    stream = torch.from_numpy(data.stream("train").astype("int64"))
    for step, blocks in enumerate(data.train_dataloader().batch_indices(0)[:6]):
        tokens = torch.stack([stream[16 * i : 16 * i + 17] for i in blocks.tolist()])
        loss = F.cross_entropy(decoder(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * factor(step)
        optimizer.step()
    assert_equal(weights(model), weights(twin), atol=1e-6)


@pytest.mark.parametrize("masked", [False, True], ids=["all scored", "one micro-batch half ignored"])
def test_accumulation_equals_the_big_batch(cache: str, monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
    """8 blocks as 1 × 8 and as 4 × 2: the same update and the same logged loss (field case M7)."""

    def run(batch_size: int, accumulate: int) -> tuple[dict[str, Tensor], float]:
        model, data = LanguageModel([2, 1], warmup_steps=0, **SIZES), text(cache, batch_size=batch_size)
        first = data_first_block(cache)

        def transfer(batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
            hidden = (batch["blocks"] == first)[:, None] & (torch.arange(16) < 8)
            return {**batch, "targets": batch["targets"].masked_fill(hidden & masked, IGNORED)}

        monkeypatch.setattr(model, "on_before_batch_transfer", transfer)
        train(model, data, 1, accumulate_grad_batches=accumulate)
        return weights(model), float(model.window.nll / model.window.tokens)

    whole, loss = run(8, 1)
    parts, parts_loss = run(2, 4)
    assert_equal(whole, parts, atol=1e-6)
    assert parts_loss == pytest.approx(loss, rel=1e-6)


def data_first_block(cache: str) -> int:
    data = text(cache, batch_size=8)
    data.setup()
    return int(data.train_dataloader().batch_indices(0)[0, 0])


def test_validation_equals_a_brute_force_score_of_the_stream(cache: str) -> None:
    model, data = LanguageModel([2, 1], **SIZES), text(cache)
    trainer = train(model, data, 3, limit_val_batches=1.0)
    trainer.validate(model, datamodule=data, verbose=False)
    stream = torch.from_numpy(data.stream("validation").astype("int64"))
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(stream) - 1, 16):
            chunk = stream[start : start + 17]
            logits = model.decoder(chunk[None, :-1]).double()
            total += F.cross_entropy(logits[0], chunk[1:], reduction="sum")
    scores = model.scores["val"]
    assert scores.scored_tokens == len(stream) - 1
    assert scores.total_nll == pytest.approx(float(total), rel=1e-6)
    num_bytes = sum(len(document.encode()) for document in data.text_of("validation"))
    bits = float(trainer.callback_metrics["val/bits_per_byte"])
    assert bits == pytest.approx(float(total) / 0.6931471805599453 / num_bytes, rel=1e-6)


@pytest.mark.parametrize(
    "other", [{"schedule": [3, 2]}, {"schedule": [1, 1], "sharing": "attention"}], ids=str
)
def test_compared_runs_see_the_same_blocks_and_start_from_the_same_weights(
    cache: str, other: dict[str, Any]
) -> None:
    """With dropout on, over two epochs, with validation on or off (field cases W3, S6)."""
    seen, started = [], []
    for options, validate in (({"schedule": [1, 1]}, 0), (other, 1.0)):
        ids, model = Ids(), LanguageModel(**options, dropout=0.2, **SIZES)
        train(model, text(cache, max_train_tokens=3000), 80, callbacks=[ids], limit_val_batches=validate)
        seen.append(ids.seen)
        fresh = LanguageModel(**options, vocab_size=300, **SIZES)
        fresh.configure_model()
        started.append(weights(fresh))
    assert seen[0] == seen[1]
    per_epoch = len(seen[0]) // 2
    assert seen[0][:per_epoch] != seen[0][per_epoch:]
    assert_equal({key: started[0][key] for key in started[1]}, started[1])


def test_dropout_is_a_function_of_seed_and_step_alone(cache: str) -> None:
    def run(disturbance: int) -> dict[str, Tensor]:
        torch.manual_seed(disturbance)
        model = LanguageModel([2, 1], dropout=0.3, dropout_seed=5, **SIZES)
        train(model, text(cache), 4)
        return weights(model)

    assert_equal(run(1), run(2))


def test_bf16_validation_in_float32_equals_float32(cache: str) -> None:
    data = text(cache)
    losses = {}
    for precision, val_precision in (("32-true", "same"), ("bf16-mixed", "32-true"), ("bf16-mixed", "same")):
        model = LanguageModel([2, 1], val_precision=val_precision, **SIZES)
        L.Trainer(precision=precision, logger=False, enable_progress_bar=False, accelerator="cpu").validate(
            model, datamodule=data, verbose=False
        )
        losses[precision, val_precision] = model.scores["val"].loss
    assert losses["bf16-mixed", "32-true"] == losses["32-true", "same"]
    assert losses["bf16-mixed", "same"] != losses["32-true", "same"]
    assert losses["bf16-mixed", "same"] == pytest.approx(losses["32-true", "same"], rel=1e-3)


def test_bf16_true_trains_and_is_scored_in_float32(cache: str) -> None:
    model = LanguageModel([2, 1], val_precision="32-true", **SIZES)
    trainer = train(model, text(cache), 3, precision="bf16-true", limit_val_batches=1.0)
    assert model.decoder.embedding.weight.dtype == torch.bfloat16
    trainer.validate(model, datamodule=model.data, verbose=False)
    assert torch.isfinite(torch.tensor(model.scores["val"].loss))
    assert model.scores["val"].nll.dtype == "float64"


def test_the_model_is_built_with_the_vocabulary_that_the_tokenizer_really_got(cache: str) -> None:
    model, data = LanguageModel([2, 1], **SIZES), text(cache, vocab_size=100_000, max_documents=20)
    train(model, data, 1)
    assert data.vocab_size_actual < 100_000
    assert model.decoder.embedding.weight.shape[0] == data.vocab_size_actual == model.hparams["vocab_size"]
    with pytest.raises(
        InputError, match=f"vocab_size is 77, but the tokenizer has {data.vocab_size_actual} ids"
    ):
        train(LanguageModel([2, 1], vocab_size=77, **SIZES), data, 1)


def test_a_fully_ignored_batch_gives_no_loss_and_no_nan_gradient() -> None:
    model = LanguageModel([2, 1], vocab_size=30, **SIZES)
    model.configure_model()
    inputs = torch.randint(30, (2, 16))
    batch = {"inputs": inputs, "targets": torch.full_like(inputs, IGNORED)}
    loss = model.training_step(batch, 0)
    loss.backward()
    assert loss == 0
    assert all(bool((p.grad == 0).all()) for p in model.decoder.parameters())


def test_validation_figures_at_other_lengths_have_their_own_names(cache: str, tmp_path: Path) -> None:
    model, data = LanguageModel([2, 1], **SIZES), text(cache, eval_contexts=[8, 32])
    trainer = L.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    trainer.validate(model, datamodule=data, verbose=False)
    assert {"val/loss", "val/loss_at_8", "val/loss_at_32"} <= set(model.figures)
    alone = LanguageModel([2, 1], **{**SIZES, "context": 8})
    trainer.validate(alone, datamodule=text(cache, context=8), verbose=False)
    assert model.figures["val/loss_at_8"] == pytest.approx(alone.figures["val/loss"], rel=1e-9)
