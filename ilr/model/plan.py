"""Which layers run, in what order, how often and with which weights; no torch.

A schedule (segments) and a sharing (a bank index per layer) compile into a plan: an ordered tuple of
visits. Everything else about a model's execution is derived from the plan.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ilr.bounds import MOST_LAYERS, MOST_VISITS, check_count, is_integer, shown
from ilr.errors import InputError
from ilr.model.config import Injection
from ilr.model.sharing import Sharing, read_sharing

Sublayers = Literal["both", "attention", "ffn"]

SCHEDULE_EXAMPLES = (
    "a list with one count per layer such as [3,2,1,1], or segments such as [{layers: [1,2], times: 4}]"
)


@dataclass(frozen=True)
class Segment:
    """Layers applied in this order, the whole run repeated `times` times.

    ``sublayers`` says which half of each layer runs: both, or the attention or feed-forward alone.
    """

    layers: tuple[int, ...]
    times: int = 1
    sublayers: Sublayers = "both"

    def __post_init__(self) -> None:
        if isinstance(self.layers, str | bytes) or not isinstance(self.layers, Sequence) or not self.layers:
            raise InputError(
                f"layers of a segment must be a non-empty list such as [1,2], got {shown(self.layers)}"
            )
        for layer in self.layers:
            if not is_integer(layer) or layer < 0:
                raise InputError(
                    f"a layer must be a whole number from 0, got {shown(layer)} in {shown(list(self.layers))}"
                )
        if not is_integer(self.times) or self.times < 1:
            raise InputError(
                f"times must be a whole number of at least 1, got {shown(self.times)} "
                f"for layers {shown(list(self.layers))}"
            )
        if self.sublayers not in ("both", "attention", "ffn"):
            raise InputError(f"sublayers must be both, attention or ffn, got {shown(self.sublayers)}")
        object.__setattr__(self, "layers", tuple(self.layers))

    @property
    def label(self) -> str:
        """File-name-safe name: ``1``, ``(1-2)x4``, ``1ax2`` (attention half), ``1f`` (feed-forward half)."""
        layers = "-".join(map(str, self.layers))
        run = layers if len(self.layers) == 1 else f"({layers})"
        half = {"both": "", "attention": "a", "ffn": "f"}[self.sublayers]
        return f"{run}{half}" + (f"x{self.times}" if self.times > 1 else "")


class Visit(NamedTuple):
    """One application of one layer: where it comes from (layer, iteration) and what runs (the rest).

    ``attention`` and ``ffn`` are bank indices, None where that half is skipped; ``slot`` is where the
    visit's keys and values are kept, None without attention.
    """

    layer: int
    iteration: int
    attention: int | None
    ffn: int | None
    slot: int | None


class Pass(NamedTuple):
    """One repetition of a segment: which segment, which repetition (from 0), and its visits."""

    segment: int
    repetition: int
    visits: tuple[Visit, ...]


@dataclass(frozen=True)
class Plan:
    """Compiled visits of a schedule under a sharing; make one with `make_plan`."""

    segments: tuple[Segment, ...]
    sharing: Sharing

    def __post_init__(self) -> None:
        _check_depth(self.segments)
        for segment in self.segments:
            for layer in segment.layers:
                if layer >= self.num_layers:
                    raise InputError(
                        f"schedule names layer {shown(layer)}, but there are {self.num_layers} layers "
                        f"(0 to {self.num_layers - 1})"
                    )

    def passes(self) -> tuple[Pass, ...]:
        """The visits grouped by repetition: where an iteration of a segment begins and ends."""
        return self._passes

    @cached_property
    def _passes(self) -> tuple[Pass, ...]:
        iterations = [0] * self.num_layers
        slot = 0
        passes = []
        for number, segment in enumerate(self.segments):
            for repetition in range(segment.times):
                visits = []
                for layer in segment.layers:
                    attends = segment.sublayers != "ffn"
                    visits.append(
                        Visit(
                            layer=layer,
                            iteration=iterations[layer],
                            attention=self.sharing.attention[layer] if attends else None,
                            ffn=self.sharing.ffn[layer] if segment.sublayers != "attention" else None,
                            slot=slot if attends else None,
                        )
                    )
                    iterations[layer] += 1
                    slot += attends
                passes.append(Pass(number, repetition, tuple(visits)))
        return tuple(passes)

    @cached_property
    def visits(self) -> tuple[Visit, ...]:
        """All visits in the order in which they run."""
        return tuple(visit for one in self._passes for visit in one.visits)

    @cached_property
    def operands(self) -> tuple[tuple[int | None, int | None, int | None], ...]:
        """(attention, ffn, slot) of each visit: equal operands are the same function, but for injection
        (`computation`).
        """
        return tuple((visit.attention, visit.ffn, visit.slot) for visit in self.visits)

    @cached_property
    def injections(self) -> tuple[tuple[int, int], ...]:
        """(visit, start): where a config injects, the state before visit ``start`` is added before ``visit``."""
        pairs, visit, start = [], 0, 0
        for one in self._passes:
            if one.repetition == 0:
                start = visit
            else:
                pairs.append((visit, start))
            visit += len(one.visits)
        return tuple(pairs)

    def computation(self, injection: Injection) -> tuple[Any, ...]:
        """What decides the function, however the schedule is spelt: the operands and, where states are injected,
        which before which visits. Plans of equal operands differ there by their passes.
        """
        return self.operands if injection == "none" else (self.operands, self.injections)

    @property
    def num_layers(self) -> int:
        """Layers that the schedule may name."""
        return self.sharing.num_layers

    @property
    def depth(self) -> int:
        """Number of visits: the effective depth."""
        return len(self.visits)

    @cached_property
    def num_slots(self) -> int:
        """Visits with attention: each keeps its own keys and values."""
        return sum(visit.slot is not None for visit in self.visits)

    @cached_property
    def runs_of_banks(self) -> dict[Literal["attention", "ffn"], Counter[int]]:
        """How often each attention and each feed-forward runs, by bank index; those that never run are absent."""
        return {
            "attention": Counter(visit.attention for visit in self.visits if visit.attention is not None),
            "ffn": Counter(visit.ffn for visit in self.visits if visit.ffn is not None),
        }

    @cached_property
    def times_per_layer(self) -> tuple[int, ...]:
        """How often each layer is visited; 0 for a layer that no segment names."""
        times = Counter(visit.layer for visit in self.visits)
        return tuple(times[layer] for layer in range(self.num_layers))

    @property
    def short_form(self) -> tuple[int, ...] | None:
        """Times per layer where the schedule is one one-layer segment per layer in order, else None."""
        plain = tuple(Segment((layer,), s.times) for layer, s in enumerate(self.segments))
        return (
            tuple(s.times for s in self.segments)
            if plain == self.segments and len(plain) == self.num_layers
            else None
        )

    @property
    def schedule(self) -> list[int] | list[dict[str, Any]]:
        """The schedule as plain data, short where it can be: `make_plan` reads it back."""
        if self.short_form is not None:
            return list(self.short_form)
        return [{"layers": list(s.layers), "times": s.times, "sublayers": s.sublayers} for s in self.segments]

    @property
    def label(self) -> str:
        """File-name-safe name: ``3-2-1-1``, ``0_(1-2)x4_3``, then ``+attention`` where weights are shared."""
        if self.short_form is not None:
            schedule = "-".join(map(str, self.short_form))
        else:
            schedule = "_".join(segment.label for segment in self.segments)
        return schedule if self.sharing.name == "none" else f"{schedule}+{self.sharing.name}"

    def table(self) -> str:
        """The visits as fixed-width text, one line each."""
        rows: list[tuple[str, ...]] = [("visit", "layer", "iteration", "attention", "ffn", "slot")]
        for number, visit in enumerate(self.visits):
            rows.append((str(number), *("-" if value is None else str(value) for value in visit)))
        return "\n".join("  ".join(f"{cell:>9}" for cell in row) for row in rows)


def make_plan(
    schedule: Sequence[Any],
    num_layers: int | None = None,
    sharing: str | Mapping[str, Any] | Sharing = "none",
) -> Plan:
    """Compile a schedule and a sharing.

    ``schedule`` is times per layer (``[3, 2, 1, 1]``) or segments (`Segment`, or mappings with the same
    keys). ``num_layers`` defaults to the entries of the short form, or to the largest layer named plus one.
    ``sharing`` is a name or bank indices per layer, ``{"attention": [0, 0], "ffn": [0, 1]}``.

    Raises `InputError` (a ValueError) that says what came and what is allowed.
    """
    if num_layers is not None:
        check_count("num_layers", num_layers, MOST_LAYERS)
    segments = _segments(schedule, num_layers)
    _check_depth(segments)
    if num_layers is None:
        num_layers = 1 + max(layer for segment in segments for layer in segment.layers)
        if num_layers > MOST_LAYERS:
            raise InputError(
                f"schedule names layer {shown(num_layers - 1)}: a layer must be below {MOST_LAYERS:,}"
            )
    return Plan(segments, read_sharing(sharing, num_layers))


def _check_depth(segments: Sequence[Segment]) -> None:
    """Refuse more visits than are worked with, before any is made."""
    depth = sum(len(segment.layers) * segment.times for segment in segments)
    if depth > MOST_VISITS:
        raise InputError(
            f"schedule has {shown(depth)} visits, at most {MOST_VISITS:,} can be listed; for example [3,2,1,1] has 7"
        )


def _segments(schedule: Sequence[Any], num_layers: int | None) -> tuple[Segment, ...]:
    if isinstance(schedule, str | bytes | Mapping) or not isinstance(schedule, Sequence):
        raise InputError(f"schedule must be {SCHEDULE_EXAMPLES}; got {shown(schedule)}")
    if not schedule:
        raise InputError(f"schedule is empty; it must be {SCHEDULE_EXAMPLES}")
    if any(isinstance(entry, Segment | Mapping) for entry in schedule):
        return tuple(_segment(entry, schedule) for entry in schedule)
    for entry in schedule:
        if not is_integer(entry) or entry < 1:
            raise InputError(
                f"schedule entries must be whole numbers of at least 1, got {shown(entry)} in {shown(list(schedule))}; "
                "for example [3,2,1,1]"
            )
    if num_layers is not None and len(schedule) != num_layers:
        raise InputError(
            f"schedule must have one entry per layer: got {len(schedule)} entries {shown(list(schedule))} "
            f"for num_layers {num_layers}"
        )
    return tuple(Segment((layer,), times) for layer, times in enumerate(schedule))


def _segment(entry: object, schedule: Sequence[Any]) -> Segment:
    if isinstance(entry, Segment):
        return entry
    if not isinstance(entry, Mapping):
        raise InputError(
            f"schedule mixes counts and segments: {shown(list(schedule))}; it must be {SCHEDULE_EXAMPLES}"
        )
    unknown = sorted(set(entry) - {"layers", "times", "sublayers"}, key=str)
    if unknown or "layers" not in entry:
        wrong = f"unknown key {shown(unknown[0])}" if unknown else "no key 'layers'"
        raise InputError(
            f"a segment has the keys layers, times and sublayers; got {wrong} in {shown(dict(entry))}"
        )
    return Segment(**entry)
