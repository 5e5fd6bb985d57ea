"""`fit`, `validate`, `test`: LightningCLI over LanguageModel and TextData, and the run directory around it."""

import logging
import os
import random
import sys
import warnings
from contextlib import ExitStack, suppress
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, TQDMProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities import rank_zero_only

from ilr.commands.parser import fail
from ilr.data import TextData
from ilr.data.recorded import RunText, trained_on
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.files.lock import LOCK_FILE, held
from ilr.files.plain import plain
from ilr.model.config import DecoderConfig
from ilr.model.plan import make_plan
from ilr.progress import say
from ilr.runs.adoption import adopt_checkpoint
from ilr.runs.checkpoints import AtomicCheckpointIO, Checkpoints
from ilr.runs.directory import RunDirectory
from ilr.runs.interruption import Interrupted, Interruption
from ilr.runs.logger import RunLogger
from ilr.runs.record import RunRecord
from ilr.runs.resume import AlreadyFinished, Resume, find_resume
from ilr.training.bounds import check_planned_memory, check_seeds, check_trainer_numbers
from ilr.training.health import Diverged, Health, ValidationLines
from ilr.training.module import SPLITS, LanguageModel
from ilr.training.options import (
    add_run_options,
    check_configurations,
    check_devices,
    check_strategy,
    context_of,
    naming_options,
    naming_trainer,
    naming_values,
    settle_intervals,
    settle_length,
)
from ilr.training.settled import Settled
from ilr.training.trainer_checks import check_callbacks, check_precision, check_trainer


class TrainingParser(LightningArgumentParser):
    """The parser of the training commands: exact option names only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong, without the usage of five hundred options."""
        if 'Linked "data.context"' in message:  # the library's words for an option that another one decides
            message = "--data.context is that of the model: give --model.context"
        fail(message)


