"""What long work tells the user: lines and a progress bar on standard error."""

import sys

from tqdm import tqdm  # type: ignore[import-untyped]


def say(message: str) -> None:
    """Print one line at once; standard output stays free for results."""
    print(message, file=sys.stderr, flush=True)


def progress_bar(what: str, total: int, unit: str) -> tqdm:
    """A bar over units of work; `update(n)` advances it. Silent when standard error is no terminal."""
    return tqdm(total=total, desc=what, unit=unit, unit_scale=True, disable=None, leave=False)
