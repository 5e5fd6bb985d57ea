"""What a training run shows while it goes: curves and health at each logged step, and the end of its steps."""

import math
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor, nn

from ilr.model.metrics import of_a_part, perplexity
from ilr.model.plan import Visit
from ilr.training.module import LanguageModel
from ilr.training.scaling import gradient_scaler
from ilr.training.step_callback import StepCallback


class Diverged(Exception):
    """The training loss is not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss is not finite at step {step}")
        self.step = step


class Health(StepCallback):
    """Logs loss, speed and health every ``every`` optimiser steps, and at the last one.

    Health is the learning rate, the gradient norm before clipping, the share of clipped steps, the size of
    the update relative to the weights, and the root mean square of the residual stream after each visit.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self._seconds = 0.0
        self._data_seconds = 0.0
        self._started = 0.0
        self._ended: float | None = None
        self._timed_steps = 0
        self._learning_rate = 0.0
        self._weights: dict[str, list[Tensor]] = {}
        self._rms: dict[str, Tensor] = {}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Start the clocks."""
        self._seconds = self._data_seconds = 0.0
        self._timed_steps, self._ended = 0, None

    def on_train_batch_start(
        self, trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Time the wait for data; before a step that will be logged, watch the visits."""
        now = time.perf_counter()
        if self._ended is not None:
            self._data_seconds += now - self._ended
        self._started = now
        super().on_train_batch_start(trainer, module, batch, batch_idx)
        assert isinstance(module, LanguageModel)
        last_micro_batch = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if last_micro_batch and self._is_logged(trainer, trainer.global_step + 1):
            self._rms = {}
            module.observe = self._observe

    def _observe(self, visit: Visit, before: Tensor, after: Tensor) -> None:
        self._rms[f"{visit.layer}.{visit.iteration}"] = after.detach().float().square().mean().sqrt()

    def on_before_optimizer_step(
        self, trainer: L.Trainer, module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Note the learning rate that the step uses; before one that will be logged, copy the weights."""
        assert isinstance(module, LanguageModel)
        self._learning_rate = float(optimizer.param_groups[0]["lr"])
        if self._is_logged(trainer, trainer.global_step + 1):
            self._weights = {
                kind: [p.detach().clone() for p in parameters] for kind, parameters in _kinds(module).items()
            }

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Stop the clock of the micro-batch, then act on the step."""
        assert isinstance(module, LanguageModel)
        module.observe = None
        self._ended = time.perf_counter()
        self._seconds += self._ended - self._started
        super().on_train_batch_end(trainer, module, outputs, batch, batch_idx)

    def after_step(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Log where it is due, end the training after the last step."""
        assert isinstance(module, LanguageModel)
        step = trainer.global_step
        self._timed_steps += 1
        if step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True  # Lightning validates once more where it is asked to stop
        if self._is_logged(trainer, step):
            self._log(trainer, module, step)

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Do not count the validation as waiting for data."""
        self._ended = None

    def _is_logged(self, trainer: L.Trainer, step: int) -> bool:
        return step % self.every == 0 or step == 1 or step >= trainer.estimated_stepping_batches

    def _log(self, trainer: L.Trainer, module: LanguageModel, step: int) -> None:
        sums = torch.stack([module.window.nll, module.window.tokens.double()])
        nll, tokens = trainer.strategy.reduce(sums, reduce_op="sum").tolist()
        loss = nll / tokens if tokens else math.nan
        window = module.window
        # After a resume the interval holds steps that an earlier start has taken.
        timed_tokens = tokens * self._timed_steps / max(window.steps, 1)
        speed = timed_tokens / max(self._seconds + self._data_seconds, 1e-9)
        figures = {
            "train/loss": loss,
            "train/perplexity": perplexity(loss),
            "train/tokens_per_second": tokens and speed,
            "train/data_wait": self._data_seconds / max(self._seconds + self._data_seconds, 1e-9),
            "health/learning_rate": self._learning_rate,
            **window.health(scaled=gradient_scaler(trainer) is not None),
            **{f"health/update_ratio/{kind}": ratio for kind, ratio in self._update_ratios(module).items()},
            **{f"health/state_rms/{visit}": float(rms) for visit, rms in self._rms.items()},
        }
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=step)
        steps_left = trainer.estimated_stepping_batches - step
        left = steps_left * (self._seconds + self._data_seconds) / max(self._timed_steps, 1)
        shown = {"loss": loss, "perplexity": perplexity(loss), "tokens/s": speed, "minutes left": left / 60}
        module.log_dict(shown, prog_bar=True, logger=False, rank_zero_only=False)
        window.reset_interval()
        self._seconds = self._data_seconds = 0.0
        self._timed_steps = 0
        if not math.isfinite(loss):
            raise Diverged(step)

    def _update_ratios(self, module: LanguageModel) -> dict[str, float]:
        ratios = {}
        for kind, parameters in _kinds(module).items():
            before = self._weights.get(kind, [])
            changes = [
                torch.linalg.vector_norm((p.detach() - b).float())
                for p, b in zip(parameters, before, strict=True)
            ]
            sizes = [torch.linalg.vector_norm(b.float()) for b in before]
            ratios[kind] = float(torch.stack(changes).norm() / torch.stack(sizes).norm())
        self._weights = {}
        return ratios


class ValidationLines(L.Callback):
    """Prints a line per validation, so that perplexity is seen falling in the terminal."""

    @rank_zero_only
    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Print step, tokens, loss, perplexity and bits per byte."""
        figures = trainer.callback_metrics
        if trainer.sanity_checking or "val/loss" not in figures:
            return
        print(
            f"step {trainer.global_step:>7,}  validation: loss {figures['val/loss']:.4f} nats/token  "
            f"perplexity {figures['val/perplexity']:.2f}  {figures['val/bits_per_byte']:.4f} bits per byte"
            f"{of_a_part(float(figures.get('val/share_of_split', 1)))}",
            flush=True,
        )


def _kinds(module: LanguageModel) -> dict[str, list[nn.Parameter]]:
    """Matrices of the decoder by the part that they belong to."""
    decoder = module.decoder
    kinds: dict[str, nn.Module] = {
        "embedding": decoder.embedding,
        "attention": decoder.attention,
        "ffn": decoder.ffn,
    }
    return {kind: [p for p in part.parameters() if p.dim() > 1] for kind, part in kinds.items()}
