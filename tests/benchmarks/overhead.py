"""What a training command adds to each step over the bare loop.

    python tests/benchmarks/overhead.py [--rounds 5] [--steps 400] [--width 32] [--context 64]

Trains configs/demo.yaml with a small model through `TrainingCLI`: progress bar, TensorBoard, callbacks, the
demonstration's logged interval; validations and checkpoints lie beyond the last timed step, as they have
their own intervals. The bare loop has the same decoder, batches, clipping, AdamW, learning rate and number
of steps, in the same process; the two take turns. A round's time per step is the mean from the 21st step to
the last but one. Given are medians over rounds with quartiles, by the wall clock and, for a machine with other
work, in processor time (with OMP_NUM_THREADS=1: waiting threads take time too); and the largest difference of
the two losses of the last logged interval, which shows that both did the same.
"""

import argparse
import cProfile
import json
import logging
import pstats
import shlex
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR

from ilr.commands.train import TrainingCLI
from ilr.data import TextData
from ilr.model.decoder import Decoder
from ilr.training.module import LanguageModel
from ilr.training.optimiser import learning_rate_factor, parameter_groups

CONFIG = Path(__file__).parent.parent.parent / "configs" / "demo.yaml"
WARM = 20
LOGGED = 10


def now() -> np.ndarray:
    """Seconds of the wall clock, and of processor time of this process."""
    return np.array([time.perf_counter(), time.process_time()])


class Clock(L.Callback):
    """Times the steps between the warm-up and the last."""

    def __init__(self, steps: int, profile: cProfile.Profile | None) -> None:
        self.steps, self.profile = steps, profile
        self.begun = self.seconds = np.zeros(2)

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, batch_idx: int) -> None:
        """Start after the warm-up, stop before the last step."""
        if trainer.global_step == WARM:
            self.begun = now()
            if self.profile is not None:
                self.profile.enable()
        elif trainer.global_step == self.steps - 1:
            self.seconds = now() - self.begun
            if self.profile is not None:
                self.profile.disable()


class TimedCLI(TrainingCLI):
    """The training command with a clock."""

    clock: Clock

    def fit(self, model: LanguageModel, datamodule: TextData, **kwargs: Any) -> None:
        """Train under the clock."""
        self.trainer.callbacks.append(self.clock)  # type: ignore[attr-defined]
        super().fit(model, datamodule, **kwargs)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--log_every", type=int, default=LOGGED)
    parser.add_argument("--cache", help="prepared data are kept here instead of being made anew")
    parser.add_argument("--profile", action="store_true", help="print what the command's steps spend")
    parser.add_argument("--options", default="", help="more options of the command, in one word")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # the trainer's own lines
    profile = cProfile.Profile() if options.profile else None
    times: dict[str, list[np.ndarray]] = {"bare loop": [], "train_lm.py fit": []}
    apart = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds + 1):
            clock = Clock(options.steps, profile if number else None)
            cli, logged = command(options, Path(folder) / f"run-{number}", folder, clock)
            seconds, loss = bare(cli, options.steps)
            apart = max(apart, abs(loss - logged))
            if number:  # the first round warms up
                per_step = 1000 / (options.steps - 1 - WARM)
                times["train_lm.py fit"].append(clock.seconds * per_step)
                times["bare loop"].append(seconds * per_step)
    times["added"] = [ours - bare for bare, ours in zip(*times.values(), strict=True)]
    for clock_name, column in (("wall clock", 0), ("processor time", 1)):
        print(f"ms/step, {clock_name}")
        for name, values in times.items():
            low, middle, high = np.quantile([value[column] for value in values], [0.25, 0.5, 0.75])
            goal = f"  (at most 3: {'met' if high <= 3 else 'MISSED'})" if name == "added" else ""
            print(f"  {name:<16} {middle:7.2f}  [{low:.2f}, {high:.2f}]{goal}")
    print(f"largest difference of the losses {apart:.2g}")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


def command(options: argparse.Namespace, run: Path, folder: str, clock: Clock) -> tuple[TimedCLI, float]:
    """The finished training, and the loss of its last whole logged interval."""
    beyond = str(options.steps + 1)
    words = {
        "--config": str(CONFIG),
        "--run_dir": str(run),
        "--data.cache_dir": options.cache or f"{folder}/cache",
        "--data.max_eval_tokens": "20000",
        "--model.context": str(options.context),
        "--model.width": str(options.width),
        "--trainer.max_steps": str(options.steps),
        "--val_every": beyond,
        "--save_every": beyond,
        "--log_every": str(options.log_every),
        "--test_after_fit": "false",
        "--trainer.accelerator": "cpu",
    }
    TimedCLI.clock = clock
    with open("/dev/null", "w") as null, redirect_stdout(null), redirect_stderr(null):
        cli = TimedCLI(
            ["fit", *(word for pair in words.items() for word in pair), *shlex.split(options.options)]
        )
    points = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    last = [point for point in points if "train/loss" in point and point["step"] % options.log_every == 0][-1]
    return cli, float(last["train/loss"])


def bare(cli: TimedCLI, steps: int) -> tuple[np.ndarray, float]:
    """Seconds of the timed steps, and the mean loss of the last whole logged interval."""
    model, every = cli.model, cli.cfg.log_every
    decoder = Decoder(model.config, model.plan, init_seed=model.init_seed)
    groups = parameter_groups(decoder, model.weight_decay, model.repeated_weight_decay, model.decay_norms)
    optimiser = torch.optim.AdamW(
        groups, lr=model.learning_rate, betas=model.betas, eps=model.adam_eps, fused=True
    )
    warmup = round(model.warmup_ratio * steps)
    factor = learning_rate_factor(model.lr_schedule, warmup, steps + model.extra_steps, model.min_lr_ratio)
    scheduler = LambdaLR(optimiser, factor)
    losses = torch.zeros(steps, dtype=torch.float64)
    loader = cli.datamodule._train_loader()
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "position": 0})
    begun = seconds = np.zeros(2)
    for step, batch in zip(range(steps), loader, strict=False):
        if step == WARM:
            begun = now()
        elif step == steps - 1:
            seconds = now() - begun
        loss = decoder.nll_sum(batch["inputs"], batch["targets"]) / batch["targets"].numel()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimiser.step()
        scheduler.step()
        losses[step] = loss.detach()
    end = steps // every * every
    return seconds, float(losses[end - every : end].mean())


if __name__ == "__main__":
    main()
