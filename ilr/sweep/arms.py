"""From the entries of a sweep file to its arms: one decoder and plan each, anchors included. No torch."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from ilr.errors import InputError
from ilr.model.anchors import KINDS, Anchor, AnchorKind, anchor, can_be_widened, is_unrepeated
from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan
from ilr.model.sharing import Sharing
from ilr.runs.options import Options, decoder_of
from ilr.sweep.file import Entry, SweepFile
from ilr.sweep.generators import banks, generated, sharings

IN_LABEL = ("model.schedule", "model.sharing", "model.positions", "model.injection", "model.ffn")
"""Options that the label of (config, plan) already says."""

MOST_ARMS = 10_000
"""Arms of a sweep, its anchors included: far more than can be trained, few enough to be listed."""

LONGEST = 24
"""Characters of a value that may stand in a name."""


@dataclass(frozen=True)
class Arm:
    """One configuration of a sweep, seeds and learning rate apart.

    ``options`` is everything, ``overrides`` what the arm says over the base; ``note`` says of an anchor what
    it is an anchor of, and how nearly.
    """

    options: Options
    overrides: Options
    config: DecoderConfig
    plan: Plan
    note: str = ""

    @property
    def label(self) -> str:
        """File-name-safe name: schedule, sharing, positions, then each other override."""
        return self.plan.label + self.config.label + "".join(self._others())

    def _others(self) -> Iterator[str]:
        for name, value in sorted(self.overrides.items()):
            if name in IN_LABEL or (name == "model.num_layers" and self.plan.short_form is not None):
                continue
            yield f"+{name.rsplit('.', 1)[-1]}{short(value)}"


def short(value: Any) -> str:
    """A value as a part of a file name: itself where it is short and plain, else a digest of it."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= LONGEST and re.fullmatch(r"[\w.-]+", text):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def make_arms(sweep: SweepFile, base: Options) -> list[Arm]:
    """All arms in the order of the file, each one's anchors behind it; repetitions are still among them."""
    arms: list[Arm] = []
    for number, entry in enumerate(sweep.arms):
        try:
            for overrides in _overrides(entry, base):
                if len(arms) >= MOST_ARMS:
                    raise InputError(
                        f"more than the {MOST_ARMS:,} arms that a sweep has at most are asked for"
                    )
                arm = _arm(base, overrides)
                arms.append(arm)
                kinds = sweep.anchors if entry.anchors is None else entry.anchors
                arms += [_anchor_arm(base, arm, kind) for kind in kinds if _applies(kind, arm.plan)]
        except InputError as error:
            raise InputError(f"{sweep.path}: arms[{number}]: {error}") from None
    return arms


def _overrides(entry: Entry, base: Options) -> Iterator[Options]:
    options = {**base, **entry.overrides}
    num_layers = options.get("model.num_layers", DecoderConfig(vocab_size=1).num_layers)
    if entry.generate is not None:
        schedules: Sequence[Any] = list(generated(entry.generate, num_layers, entry.depth, entry.sublayers))
    else:
        schedules = entry.schedules
    choices = {
        "model.schedule": schedules,
        "model.sharing": [each for one in entry.sharings for each in _sharings(one, num_layers)],
        "model.positions": entry.positions,
        "model.injection": entry.injections,
    }
    given = {name: values for name, values in choices.items() if values}
    if (count := prod(len(values) for values in given.values())) > MOST_ARMS:
        raise InputError(f"{count:,} arms are asked for, a sweep has at most {MOST_ARMS:,}")
    for values in product(*given.values()):
        yield {**dict(zip(given, values, strict=True)), **entry.overrides}


def _sharings(value: Any, num_layers: int) -> list[Any]:
    """The options that a sharing stands for: groups of M by its size, every for all that have a name."""
    if value == "every":
        return sharings(num_layers)
    if isinstance(value, Mapping) and set(value) == {"groups"}:
        return [banks(Sharing.groups(num_layers, value["groups"]))]
    return [value]


def _arm(base: Options, overrides: Options, note: str = "") -> Arm:
    options = {**base, **overrides}
    config, plan = decoder_of(options)
    return Arm(options, overrides, config, plan, note)


def _applies(kind: AnchorKind, plan: Plan) -> bool:
    return can_be_widened(plan) if kind == "widened" else not is_unrepeated(plan)


def _anchor_arm(base: Options, arm: Arm, kind: AnchorKind) -> Arm:
    found = anchor(kind, arm.config, arm.plan)
    return _arm(base, {**arm.overrides, **changes(arm.config, found)}, _note(arm, found))


def changes(config: DecoderConfig, found: Anchor) -> Options:
    """The options that turn the arm's model into its anchor."""
    sharing = found.plan.sharing
    named = sharing.name in ("none", "attention", "ffn", "all")
    options: Options = {
        "model.schedule": found.plan.schedule,
        "model.sharing": sharing.name if named else banks(sharing),
    }
    for name in ("num_layers", "width", "ffn_width", "injection"):
        if getattr(found.config, name) != getattr(config, name):
            options[f"model.{name}"] = getattr(found.config, name)
    return options


def _note(arm: Arm, found: Anchor) -> str:
    return f"for {arm.label}: {KINDS[found.kind]}; mismatch {found.mismatch:+.2%} {found.quantity}"
