"""The values that a run was configured with, held against those that it trains with."""

import inspect
from typing import Any

import lightning as L

from ilr.data import TextData
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.training.module import LanguageModel

OF_TRAINER = (
    "accumulate_grad_batches",
    "gradient_clip_val",
    "max_epochs",
    "max_steps",
    "limit_val_batches",
    "limit_test_batches",
)


class Settled(L.Callback):
    """Refuses to train with other values than the configuration that is recorded: something may have changed the
    module, the data or the trainer since, such as a callback that looks for a learning rate.
    """

    def __init__(self) -> None:
        self._noted: dict[str, Any] | None = None

    def note(self, trainer: L.Trainer, module: LanguageModel, data: TextData) -> None:
        """Keep the values as the configuration made them."""
        self._noted = _values(trainer, module, data)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Compare, before the configuration is written; raises `InputError` naming what has changed."""
        assert isinstance(module, LanguageModel)
        assert self._noted is not None
        now = _values(trainer, module, module.data)
        for name, value in self._noted.items():
            if repr(now[name]) != repr(value):  # the integer 1 is one batch, though it equals 1.0
                raise InputError(
                    f"--{name} was {value} when the configuration was read, and something, such as a callback of "
                    f"--trainer.callbacks, has made it {now[name]}: give --{name} {now[name]} instead"
                )


def _values(trainer: L.Trainer, module: LanguageModel, data: TextData) -> dict[str, Any]:
    """The options that are attributes of what they are options of, by name."""
    values: dict[str, Any] = {f"trainer.{name}": getattr(trainer, name) for name in OF_TRAINER}
    for section, owner in (("model", module), ("data", data)):
        own = vars(owner)
        names = [name for name in inspect.signature(type(owner)).parameters if name in own]
        values |= {f"{section}.{name}": plain(own[name]) for name in names if name != "vocab_size"}
    return values
