"""The sweep file as typed data: what a user wrote, checked key by key. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ilr.bounds import LARGEST_FLOAT32, LARGEST_SEED, shown
from ilr.errors import InputError
from ilr.files.plain_yaml import read_mapping
from ilr.files.readers import validated
from ilr.model.anchors import KINDS, AnchorKind
from ilr.runs.options import Options
from ilr.runs.schema import ArmTree, SweepTree
from ilr.sweep.generators import FAMILIES, Family
from ilr.sweep.settings import checked_overrides

HeldEqual = Literal["tokens", "flops"]
KEYS = ("base", "set", "arms", "seeds", "held_equal", "baseline", "learning_rates", "anchors")
ARM_KEYS = (
    "schedule",
    "schedules",
    "generate",
    "depth",
    "sublayers",
    "sharing",
    "positions",
    "injection",
    "set",
    "anchors",
)

EXAMPLE = """\
base: ../demo.yaml                # training configuration(s), relative to this file
set: {trainer.max_steps: 500}     # options of every run
seeds: [0, 1, {init: 2, data: 7}] # one number for weights and order of the data, or one each
held_equal: flops                 # tokens (default), or training FLOPs: those of the baseline, by max_steps
baseline: 1-1-1-1                 # label of an arm; default: the first all-ones schedule
learning_rates: [1.0e-3, 3.0e-3]  # each tried in every arm, chosen on validation
anchors: [deeper, wider]          # of every arm: also parameters, widened; an arm's own list goes before
arms:
  - [1, 1, 1, 1]                  # a schedule
  - {schedule: [{layers: [0, 1, 2, 3], times: 2}], injection: [none, add]}  # a list makes an arm of each
  - schedules: [[2, 1, 1, 1], [1, 1, 1, 2]]
    positions: [rope, alibi]
    set: {model.dropout: 0.1}     # any other option
  - schedule: [1, 1, 1, 1]
    sharing: [attention, {groups: 2}, {attention: [0, 1, 1, 2], ffn: [0, 0, 0, 0]}]  # or: every
    anchors: [widened]
  - {generate: all, depth: 6}     # every schedule of six visits; early, late, uniform: the monotone ones
  - {generate: extra, sublayers: attention}  # one more visit of each layer in turn: both, attention, ffn
"""


@dataclass(frozen=True, order=True)
class Seeds:
    """Where a run's randomness starts: weights and dropout (init), order of the data (data)."""

    init: int
    data: int

    @property
    def label(self) -> str:
        """``s0``, or ``s0-d1`` where the data's seed is another."""
        return f"s{self.init}" if self.init == self.data else f"s{self.init}-d{self.data}"


@dataclass(frozen=True)
class Entry:
    """One item of ``arms``: its schedules times its sharings, positions and injections.

    An empty tuple leaves that choice to the base configuration. ``generate`` names a family of schedules
    instead of a list; ``sharings`` may be the word every.
    """

    schedules: tuple[Any, ...] = ()
    generate: Family | None = None
    depth: int | None = None
    sublayers: Literal["both", "attention", "ffn"] = "both"
    sharings: tuple[Any, ...] = ()
    positions: tuple[str, ...] = ()
    injections: tuple[str, ...] = ()
    overrides: Options = field(default_factory=dict)
    anchors: tuple[AnchorKind, ...] | None = None


@dataclass(frozen=True)
class SweepFile:
    """A whole sweep as written. ``base``: training configurations; ``overrides``: options of every run."""

    path: Path
    base: tuple[Path, ...]
    arms: tuple[Entry, ...]
    seeds: tuple[Seeds, ...] = (Seeds(0, 0),)
    overrides: Options = field(default_factory=dict)
    held_equal: HeldEqual = "tokens"
    baseline: str | None = None
    learning_rates: tuple[float, ...] = ()
    anchors: tuple[AnchorKind, ...] = ()