class TrainingCLI(LightningCLI):
    """The training commands. A run lives in one directory; the README says what lies in it."""

    def __init__(self, args: list[str] | None, until_the_end: ExitStack) -> None:
        self._building = ""
        self._until_the_end = until_the_end
        self._locked = False
        self._asked = (sys.argv[1:] if args is None else args)[:1]
        self.start: Resume | None = None
        self.text: RunText | None = None
        super().__init__(
            LanguageModel,
            TextData,
            args=args,
            parser_class=TrainingParser,
            save_config_callback=None,
            seed_everything_default=42,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            trainer_defaults={
                "max_epochs": 1,
                "num_sanity_val_steps": 0,
                "gradient_clip_val": 1.0,
                "check_val_every_n_epoch": None,
                "use_distributed_sampler": False,
                "enable_model_summary": False,
            },
        )

    # -- options -------------------------------------------------------------------------------------------

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The Trainer's methods that are commands, each with the arguments that are not options.

        Where the first word is one of them it is the only one: a parser of five hundred options takes time.
        """
        commands = {
            "fit": {"model", "datamodule", "train_dataloaders", "val_dataloaders", "weights_only"},
            "validate": {"model", "datamodule", "dataloaders", "weights_only"},
            "test": {"model", "datamodule", "dataloaders", "weights_only"},
        }
        return {name: commands[name] for name in self._asked if name in commands} or commands

    def _prepare_subcommand_parser(
        self, klass: type, subcommand: str, **kwargs: Any
    ) -> LightningArgumentParser:
        self._building = subcommand
        return super()._prepare_subcommand_parser(klass, subcommand, **kwargs)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The options that belong to neither model, data nor trainer; steps are optimiser steps."""
        parser.link_arguments("model", "data.context", compute_fn=context_of, apply_on="instantiate")
        add_run_options(parser, self._building)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse twice: with defaults, and to know which values the user gave."""
        check_configurations(sys.argv[1:] if args is None else args)
        super().parse_arguments(parser, args)
        bare = parser.parse_args(args, defaults=False)
        self.given = plain(bare)[self.config.subcommand]

    # -- before anything is built --------------------------------------------------------------------------

    def _parse_ckpt_path(self) -> None:
        """Lightning's hook between parsing and seeding, where its own version would let a checkpoint's
        hyper-parameters silently win: settle seeds, intervals and the run directory. Nothing is written yet.
        """
        self.cfg = cfg = self.config[self.config.subcommand]
        check_seeds(cfg)
        check_trainer_numbers(cfg.trainer)
        if cfg.seed_everything is True:
            cfg.seed_everything = random.SystemRandom().randrange(2**31)
        cfg.seed_everything = int(cfg.seed_everything)
        if self.config.subcommand != "fit":
            self.adopted = adopt_checkpoint(cfg, self.given)
            self.directory, self.text = self.adopted.directory, self.adopted.text
        else:
            path = cfg.run_dir or (
                Path(cfg.ckpt_path).parent.parent if cfg.ckpt_path else self._default_path()
            )
            self.directory = RunDirectory(Path(path))
            self._lock()
            self.start = find_resume(self.directory, cfg, self.given)
            self.text = None if self.start is None else self.start.text
            settle_intervals(cfg, self.given)
            settle_length(cfg.trainer)
        check_trainer(self.config.subcommand, cfg.trainer)
        for section, name in ((cfg.model, "init_seed"), (cfg.model, "dropout_seed"), (cfg.data, "seed")):
            if section[name] is None:
                section[name] = cfg.seed_everything

    def _lock(self) -> None:
        """Keep other processes out of the run directory until this one has ended; the first process does it for all.

        A directory that is not there yet, or not to be written, is left to `RunDirectory.create`.
        """
        path = self.directory.path
        first = getattr(rank_zero_only, "rank", 0) == 0
        if self._locked or not first or not os.access(path, os.W_OK) or not path.is_dir():
            return
        self._until_the_end.enter_context(held(path, f"--run_dir {path}"))
        self._locked = True

    def _default_path(self) -> str:
        model = self.cfg.model
        fields = {name: model[name] for name in DecoderConfig.__dataclass_fields__ if name != "vocab_size"}
        with naming_options():
            config = DecoderConfig(vocab_size=1, **fields)
            plan = make_plan(plain(model.schedule), config.num_layers, plain(model.sharing))
        names = [Path(str(file)).stem for file in self.cfg.get("config") or []]
        return f"runs/{'+'.join(names) or 'default'}/{plan.label}{config.label}-s{self.cfg.seed_everything}"

    # -- building ------------------------------------------------------------------------------------------

    def instantiate_classes(self) -> None:
        """Build model, data (where there is a checkpoint, its own) and trainer; a wrong model value is said with its
        option's name.
        """
        with naming_options():
            model = LanguageModel(**plain(self.cfg.model))
        if self.config.subcommand == "fit":
            check_planned_memory(self.cfg, model.config, model.plan)
        with trained_on(self.text), naming_values(self.cfg):
            super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer, for fit with this run's logger, callbacks and checkpoint files beside the user's own."""
        cfg = self.config_init[self.config.subcommand]
        check_devices(cfg.trainer.accelerator, cfg.trainer.devices)
        callbacks = _listed(cfg.trainer.callbacks)
        check_callbacks(callbacks)
        plugins = [*_listed(cfg.trainer.plugins), AtomicCheckpointIO()]
        if self.config.subcommand != "fit":
            with naming_trainer():
                trainer = super().instantiate_trainer(logger=False, plugins=plugins, **kwargs)
                check_precision(cfg.trainer.precision, trainer)
                return trainer
        check_strategy(cfg.trainer.strategy)
        self._take_directory()
        logger = RunLogger(self.directory, self.start.step if self.start else None)
        own = [] if isinstance(cfg.trainer.logger, bool) else _listed(cfg.trainer.logger)
        step = self.start.step if self.start else None
        checkpoints = Checkpoints(self.directory, cfg.save_every, step)
        self.record = RunRecord(
            self.directory,
            logger,
            cfg.seed_everything,
            cfg.held_equal,
            self._effective_config(),
            goes_on=self.start is not None,
        )
        no_bar = cfg.trainer.enable_progress_bar is False or any(
            isinstance(c, ProgressBar) for c in callbacks
        )
        bar = [] if no_bar else [_Bar(refresh_rate=10)]
        self.settled = Settled()
        self.trainer_defaults["callbacks"] = [
            self.settled,
            self.record,
            Health(cfg.log_every),
            ValidationLines(),
            *bar,
            checkpoints,
            Interruption(checkpoints),
        ]
        try:
            with naming_trainer():
                trainer = super().instantiate_trainer(
                    # Lightning would make one epoch of null where min_steps is given, which nobody asked for.
                    min_epochs=cfg.trainer.min_epochs or 0,
                    logger=[logger, *own],
                    plugins=plugins,
                    default_root_dir=str(self.directory.path),
                    **kwargs,
                )
                check_precision(cfg.trainer.precision, trainer)
                return trainer
        except InputError:
            self._leave_nothing_half_made()
            raise

    def _take_directory(self) -> None:
        """Make the run directory and lock it, where that was not possible before."""
        self.made = self.directory.create()
        if not self._locked:
            self._lock()
            if self._locked and self.directory.has_run():
                raise InputError(f"--run_dir {self.directory.path}: another process has begun a run there")

    def _effective_config(self) -> str:
        """The configuration as YAML; running from it repeats the run."""
        cfg = self.cfg.clone()
        for key in ("run_dir", "resume", "ckpt_path", "config", "trust"):
            cfg.pop(key, None)
        cfg.trainer.val_check_interval = None  # follows from val_every
        return str(self._parser("fit").dump(cfg, skip_none=False, skip_validation=True))

    # -- commands ------------------------------------------------------------------------------------------

    def fit(self, model: LanguageModel, datamodule: TextData, **kwargs: Any) -> None:
        """Train, score the test split, leave the summary; a diverged run leaves one too."""
        path = None
        if self.start is not None:
            path = str(self.start.path)
            rank_zero_only(print)(f"going on from {path} (step {self.start.step})", flush=True)
        elif self.directory.has_run():
            rank_zero_only(print)(
                f"{self.directory.path} holds a run without a checkpoint: it begins again at step 0, with the values "
                "given now",
                flush=True,
            )
        self.settled.note(self.trainer, model, datamodule)
        try:
            self.trainer.fit(model, datamodule=datamodule, ckpt_path=path)
            self.record.begin(self.trainer, model)
            self.record.score_validation(self.trainer, model)
        except Diverged:
            self.record.finish(self.trainer, model, "diverged", {})
            raise
        except (InputError, OSError, UnicodeEncodeError):
            self._leave_nothing_half_made()
            raise
        except MisconfigurationException as error:  # from a callback's own checks
            self._leave_nothing_half_made()
            raise InputError(f"--trainer: {' '.join(str(error).split())}") from error
        status = "finished" if self.trainer.global_step >= model.horizon else "stopped"
        tests = self.record.score_tests(self.trainer, model) if self.cfg.test_after_fit else {}
        self.record.finish(self.trainer, model, status, tests)

    def _leave_nothing_half_made(self) -> None:
        if self.record.started or self.start is not None or getattr(rank_zero_only, "rank", 0) != 0:
            return
        self._until_the_end.close()  # the lock lies in the folder
        if self.directory.path in self.made:
            (self.directory.path / LOCK_FILE).unlink(missing_ok=True)
        for folder in reversed(self.made):
            with suppress(OSError):
                folder.rmdir()

    def before_validate(self) -> None:
        """Say which weights are evaluated, and under which schedule."""
        rank_zero_only(print)(f"evaluating {self.adopted.words}", flush=True)

    before_test = before_validate

    def after_validate(self) -> None:
        """Print every figure in full; say what of another text the weights were trained on."""
        for name, value in self.model.figures.items():
            rank_zero_only(print)(f"  {name:36} {value:.10g}", flush=True)
        for warning in self.adopted.warnings(self.datamodule, SPLITS[next(iter(self.model.scores))]):
            rank_zero_only(say)(f"warning: {warning}")

    after_test = after_validate


