"""From arms to runs: seeds, learning rates, what is held equal, a directory and a command each. No torch."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ilr.errors import InputError
from ilr.model.cost import Cost, cost
from ilr.runs.directory import RunDirectory
from ilr.runs.identity import digest, identity
from ilr.runs.options import Options
from ilr.sweep.arms import Arm, make_arms
from ilr.sweep.file import HeldEqual, Seeds, SweepFile
from ilr.sweep.settings import read_base, steps_of, tokens_of, tokens_per_step
from ilr.sweep.text import planned_text

MOST_RUNS = 20_000
"""Runs of a sweep: arms times seeds times learning rates."""


@dataclass(frozen=True)
class Run:
    """One training of a sweep. ``command`` follows `ilr`; ``mismatch`` is of training FLOPs held equal.

    ``learning_rate`` is None where the sweep leaves it to the configuration.
    """

    name: str
    arm: Arm
    seeds: Seeds
    learning_rate: float | None
    identity: dict[str, Any]
    directory: RunDirectory
    command: tuple[str, ...]
    steps: int | None
    tokens: int | None
    mismatch: float | None = None

    @property
    def key(self) -> str:
        """Digest of the effective configuration: equal for runs that would give the same numbers."""
        return digest(self.identity)

    @property
    def cost(self) -> Cost:
        """What the arm costs at the vocabulary asked for."""
        return cost(self.arm.config, self.arm.plan)

    @property
    def training_flops(self) -> int | None:
        """Of the whole run, where its tokens are known."""
        return None if self.tokens is None else self.tokens * self.cost.flops_per_token


@dataclass(frozen=True)
class Sweep:
    """All runs, and the arms that the file has several times by their effective configuration."""

    file: SweepFile
    directory: Path
    runs: tuple[Run, ...]
    repeated: tuple[str, ...]

    @property
    def records(self) -> Path:
        """Where the sweep keeps its notes on each run; the runs' own directories are the truth."""
        return self.directory / "sweep"

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The distinct arms, in order."""
        return tuple({run.arm.label: run.arm for run in self.runs}.values())


def make_sweep(file: SweepFile, directory: Path) -> Sweep:
    """Every run that a sweep file asks for, equal ones once."""
    base = {**read_base(file.base), **file.overrides}
    arms = [(arm, mismatch) for arm, mismatch in _held_equal(file, make_arms(file, base))]
    if (count := len(arms) * len(file.seeds) * max(1, len(file.learning_rates))) > MOST_RUNS:
        raise InputError(f"{file.path}: {count:,} runs are asked for, a sweep has at most {MOST_RUNS:,}")
    runs: dict[str, Run] = {}
    repeated: dict[str, None] = {}
    for arm, mismatch in arms:
        for rate in file.learning_rates or (None,):
            for seeds in file.seeds:
                run = _run(file, arm, mismatch, rate, seeds, directory)
                first = runs.setdefault(run.key, run).arm
                if first is not arm:
                    also = "" if first.label == arm.label else f" (also called {arm.label})"
                    repeated[first.label + also] = None
    return Sweep(file, directory, tuple(_unique_names(list(runs.values()))), tuple(repeated))


def _held_equal(file: SweepFile, arms: list[Arm]) -> Iterator[tuple[Arm, float | None]]:
    """The arms with their number of steps, and what whole steps leave of the difference in training FLOPs."""
    if file.held_equal == "tokens":
        yield from ((arm, None) for arm in arms)
        return
    baseline = find_baseline(file, arms)
    steps = steps_of(baseline.options)
    if steps is None:
        raise InputError(f"{file.path}: held_equal: flops needs trainer.max_steps in the base or in set")
    target = steps * _flops_per_step(baseline)
    for arm in arms:
        if "trainer.max_steps" in arm.overrides:
            raise InputError(
                f"{file.path}: arm {arm.label} sets trainer.max_steps, held_equal: flops does too"
            )
        own = max(1, round(target / _flops_per_step(arm)))
        options = {**arm.options, "trainer.max_steps": own}
        yield replace(arm, options=options), own * _flops_per_step(arm) / target - 1


def find_baseline(file: SweepFile, arms: list[Arm]) -> Arm:
    """The arm that the file names, else the first unrepeated one that is no anchor, else the first."""
    if file.baseline is not None:
        named = [arm for arm in arms if arm.label == file.baseline]
        if not named:
            labels = ", ".join(arm.label for arm in arms)
            raise InputError(
                f"{file.path}: baseline: no arm is called {file.baseline!r}; there are: {labels}"
            )
        return named[0]
    plain = [arm for arm in arms if arm.plan.label.strip("1-") == "" and not arm.note]
    return (plain or arms)[0]


def _flops_per_step(arm: Arm) -> int:
    return tokens_per_step(arm.options, arm.config) * cost(arm.config, arm.plan).flops_per_token


def _run(
    file: SweepFile, arm: Arm, mismatch: float | None, rate: float | None, seeds: Seeds, directory: Path
) -> Run:
    options = arm.options if rate is None else {**arm.options, "model.learning_rate": rate}
    tried = f"+lr{rate:g}" if rate is not None and len(file.learning_rates) > 1 else ""
    name = f"{arm.label}{tried}-{seeds.label}"
    chosen = {**file.overrides, **arm.overrides}
    if rate is not None:
        chosen["model.learning_rate"] = rate
    if file.held_equal == "flops":
        chosen["trainer.max_steps"] = arm.options["trainer.max_steps"]
    run = Run(
        name=name,
        arm=arm,
        seeds=seeds,
        learning_rate=rate,
        identity=_same(arm, options) | {"seeds": [seeds.init, seeds.data]},
        directory=RunDirectory(directory / name),
        command=(),
        steps=steps_of(options),
        tokens=tokens_of(options, arm.config),
        mismatch=mismatch,
    )
    return replace(run, command=_command(file.base, chosen, file.held_equal, run))


def _same(arm: Arm, options: Options) -> dict[str, Any]:
    return identity(options, planned_text(options), decoder=(arm.config, arm.plan))


def renamed(run: Run, name: str) -> Run:
    """The same run in another directory beside its own."""
    directory = run.directory.path.with_name(name)
    command = list(run.command)
    command[command.index("--run_dir") + 1] = str(directory)
    return replace(run, name=name, directory=RunDirectory(directory), command=tuple(command))


def _command(base: tuple[Path, ...], chosen: Options, held_equal: HeldEqual, run: Run) -> tuple[str, ...]:
    """What follows `ilr` to make or to continue this run by hand."""
    words = ["fit"]
    for path in base:
        words += ["--config", _near(path)]
    for name, value in chosen.items():
        words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    words += ["--seed_everything", str(run.seeds.init)]
    if run.seeds.data != run.seeds.init:
        words += ["--data.seed", str(run.seeds.data)]
    words += ["--held_equal", held_equal, "--run_dir", str(run.directory.path), "--resume", "auto"]
    return tuple(words)


def _near(path: Path) -> str:
    """The path as it is shortest to type from here."""
    relative = os.path.relpath(path)
    return str(path.resolve()) if relative.startswith("..") else relative


def _unique_names(runs: list[Run]) -> Iterator[Run]:
    """Different runs of one name get a piece of their key behind the label."""
    taken = Counter(run.name for run in runs)
    for run in runs:
        if taken[run.name] > 1:
            stem = run.name.removesuffix(f"-{run.seeds.label}")
            same = digest({key: value for key, value in run.identity.items() if key != "seeds"})
            yield renamed(run, f"{stem}+{same[:6]}-{run.seeds.label}")
        else:
            yield run
