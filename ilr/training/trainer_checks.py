"""Trainer options and callbacks under which a number would not be what it is called: refused by name."""

from collections.abc import Iterable
from typing import Any

import lightning as L
import torch
from lightning.pytorch import callbacks as known

from ilr.errors import InputError

PART = "--trainer.{name} {value} would call a part the whole: use --data.max_eval_tokens"
LIMITS = ("limit_val_batches", "limit_test_batches", "limit_predict_batches")

UNSUPPORTED: dict[type[L.Callback], str] = {
    known.LearningRateFinder: "it changes the learning rate after the configuration is recorded: try rates "
    "with ilr sweep, and give --model.learning_rate",
    known.BatchSizeFinder: "it changes the batch size after the configuration is recorded: give --data.batch_size",
    known.GradientAccumulationScheduler: "steps of different sizes have no one number of tokens: give "
    "--trainer.accumulate_grad_batches",
    known.StochasticWeightAveraging: "it replaces the learning rate's schedule, and the weights after the last "
    "checkpoint: use lightning.pytorch.callbacks.EMAWeightAveraging or WeightAveraging",
    known.ModelPruning: "it replaces weights that the cost and the checkpoints are made of",
    known.BaseFinetuning: "it takes parameters from the optimiser and gives them back without a learning rate",
    known.OnExceptionCheckpoint: "with it Lightning begins a new training from whatever checkpoint lies there; a "
    "run saves at the ends of its steps, and goes on with --resume auto",
    known.BasePredictionWriter: "nothing here predicts",
}
"""Callbacks of Lightning, with what is derived from them, that train or measure something other than is recorded."""


def check_trainer(command: str, options: Any) -> None:
    """Raise `InputError` for values of the Trainer under which a figure of ``command`` would be wrong."""
    if options.fast_dev_run:
        raise InputError(
            "--trainer.fast_dev_run leaves no record: use --trainer.max_steps 5 and a --run_dir"
            if command == "fit"
            else PART.format(name="fast_dev_run", value=options.fast_dev_run)
        )
    for name in LIMITS:
        value = options[name]
        # The integer 1 is one batch, though it equals 1.0.
        if value is not None and not (isinstance(value, float) and value == 1.0):
            raise InputError(PART.format(name=name, value=value))
    if options.overfit_batches:
        raise InputError(
            f"--trainer.overfit_batches {options.overfit_batches} would validate on a part of another split: use "
            "--data.max_train_tokens and --data.max_eval_tokens"
        )
    if command == "fit":
        _check_training(options)


def check_callbacks(callbacks: Iterable[L.Callback]) -> None:
    """Raise `InputError` for a callback that `UNSUPPORTED` lists."""
    for callback in callbacks:
        for kind, reason in UNSUPPORTED.items():
            if isinstance(callback, kind):
                raise InputError(f"--trainer.callbacks: {type(callback).__name__} is not supported: {reason}")


def check_precision(asked: Any, trainer: L.Trainer) -> None:
    """Raise `InputError` where the Trainer computes in another precision than asked for, as it does on CPUs."""
    if str(asked) in ("16", "16-mixed") and trainer.precision != "16-mixed":
        raise InputError(
            f"--trainer.precision {asked}: the Trainer would take {trainer.precision} here; give --trainer.precision "
            f"{trainer.precision}"
        )


def check_clipping(limit: float | None, algorithm: str | None) -> None:
    """Raise `InputError` for a clipping that is none by the norm."""
    if algorithm not in (None, "norm"):
        raise InputError(f"--trainer.gradient_clip_algorithm must be norm, got {algorithm}")
    if limit is not None and not limit >= 0:  # nor NaN
        raise InputError(
            f"--trainer.gradient_clip_val must be at least 0 (0 or null: no clipping), got {limit}"
        )


def check_optimisation_of(trainer: L.Trainer, weights: torch.dtype, steps: int, steps_per_epoch: int) -> None:
    """Raise `InputError` where AdamW over weights of this type, for so many steps, would not do what is recorded."""
    algorithm = trainer.gradient_clip_algorithm
    check_clipping(trainer.gradient_clip_val, algorithm and algorithm.value)
    if weights == torch.float16:
        raise InputError(
            f"--trainer.precision {trainer.precision} keeps AdamW's moments in float16, where the squares of gradients "
            "vanish: use 16-mixed, bf16-true or bf16-mixed"
        )
    # Lightning would go on after the last step, and not validate there.
    fit = trainer.fit_loop
    if (fit.min_steps or 0) > steps:
        raise InputError(f"--trainer.min_steps {fit.min_steps} is more than this training's {steps} steps")
    epochs_before = (steps - 1) // steps_per_epoch
    if (fit.min_epochs or 0) > epochs_before:
        raise InputError(
            f"--trainer.min_epochs {fit.min_epochs} must end before the last of this training's {steps} steps: "
            f"at most {epochs_before}"
        )


def _check_training(options: Any) -> None:
    if options.reload_dataloaders_every_n_epochs:
        raise InputError(
            "--trainer.reload_dataloaders_every_n_epochs would begin the order of the data anew: leave it at 0"
        )
    check_clipping(options.gradient_clip_val, options.gradient_clip_algorithm)
