"""`ilr fit` as a sweep starts it: alone in its run directory, and never longer than the one who started it.

Called as `python -m ilr.sweep.child fit …` with the two variables below. The lock keeps a second start of the
same run (after its worker was killed) waiting until the first has saved and left.
"""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

LOCK = "ILR_SWEEP_LOCK"
PARENT = "ILR_SWEEP_PARENT"
GRACE = 60.0
"""Seconds to save and leave, after which the process ends all the same."""

POLL = 0.5


def main() -> int:
    """Train; the exit status of `ilr fit`."""
    # Processes that Lightning starts for further devices come through here too: they belong to the first.
    if "LOCAL_RANK" not in os.environ:
        Thread(target=_leave_with, args=(int(os.environ[PARENT]),), daemon=True).start()
        _hold(Path(os.environ[LOCK]))
    from ilr.cli import main as ilr

    return ilr(sys.argv[1:])


def _hold(path: Path) -> None:
    """Take the lock, waiting for it; the system gives it back when this process ends."""
    import fcntl

    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    _held.append(file)


_held: list[object] = []


def _leave_with(parent: int) -> None:
    """Ask this process to save and leave once its parent is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
