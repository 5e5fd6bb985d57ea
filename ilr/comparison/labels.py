"""Names that tell arms apart where their labels alone do not."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ilr.comparison.runs import CONFIG, Run
from ilr.errors import InputError
from ilr.files.plain_yaml import read_mapping

# In this order the first that differ are named: what people vary, the options as they were given, and
# what remains.
_FIRST = ("learning_rate", "positions", "injection")
_LAST = ("parameters", "tokens", "precision", "tokenizer_hash", "corpus_hash", "config_hash", "operands")
_LONGEST = 16

SAID_ELSEWHERE = ("operands", "text")

# Options that are no setting of the arm, or stand in the label already.
_UNNAMED = (
    "seed",
    "seed_everything",
    "run_dir",
    "resume",
    "schedule",
    "sharing",
    "cache_dir",
    "num_workers",
    "eval_batch_size",
)


def unique_labels(runs: Sequence[Run]) -> list[str]:
    """A label for each of these runs of different arms: its own, with what differs in brackets if needed."""
    namesakes: dict[str, list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        namesakes[run.label].append(i)
    labels = [run.label for run in runs]
    for label, members in namesakes.items():
        if len(members) > 1:
            for i, difference in zip(members, _differences([runs[i] for i in members]), strict=True):
                labels[i] = f"{label} [{difference}]"
    return labels


def _differences(runs: Sequence[Run]) -> list[str]:
    """The settings in which these runs differ, as few as tell all of them apart."""
    named: list[list[str]] = [[] for _ in runs]
    for name, values in _settings(runs):
        before = len(set(map(tuple, named)))
        extended = [[*parts, f"{name}={_short(value)}"] for parts, value in zip(named, values, strict=True)]
        if len(set(map(tuple, extended))) > before:
            named = extended
        if len(set(map(tuple, named))) == len(runs):
            break
    return [", ".join(parts) for parts in named]


def _settings(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    """Each setting by name, with its value in every run; the files of options are read only when reached."""
    for name in _FIRST:
        yield name, [_text(run, name) for run in runs]
    options = [_options(run) for run in runs]
    for name in sorted({name for chosen in options for name in chosen}):
        last = name.rsplit(".", 1)[-1]
        if last not in _UNNAMED and not last.endswith("_seed"):
            yield last, [chosen.get(name, "none") for chosen in options]
    for name in _LAST:
        yield name, [_text(run, name) for run in runs]


def _text(run: Run, name: str) -> str:
    value = getattr(run, name)
    return value if isinstance(value, str) else json.dumps(value)


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else hashlib.sha256(value.encode()).hexdigest()[:8]


def _options(run: Run) -> dict[str, str]:
    """The options that a run was started with, flat (`model.width`) and as text; none if unreadable."""
    if run.identity is not None:
        return {name: str(value) for name, value in run.identity.items() if name not in SAID_ELSEWHERE}
    try:
        return dict(_flat("", read_mapping(run.path / CONFIG, "configuration")))
    except InputError:
        return {}


def _flat(prefix: str, tree: object) -> Iterator[tuple[str, str]]:
    if not isinstance(tree, dict):
        yield prefix, str(tree)
        return
    for key, value in tree.items():
        yield from _flat(f"{prefix}.{key}" if prefix else str(key), value)
