"""One step at a time in rotating order; samples in which others used the processor do not count. No torch."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ilr.bench.clock import Reading

TOLERATED = 0.03
"""Share of the machine's processor time that others may use in a clean sample."""
GRAIN = 0.02
"""Seconds by which the machine's count, kept in ticks, may differ from a process's own."""
PATIENCE = 3
"""Rounds at most, as a multiple of the clean samples wanted."""


@dataclass(frozen=True)
class Sample:
    """``steps`` steps in a row of one variant, in one round: what passed meanwhile, on so many processors."""

    round: int
    steps: int
    spent: Reading
    processors: int

    @property
    def seconds(self) -> float:
        """Seconds of one step."""
        return self.spent.elapsed / self.steps

    @property
    def clean(self) -> bool:
        """Whether other processes left the processors alone; taken as so where that is not known."""
        if self.spent.busy is None:
            return True
        others = self.spent.busy - self.spent.own
        return others <= TOLERATED * self.spent.elapsed * self.processors + GRAIN


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of ``clean`` samples of ``taken``; of all of them where none is clean."""

    median: float
    q1: float
    q3: float
    clean: int
    taken: int

    def scaled(self, factor: float) -> "Spread":
        """The same in another unit."""
        return Spread(self.median * factor, self.q1 * factor, self.q3 * factor, self.clean, self.taken)


def spread(values: Sequence[tuple[float, bool]]) -> Spread:
    """The spread of at least one (value, clean)."""
    clean = [value for value, is_clean in values if is_clean]
    counted = clean or [value for value, _ in values]
    if len(counted) == 1:
        q1 = median = q3 = counted[0]
    else:
        q1, median, q3 = statistics.quantiles(counted, n=4, method="inclusive")
    return Spread(median, q1, q3, len(clean), len(values))


def seconds(samples: Sequence[Sample]) -> Spread:
    """Seconds of one step."""
    return spread([(sample.seconds, sample.clean) for sample in samples])


def ratio(upper: Sequence[Sample], lower: Sequence[Sample]) -> Spread:
    """Time of ``upper`` over that of ``lower``, round by round; clean where both are."""
    below = {sample.round: sample for sample in lower}
    pairs = [(sample, below[sample.round]) for sample in upper if sample.round in below]
    return spread([(a.seconds / b.seconds, a.clean and b.clean) for a, b in pairs])


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of round ``number``: each round begins one further on."""
    start = number % len(names)
    return [*names[start:], *names[:start]]


class WorkerFailed(Exception):
    """Why nothing more comes from a worker, in one line."""


def sample_in_turns(
    takers: Mapping[str, Callable[[int], Sample]], wanted: int, after_round: Callable[[int, int], None]
) -> tuple[dict[str, list[Sample]], dict[str, str]]:
    """Rounds over all takers until each has ``wanted`` clean samples, at most `PATIENCE` times as many rounds.

    ``takers``: name → a function of the round that takes one sample. ``after_round`` gets the number of rounds
    done and the fewest clean samples that any taker has. Returns the samples of each, and the reasons of those
    that raised `WorkerFailed`, which take no further part and have no samples.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in takers}
    failures: dict[str, str] = {}
    for number in range(PATIENCE * wanted):
        if not samples:
            break
        for name in rotated(list(samples), number):
            try:
                samples[name].append(takers[name](number))
            except WorkerFailed as error:
                failures[name] = str(error)
                del samples[name]
        fewest = min((sum(one.clean for one in taken) for taken in samples.values()), default=0)
        after_round(number + 1, fewest)
        if fewest >= wanted:
            break
    return samples, failures
