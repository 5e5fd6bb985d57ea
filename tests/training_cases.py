"""A tiny module and text trained in this process, for the tests of what training computes."""

from typing import Any

import lightning as L
from torch import Tensor

from ilr.data import TextData
from ilr.training.module import LanguageModel

SIZES: dict[str, Any] = {"context": 16, "width": 16, "num_layers": 2, "num_heads": 2}


def tiny_model(**options: Any) -> LanguageModel:
    """Two layers, the first of them twice."""
    return LanguageModel(**{"schedule": [2, 1], "warmup_steps": 0, **SIZES, **options})


def tiny_text(cache: str, **options: Any) -> TextData:
    """Topics of the Python documentation."""
    settings = {"context": 16, "batch_size": 2, "vocab_size": 300, "max_documents": 30, "seed": 3, **options}
    return TextData("pydoc", cache_dir=cache, **settings)


def train(model: LanguageModel, data: TextData, steps: int = -1, **options: Any) -> L.Trainer:
    """Train for so many steps, without validation, on the CPU."""
    settings: dict[str, Any] = {
        "max_steps": steps, "max_epochs": -1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0,
        "limit_val_batches": 0, "gradient_clip_val": 1.0, "accelerator": "cpu", **options,
    }  # fmt: skip
    trainer = L.Trainer(**settings)
    trainer.fit(model, datamodule=data)
    return trainer


def weights(model: LanguageModel) -> dict[str, Tensor]:
    """A copy of the decoder's."""
    return {key: tensor.detach().clone() for key, tensor in model.decoder.state_dict().items()}


class Spy(L.Callback):
    """Counts micro-batches and positions, and notes each step's gradient norm and learning rate by itself."""

    def __init__(self) -> None:
        self.positions = 0
        self.blocks: list[list[int]] = []
        self.norms: list[float] = []
        self.rates: list[float] = []
        self.windows: list[int] = []
        self._open = 0

    def on_train_batch_start(
        self, trainer: Any, module: Any, batch: dict[str, Tensor], batch_idx: int
    ) -> None:
        self.positions += batch["targets"].numel()
        self.blocks.append(batch["blocks"].tolist())
        self._open += 1

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        squares = sum(
            float(p.grad.double().square().sum()) for p in module.parameters() if p.grad is not None
        )
        self.norms.append(squares**0.5)
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.windows.append(self._open)
        self._open = 0