def read_sweep(path: Path) -> SweepFile:
    """Read a sweep file; raises `InputError` that names the file and the key."""
    tree = read_mapping(path, "sweep file")
    _check_keys(tree, KEYS, f"{path}")
    validated(tree, SweepTree, path)
    for needed in ("base", "arms"):
        if not tree.get(needed):
            raise InputError(f"{path}: the key {needed!r} is missing; a sweep has {', '.join(KEYS)}")
    if not isinstance(tree["arms"], list):
        raise InputError(f"{path}: arms is a list, got {tree['arms']!r}")
    held_equal = tree.get("held_equal", "tokens")
    if held_equal not in get_args(HeldEqual):
        raise InputError(f"{path}: held_equal is tokens or flops, got {held_equal!r}")
    return SweepFile(
        path=path,
        base=tuple(path.parent / str(name) for name in _listed(tree["base"])),
        arms=tuple(_entry(item, f"{path}: arms[{number}]") for number, item in enumerate(tree["arms"])),
        seeds=_seeds(tree.get("seeds", [0]), f"{path}: seeds"),
        overrides=checked_overrides(tree.get("set") or {}, f"{path}: set"),
        held_equal=held_equal,
        baseline=None if tree.get("baseline") is None else str(tree["baseline"]),
        learning_rates=_learning_rates(tree.get("learning_rates") or [], f"{path}: learning_rates"),
        anchors=_anchors(tree.get("anchors") or [], f"{path}: anchors"),
    )


def _entry(item: object, where: str) -> Entry:
    if isinstance(item, list):
        return Entry(schedules=(item,))
    if not isinstance(item, Mapping):
        raise InputError(
            f"{where}: an arm is a schedule or a mapping with {', '.join(ARM_KEYS)}; got {item!r}"
        )
    _check_keys(item, ARM_KEYS, where)
    validated(item, ArmTree, where)
    if sum(key in item for key in ("schedule", "schedules", "generate")) > 1:
        raise InputError(f"{where}: give one of schedule, schedules and generate")
    if item.get("generate") not in (None, *FAMILIES):
        raise InputError(f"{where}: generate is one of {', '.join(FAMILIES)}; got {item['generate']!r}")
    alone = [key for key in ("depth", "sublayers") if key in item and "generate" not in item]
    if alone:
        raise InputError(f"{where}: {alone[0]} belongs to generate")
    if item.get("sublayers", "both") not in ("both", "attention", "ffn"):
        raise InputError(f"{where}: sublayers is both, attention or ffn; got {item['sublayers']!r}")
    schedules = (
        item["schedules"]
        if item.get("schedules") is not None
        else [item["schedule"]]
        if "schedule" in item
        else []
    )
    if not isinstance(schedules, list):
        raise InputError(f"{where}: schedules is a list of schedules, got {schedules!r}")
    return Entry(
        schedules=tuple(schedules),
        generate=item.get("generate"),
        depth=item.get("depth"),
        sublayers=item.get("sublayers", "both"),
        sharings=tuple(_listed(item.get("sharing"))),
        positions=tuple(_listed(item.get("positions"))),
        injections=tuple(_listed(item.get("injection"))),
        overrides=checked_overrides(item.get("set") or {}, f"{where}: set"),
        anchors=_anchors(item["anchors"] or [], f"{where}: anchors") if "anchors" in item else None,
    )


def _seeds(value: object, where: str) -> tuple[Seeds, ...]:
    seeds = []
    for seed in _listed(value):
        pair = {"init": seed, "data": seed} if not isinstance(seed, Mapping) else seed
        numbers = [pair.get("init"), pair.get("data")]
        if set(pair) != {"init", "data"} or not all(
            type(n) is int and 0 <= n <= LARGEST_SEED for n in numbers
        ):
            raise InputError(
                f"{where}: a seed is a whole number up to {LARGEST_SEED:,} or "
                f"{{init: 0, data: 1}}, got {shown(seed)}"
            )
        seeds.append(Seeds(**pair))
    if not seeds:
        raise InputError(f"{where}: at least one seed is needed")
    return tuple(dict.fromkeys(seeds))


def _learning_rates(value: object, where: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(rate) for rate in _listed(value))  # YAML reads 3e-3 as text
    except (TypeError, ValueError):
        rates = (0.0,)
    if not all(0 < rate <= LARGEST_FLOAT32 for rate in rates):
        raise InputError(f"{where}: a list of finite numbers above 0 is needed, got {shown(value)}")
    return tuple(sorted(set(rates)))


def _anchors(value: object, where: str) -> tuple[AnchorKind, ...]:
    for kind in _listed(value):
        if kind not in KINDS:
            raise InputError(f"{where}: an anchor is one of {', '.join(KINDS)}; got {kind!r}")
    return tuple(dict.fromkeys(_listed(value)))


def _check_keys(tree: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in tree:
        if key not in known:
            raise InputError(f"{where}: unknown key {key!r}; the keys are {', '.join(known)}")


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]
