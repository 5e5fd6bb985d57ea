"""Runs of one configuration are an arm; its runs differ by their seeds alone."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ilr.comparison.labels import unique_labels
from ilr.comparison.runs import Run, Seeds
from ilr.errors import InputError

# What makes two runs the same configuration where the run's identity is not known: of older runs, without their
# configuration beside. What a run spent comes last: a diverged run stopped early and is found by the rest.
SETTINGS = (
    "operands",
    "learning_rate",
    "positions",
    "injection",
    "parameters",
    "flops_per_token",
    "precision",
    "tokenizer_hash",
    "corpus_hash",
    "config_hash",
    "tokens",
)


@dataclass(frozen=True)
class Arm:
    """The runs of one effective configuration, by seed. `label` is unique within a comparison."""

    label: str
    runs: dict[Seeds, Run]

    @property
    def first(self) -> Run:
        """The run that stands for what all runs of the arm have in common."""
        return next(iter(self.runs.values()))

    @property
    def diverged(self) -> tuple[Seeds, ...]:
        """The seeds without a result: an arm that has any is not ranked."""
        return tuple(seeds for seeds, run in self.runs.items() if run.status == "diverged")


def group(runs: Iterable[Run]) -> tuple[list[Arm], list[Path]]:
    """Arms in order of their first run, and the runs left out because they repeat another one's seeds.

    Schedule and sharing count by their operands: two spellings of one function are one arm. Arms of the
    same label get the settings that tell them apart behind it.
    """
    by_settings: dict[tuple[str, ...], dict[Seeds, Run]] = defaultdict(dict)
    repeated = []
    for run in sorted(runs, key=lambda run: run.status == "diverged"):
        settings = _settings(run)
        if run.status == "diverged":
            settings = next((other for other in by_settings if other[:-1] == settings[:-1]), settings)
        seeds_seen = by_settings[settings]
        if run.seeds in seeds_seen:
            repeated.append(run.path)
        else:
            seeds_seen[run.seeds] = run
    members = [dict(sorted(seeds_seen.items())) for seeds_seen in by_settings.values()]
    labels = unique_labels([next(iter(runs_of_arm.values())) for runs_of_arm in members])
    return [Arm(label, runs_of_arm) for label, runs_of_arm in zip(labels, members, strict=True)], repeated


def choose_baseline(arms: Sequence[Arm], label: str | None) -> Arm:
    """The arm that the others are measured against: as asked, else the plain model, else the first.

    The plain model is the all-ones schedule without sharing. Where several are (anchors are all-ones
    too), it is the one whose parameter count most arms have.
    """
    if label is not None:
        return _named(arms, label)
    ranked = [arm for arm in arms if not arm.diverged]
    same_size = Counter(arm.first.parameters for arm in ranked)
    for pattern in (r"1(-1)*", r"1(-1)*(\+(alibi|learned|nope|gelu))+"):
        plain = [arm for arm in ranked if re.fullmatch(pattern, arm.first.label)]
        if plain:
            return max(plain, key=lambda arm: same_size[arm.first.parameters])
    if not ranked:
        raise InputError("every arm has a diverged seed; there is nothing to rank")
    return ranked[0]


def _named(arms: Sequence[Arm], label: str) -> Arm:
    exact = [arm for arm in arms if arm.label == label]
    named = exact or [arm for arm in arms if arm.first.label == label]
    if len(named) != 1:
        found = "several arms are called" if named else "no arm is called"
        choices = ", ".join(arm.label for arm in named or arms)
        raise InputError(f"--baseline: {found} {label!r}; there are: {choices}")
    if named[0].diverged:
        raise InputError(f"--baseline: {label!r} has a diverged seed and cannot be measured against")
    return named[0]


def _settings(run: Run) -> tuple[str, ...]:
    if run.identity is not None:
        return f"{run.config_hash}", f"{run.tokens}"
    return tuple(json.dumps(getattr(run, name), sort_keys=True) for name in SETTINGS)
