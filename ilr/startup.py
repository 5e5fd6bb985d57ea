"""A quicker start: imports without the collection of garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in here: what modules make stays, so looking for garbage among it is lost time.

    Afterwards collection is on as before, and passes over what there is now (`gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
