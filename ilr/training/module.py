"""The LightningModule: loss, optimiser, validation figures."""

from dataclasses import replace
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ilr.bounds import check_seed
from ilr.data import TextData
from ilr.errors import InputError
from ilr.model.compilation import execute
from ilr.model.config import Compile, DecoderConfig, Recompute
from ilr.model.decoder import Decoder, Observer
from ilr.model.fsdp import shard, whole
from ilr.model.initialise import seed_for
from ilr.model.memory import check_memory, training_use
from ilr.model.metrics import IGNORED, CorpusNLL, Scores, check_whole, token_nll
from ilr.model.plan import make_plan
from ilr.model.positions import SLOPES, check_length, warn_of_other_slopes
from ilr.model.weights import fitting
from ilr.training.accumulation import StepWindow
from ilr.training.bounds import device_bytes
from ilr.training.optimiser import (
    LRSchedule,
    check_optimisation,
    clip_gradients,
    learning_rate_factor,
    parameter_groups,
)
from ilr.training.scaling import gradient_scaler, unscale
from ilr.training.trainer_checks import check_callbacks, check_optimisation_of

Batch = dict[str, Tensor]
SPLITS = {"val": "validation", "test": "test"}
"""Stage in the names of figures → split of the corpus."""


class LanguageModel(L.LightningModule):
    """A decoder under a schedule, trained on next-token NLL.

    Args:
        schedule: Times per layer such as [3,2,1,1], or segments such as [{layers: [1,2], times: 4}].
        sharing: none, attention, ffn, all, or a bank index per layer,
            {attention: [0,0,0,0], ffn: [0,1,2,3]}.
        vocab_size: Number of token ids. Null: the tokenizer's, which is also the only value accepted.
        init_seed: Seed of the initial weights. Null: the value of --seed_everything.
        dropout_seed: Seed of dropout. Null: the value of --seed_everything.
        learning_rate: Peak learning rate of AdamW.
        lr_schedule: After the warm-up: cosine to the floor at the last step, or constant.
        warmup_ratio: Share of the steps in which the learning rate rises linearly.
        warmup_steps: The same in optimiser steps. Null: what warmup_ratio gives.
        min_lr_ratio: Floor of the cosine as a share of the peak.
        extra_steps: Steps by which the cosine's horizon lies beyond the last step (the ILR paper: 100).
        betas: AdamW's decay rates of the gradient's moments.
        adam_eps: AdamW's epsilon.
        weight_decay: AdamW's decoupled decay of matrices.
        repeated_weight_decay: The decay of matrices that run more than once. Null: as the others.
        decay_norms: Whether norms are decayed too (the ILR paper did).
        val_precision: Type of the evaluation's forward pass: as training, or float32 (the ILR paper).
        compile: Compile each kind of sublayer (for any plans), or the whole of this one plan, or nothing.
        recompute: Save memory by computing again in the backward pass, visit by visit: nothing, all but
            matrix products and attention, or all.
    """

    def __init__(
        self,
        schedule: list[Any] = [3, 2, 1, 1],  # noqa: B006  # never mutated; a list is what jsonargparse shows
        sharing: str | dict[str, list[int]] = "none",
        vocab_size: int | None = None,
        init_seed: int | None = None,
        dropout_seed: int | None = None,
        learning_rate: float = 3e-3,
        lr_schedule: LRSchedule = "cosine",
        warmup_ratio: float = 0.05,
        warmup_steps: int | None = None,
        min_lr_ratio: float = 0.1,
        extra_steps: int = 0,
        betas: tuple[float, float] = (0.9, 0.95),
        adam_eps: float = 1e-8,
        weight_decay: float = 0.1,
        repeated_weight_decay: float | None = None,
        decay_norms: bool = False,
        val_precision: Literal["same", "32-true"] = "same",
        compile: Compile = "none",
        recompute: Recompute = "none",
        **model: Any,
    ) -> None:
        super().__init__()
        # Any vocabulary passes the checks; the tokenizer's replaces it when the decoder is built.
        self.config = DecoderConfig(vocab_size=1 if vocab_size is None else vocab_size, **model)
        self.plan = make_plan(schedule, self.config.num_layers, sharing)
        check_optimisation(
            learning_rate,
            warmup_ratio,
            warmup_steps,
            min_lr_ratio,
            extra_steps,
            weight_decay,
            repeated_weight_decay,
            betas,
            adam_eps,
        )
        for name, seed in (("init_seed", init_seed), ("dropout_seed", dropout_seed)):
            if seed is not None:
                check_seed(name, seed)
        self.save_hyperparameters()
        self.learning_rate, self.lr_schedule = learning_rate, lr_schedule
        self.warmup_ratio, self.warmup_steps = warmup_ratio, warmup_steps
        self.min_lr_ratio, self.extra_steps = min_lr_ratio, extra_steps
        self.betas, self.adam_eps = (betas[0], betas[1]), adam_eps
        self.weight_decay, self.repeated_weight_decay = weight_decay, repeated_weight_decay
        self.decay_norms, self.val_precision = decay_norms, val_precision
        self.compile_mode, self.recompute = compile, recompute
        self.init_seed, self.dropout_seed = init_seed or 0, dropout_seed or 0
        self.vocab_size = vocab_size
        self.decoder: Decoder
        self.observe: Observer | None = None
        self.window = StepWindow()
        self.scores: dict[str, Scores] = {}
        self.figures: dict[str, float] = {}
        self.horizon = 0
        self._begun_horizon: int | None = None
        self._micro_batches = 1
        self._stop_waits = False
        self._metrics: list[CorpusNLL] = []

    # -- building ------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Refuse callbacks under which this module's numbers would not be what they are called."""
        check_callbacks(self.trainer.callbacks)  # type: ignore[attr-defined]

    def configure_model(self) -> None:
        """Build the decoder with the tokenizer's vocabulary, which becomes a hyper-parameter."""
        if hasattr(self, "decoder"):
            return
        if self._trainer is not None:
            self._adopt_vocabulary(self.data)
        if self.vocab_size is None:
            raise InputError(
                "vocab_size is not known: give model.vocab_size, or a data module with a tokenizer"
            )
        self._check_memory()
        self.decoder = Decoder(self.config, self.plan, init_seed=self.init_seed)
        if self._trainer is not None:
            check_length(self.decoder.positions, max(self.data.contexts))
        execute(self.decoder, self.compile_mode, self.recompute)
        if self.device_mesh is not None:
            shard(self.decoder, self.device_mesh["data_parallel"])

    def _check_memory(self) -> None:
        """Refuse what could not be held, now that the vocabulary is known."""
        if self._trainer is None:
            return
        device, world = self.trainer.strategy.root_device, self.trainer.world_size
        use = training_use(
            self.data.batch_size,
            self.config.context,
            self.trainer.precision,
            self.recompute,
            self.compile_mode,
            processes=world if device.type == "cpu" and self.trainer.num_nodes == 1 else 1,
        )
        training = self.trainer.state.fn == "fit"
        uses = [use] if training else []
        for context, rows in zip(self.data.contexts, self.data.evaluation_rows, strict=True):
            copies = use.copies if training else 1
            uses.append(replace(use, rows=rows, context=context, kept="none", copies=copies))
        for one in uses:
            check_memory(
                self.config, self.plan, one, device_bytes(device, 1 if self.device_mesh is None else world)
            )

    def _adopt_vocabulary(self, data: TextData) -> None:
        if self.vocab_size not in (None, data.vocab_size_actual):
            raise InputError(
                f"model.vocab_size is {self.vocab_size}, but the tokenizer has {data.vocab_size_actual} ids"
            )
        self.vocab_size = data.vocab_size_actual
        self.config = DecoderConfig(**{**vars(self.config), "vocab_size": self.vocab_size})
        self.hparams.update(vocab_size=self.vocab_size)

    @property
    def data(self) -> TextData:
        """The data module of the trainer."""
        return self.trainer.datamodule  # type: ignore[attr-defined]

    # -- training ------------------------------------------------------------------------------------------

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """NLL of the micro-batch over its targets, scored or not: `on_before_optimizer_step` corrects by the
        tokens that the whole window scored.
        """
        if self.config.dropout > 0:
            micro_batch = batch_idx % self.trainer.accumulate_grad_batches
            torch.manual_seed(seed_for(self.dropout_seed, self.global_step, micro_batch, self.global_rank))
        nll = self.decoder.nll_sum(batch["inputs"], batch["targets"], observe=self.observe)
        self.window.add(nll.detach(), (batch["targets"] != IGNORED).sum(), batch["targets"].numel())
        return nll / batch["targets"].numel()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Make the gradient that of the mean NLL over the tokens that this step scored, on all processes."""
        unscale(self.trainer, optimizer)
        scored, nominal = self.window.take_step()
        self._check_step(nominal)
        if self.trainer.world_size > 1:
            both = torch.stack([scored, torch.full_like(scored, nominal)])
            scored, positions = self.trainer.strategy.reduce(both, reduce_op="sum").unbind()
        else:
            positions = torch.full_like(scored, nominal)
        if scored.device.type == "cpu" and torch.equal(scored, positions):
            return
        gradients = [parameter.grad for parameter in self.decoder.parameters() if parameter.grad is not None]
        torch._foreach_mul_(gradients, positions / scored.clamp(min=1))

    def _check_step(self, positions: int) -> None:
        """All steps are worth equally many tokens, as announced; raises `InputError` where one is not."""
        announced = self._micro_batches * self.data.batch_size * self.data.context
        if positions != announced:
            raise InputError(
                f"step {self.global_step + 1} took {positions} tokens, a step was announced as {announced}: "
                "something, such as a callback of --trainer.callbacks, has cut its micro-batches"
            )

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Have a stop that was asked for amid the micro-batches of a step wait for its end."""
        asked, amid = self._stop_waits or self.trainer.should_stop, self.window.nominal > 0
        self._stop_waits, self.trainer.should_stop = asked and amid, asked and not amid

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm over all parameters, and keep the norm before clipping."""
        limit = gradient_clip_val or float("inf")
        norm = whole(clip_gradients(self.decoder.parameters(), limit))
        self.window.clip(norm, limit, scaled=gradient_scaler(self.trainer) is not None)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW and the learning rate per optimiser step.

        Fused, but where gradients are scaled: a fused optimiser is handed them so, and so is every hook before it.
        """
        groups = parameter_groups(
            self.decoder, self.weight_decay, self.repeated_weight_decay, self.decay_norms
        )
        optimizer = torch.optim.AdamW(
            groups,
            lr=self.learning_rate,
            betas=self.betas,
            eps=self.adam_eps,
            fused=gradient_scaler(self.trainer) is None,
        )
        steps = self.trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise InputError(
                "the number of steps is not known: give --trainer.max_steps or --trainer.max_epochs"
            )
        weights = self.decoder.embedding.weight.dtype
        check_optimisation_of(self.trainer, weights, int(steps), self.data.steps_per_epoch)
        warmup = round(self.warmup_ratio * steps) if self.warmup_steps is None else self.warmup_steps
        self.horizon = int(steps)
        self._micro_batches = self.trainer.accumulate_grad_batches
        self._check_horizon()
        factor = learning_rate_factor(
            self.lr_schedule, warmup, self.horizon + self.extra_steps, self.min_lr_ratio
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
        }

    def _check_horizon(self) -> None:
        begun = self._begun_horizon
        if begun is not None and begun != self.horizon and self.lr_schedule != "constant":
            raise InputError(
                f"this run's learning rate was laid out over {begun} steps, now {self.horizon} are asked for: "
                f"a {self.lr_schedule} schedule cannot change its horizon (model.lr_schedule constant can)"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the open logged interval, so that a resumed run logs what the uninterrupted one would."""
        checkpoint["ilr"] = {
            "window": self.window.state_dict(),
            "horizon": self.horizon,
            "alibi_slopes": SLOPES,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the open logged interval, over the same horizon; `InputError` for weights of another model."""
        window, horizon = (checkpoint["ilr"].get(name) for name in ("window", "horizon"))
        loops = checkpoint.get("loops")
        whole = isinstance(loops, dict) and {"fit_loop", "validate_loop", "test_loop"} <= loops.keys()
        if not self.window.describes(window) or not isinstance(horizon, int) or not whole:
            raise InputError("the checkpoint does not say where its training was: it cannot be gone on with")
        checkpoint["state_dict"] = fitting(checkpoint["state_dict"], self.state_dict(), "the checkpoint")
        warn_of_other_slopes(self.config, checkpoint["ilr"])
        self.window.load_state_dict(window)
        self._begun_horizon = horizon

    # -- evaluation ----------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        """Begin the sums of the validation split."""
        self._begin("val")

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the sums of its context length."""
        self._score(batch, dataloader_idx)

    def on_validation_epoch_end(self) -> None:
        """Log the validation figures at this step."""
        self._finish("val")

    def on_test_epoch_start(self) -> None:
        """Begin the sums of the test split."""
        self._begin("test")

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a batch to the sums of its context length."""
        self._score(batch, dataloader_idx)

    def on_test_epoch_end(self) -> None:
        """Log the test figures."""
        self._finish("test")

    def _begin(self, stage: str) -> None:
        documents = len(self.data.documents(SPLITS[stage]).tokens)
        self._metrics = [CorpusNLL(documents, SPLITS[stage]).to(self.device) for _ in self.data.contexts]

    @torch.no_grad()
    def _score(self, batch: Batch, which: int) -> None:
        nll = self._eval_nll(batch["inputs"], batch["targets"])
        self._metrics[which].update(nll, batch["targets"], batch["documents"])

    def _eval_nll(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self.val_precision == "same":
            return self.decoder.nll(inputs, targets)
        with torch.autocast(inputs.device.type, enabled=False):
            if self.decoder.compute_dtype == torch.float32:
                return self.decoder.nll(inputs, targets)
            wide = {name: tensor.float() for name, tensor in self.decoder.state_dict(keep_vars=True).items()}
            return token_nll(torch.func.functional_call(self.decoder, wide, (inputs,)), targets)

    def _finish(self, stage: str) -> None:
        """Reduce the sums over processes; figures of the main context lead, others end in _at_CONTEXT."""
        if self.trainer.sanity_checking:
            self._metrics = []
            return
        num_bytes = self.data.bytes_scored(SPLITS[stage])
        figures: dict[str, float] = {}
        for context, metric in zip(self.data.contexts, self._metrics, strict=True):
            scores = metric.scores()
            check_whole(scores, SPLITS[stage], self.data.manifest.splits[SPLITS[stage]].tokens)
            main = not figures
            if main:
                self.scores[stage] = scores
            suffix = "" if main else f"_at_{context}"
            figures.update({f"{stage}/{name}{suffix}": x for name, x in scores.figures(num_bytes).items()})
        if (share := self.data.share_of(SPLITS[stage])) < 1:
            figures[f"{stage}/share_of_split"] = share
        self._metrics = []
        self.figures = figures
        self.log_dict(figures, logger=False, rank_zero_only=False)
        for logger in self.loggers:
            logger.log_metrics(figures, step=self.global_step)
