"""The callback that says what a run is when it starts, and leaves its summary when it ends."""

from typing import Any

import lightning as L
import yaml
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from ilr.errors import InputError
from ilr.files.lock import check_held
from ilr.model.cost import cost
from ilr.model.fsdp import gathered_weights
from ilr.model.metrics import Scores, of_a_part
from ilr.runs.checkpoints import Record, read_checkpoint
from ilr.runs.directory import RunDirectory, atomic_write
from ilr.runs.logger import RunLogger
from ilr.runs.summary import (
    gzip_bits_per_byte,
    hyperparameters,
    run_label,
    summarise,
    tokens_of_a_step,
    write_documents,
    write_summary,
)
from ilr.training.module import LanguageModel

GZIP_LIMIT = 2**26
"""Largest validation text, in bytes, for which gzip's figure is worked out at the end."""


class RunRecord(L.Callback):
    """Announces the run to terminal and TensorBoard, and writes documents.parquet and summary.json."""

    def __init__(
        self,
        directory: RunDirectory,
        logger: RunLogger,
        seed: int,
        held_equal: str,
        config: str,
        goes_on: bool = False,
    ) -> None:
        self.directory, self.logger = directory, logger
        self.seed, self.held_equal, self.config = seed, held_equal, config
        self.goes_on, self.started = goes_on, False

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Begin the record."""
        assert isinstance(module, LanguageModel)
        self.begin(trainer, module)

    @rank_zero_only
    def begin(self, trainer: L.Trainer, module: LanguageModel) -> None:
        """Keep configuration and tokenizer; log plan, cost and hyper-parameters. Once, also where nothing is left
        to train; what an earlier start left and this one will not replace goes.
        """
        if self.started:
            return
        self.started = True
        self.directory.clear_partial()
        if self.goes_on:
            self.directory.reopen()
        else:
            self.directory.clear()
        with atomic_write(self.directory.next_config()) as file:
            file.write(self.config)
        spent = cost(module.config, module.plan)
        tokens = tokens_of_a_step(trainer, module.data)
        self.logger.start(tokens, spent.flops_per_token)
        figures = "\n".join(f"{name:>28}  {value:,}" for name, value in spent.as_dict().items())
        self.logger.log_run(
            hyperparameters(module, self.seed),
            {"plan": _code(module.plan.table()), "cost": _code(figures)},
        )
        with atomic_write(self.directory.tokenizer) as file:
            file.write(module.data.tokenizer.to_str())
        if isinstance(trainer.strategy, ModelParallelStrategy):
            print(
                f"sharded weights: each micro-batch gathers {gathered_weights(module.config, module.plan):,} weights "
                f"forward and as many backward, for {spent.parameters_non_embedding:,} that are held",
                flush=True,
            )
        print(
            f"run {run_label(module)}: {spent.depth} visits of {module.config.num_layers} layers, "
            f"{spent.parameters:,} parameters ({spent.parameters_non_embedding:,} without embeddings), "
            f"{spent.flops_per_token:,} training FLOPs per token, {tokens:,} tokens per step, "
            f"{int(trainer.estimated_stepping_batches):,} steps → {self.directory.path}",
            flush=True,
        )

    def score_validation(self, trainer: L.Trainer, module: LanguageModel) -> None:
        """Validation scores of the last weights, where this start has trained nothing and so has none."""
        if "val" not in module.scores:
            trainer.validate(module, datamodule=module.data, verbose=False)

    def score_tests(self, trainer: L.Trainer, module: LanguageModel) -> dict[str, Scores]:
        """Test scores of the last weights, and of the best by val/loss where these are others."""
        trainer.test(module, datamodule=module.data, verbose=False)
        tests = {"last": module.scores["test"]}
        record = Record.read(self.directory)
        if record.best is None or not record.last or record.best.step == record.last[-1].step:
            return {**tests, "best": tests["last"]} if record.best is not None else tests
        try:
            best = read_checkpoint(self.directory.checkpoints / record.best.file)
        except InputError as error:
            rank_zero_warn(f"{error}; the best weights are not tested")
            return tests
        kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.load_state_dict(best["state_dict"])
        trainer.test(module, datamodule=module.data, verbose=False)
        tests["best"] = module.scores["test"]
        module.load_state_dict(kept)
        module.scores["test"] = tests["last"]
        return tests

    @rank_zero_only
    def finish(
        self, trainer: L.Trainer, module: LanguageModel, status: str, tests: dict[str, Scores]
    ) -> None:
        """Write documents.parquet and, last, summary.json; print how it ended."""
        check_held(self.directory.path)
        write_documents(self.directory, module.data, module.scores)
        settings = yaml.safe_load(self.config)
        summary = summarise(
            self.directory, trainer, module, status, self.seed, settings, self.held_equal, tests
        )
        if summary["val_loss"] is not None:
            self.logger.log_final({name: summary[name] for name in self.logger.final_metrics})
        self.logger.close()
        write_summary(self.directory, summary)
        if status != "diverged" and summary["val_loss"] is not None:
            self._print_end(module, summary)

    def _print_end(self, module: LanguageModel, summary: dict[str, Any]) -> None:
        shares = summary["share_of_split"]
        asked = "" if summary["status"] == "finished" else f" of {module.horizon:,}"
        print(
            f"{summary['status']} {summary['label']}: {summary['steps']:,}{asked} steps, {summary['tokens']:,} tokens\n"
            f"  validation  loss {summary['val_loss']:.4f} nats/token  perplexity {summary['val_perplexity']:.2f}  "
            f"{summary['val_bits_per_byte']:.4f} bits per byte{of_a_part(shares['validation'])}"
        )
        if module.data.bytes_scored("validation") <= GZIP_LIMIT:
            packed = gzip_bits_per_byte(module.data.text_of("validation"))
            print(f"  gzip -9 of the same text                              {packed:.4f} bits per byte")
        if summary["test_loss"] is not None:
            print(
                f"  test        loss {summary['test_loss']:.4f} nats/token  perplexity "
                f"{summary['test_perplexity']:.2f}  {summary['test_bits_per_byte']:.4f} bits per byte"
                f"{of_a_part(shares['test'])}"
            )
        print(
            f"  record      {self.directory.path}\n  curves      tensorboard --logdir {self.directory.path.parent}",
            flush=True,
        )
        if summary["status"] == "stopped":
            print(
                "Training was stopped before the steps that were asked for (a limit of time, or a callback): the same "
                "command goes on with --resume auto, and a larger or no --trainer.max_time where that was the limit",
                flush=True,
            )


def _code(text: str) -> str:
    """Text as TensorBoard's markdown shows it unchanged."""
    return "\n".join(f"    {line}" for line in text.splitlines())
