"""Processor time: what this process used, and what the whole machine was busy with."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
_GUEST = 8
"""Fields of the first line of /proc/stat: idle and waiting; guests are counted among the others already."""


@dataclass(frozen=True)
class Reading:
    """Seconds: by the clock, of this process's threads, and of all processors not idle (None: unknown)."""

    elapsed: float
    own: float
    busy: float | None

    @classmethod
    def now(cls) -> "Reading":
        """Of this moment; only differences mean something."""
        return cls(time.perf_counter(), time.process_time(), _busy())

    def since(self, earlier: "Reading") -> "Reading":
        """What passed between two readings."""
        known = self.busy is not None and earlier.busy is not None
        return Reading(
            self.elapsed - earlier.elapsed,
            self.own - earlier.own,
            self.busy - earlier.busy if known else None,  # type: ignore[operator]
        )


def _busy() -> float | None:
    """Seconds that processors were not idle since the machine started, those taken by its host included."""
    try:
        line = _STAT.read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    return busy_seconds(line, os.sysconf("SC_CLK_TCK"))


def busy_seconds(line: str, ticks: int) -> float:
    """The same of the first line of /proc/stat, at ``ticks`` a second."""
    fields = [int(field) for field in line.split()[1:]][:_GUEST]
    return sum(value for place, value in enumerate(fields) if place not in _IDLE) / ticks