class _Bar(TQDMProgressBar):
    """Without the logger's version, which is the run's name."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What stands behind the bar."""
        found = super().get_metrics(trainer, pl_module)
        return {name: value for name, value in found.items() if name != "v_num"}


@in_one_line
def main(args: list[str] | None = None) -> int:
    """Run a training command; the exit status (0 finished, 2 wrong use, 3 diverged, 130/143 interrupted)."""
    _quiet()
    try:
        with ExitStack() as until_the_end:
            TrainingCLI(args, until_the_end)
    except AlreadyFinished as done:
        print(done)
        return done.exit_code
    except InputError as error:
        fail(str(error))
    except Diverged as error:
        print(f"diverged: {error}; the last good checkpoint is kept", file=sys.stderr)
        return 3
    except Interrupted as error:
        print(f"{error}; go on with the same command and --resume auto", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted before the first step was saved; nothing to go on from is lost", file=sys.stderr)
        return 130
    except SystemExit as end:
        # Lightning makes status 1 of an interrupt, and says nothing.
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _plain_enum(dumper: yaml.SafeDumper, value: Enum) -> yaml.Node:
    return dumper.represent_data(value.value)


# Defaults of a user's callbacks may be members of an enumeration, which YAML has no form for.
yaml.SafeDumper.add_multi_representer(Enum, _plain_enum)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _quiet() -> None:
    """Keep the terminal for what the run has to say."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.fabric.utilities.seed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*TreeSpec.*",
        ".*args parameter is intended.*",
        ".*sync_dist=True.*",
        ".*callbacks used to create the checkpoint need.*",  # which may differ, `ilr.runs.resume` has seen to
        ".*Detected call of `lr_scheduler.step.*",  # the gradient scaler has left out the first update
    ):
        warnings.filterwarnings("ignore", message)
