"""One writer at a time in a directory: a lock that says who holds it and that goes with its process. No torch."""

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from ilr.errors import InputError

LOCK_FILE = ".lock"
"""Name of the lock file in its directory; it stays, empty, when nobody holds it."""

PATIENCE = 10.0
"""Seconds to wait for the worker processes of a holder that was killed: they notice it by themselves."""

_HELD: dict[Path, tuple[int, int]] = {}
"""Which file each lock of this process is, by device and inode: another one may come to have its name."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock: its id, its host, when it started (ISO 8601) and its command."""

    pid: int
    host: str
    started: str
    command: str

    @classmethod
    def this_process(cls) -> "Holder":
        """What this process writes into a lock that it holds."""
        started = datetime.fromtimestamp(psutil.Process().create_time()).astimezone()
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        return cls(os.getpid(), socket.gethostname(), started.isoformat(timespec="seconds"), command)

    @classmethod
    def read(cls, path: Path) -> "Holder | None":
        """What stands in a lock file; None where that is nothing or not ours."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{name: values[name] for name in cls.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_gone(self) -> bool:
        """Whether this was a process of this machine that runs no more."""
        if self.host != socket.gethostname():
            return False
        try:
            started = datetime.fromtimestamp(psutil.Process(self.pid).create_time()).astimezone()
        except psutil.NoSuchProcess:
            return True
        return started.isoformat(timespec="seconds") != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started} ({self.command})"


@contextmanager
def held(directory: Path, what: str) -> Iterator[None]:
    """Hold the lock of an existing directory.

    Raises `InputError`, which begins with ``what`` and names the holder, where another process has it, and
    `OSError` where nothing can be written there. The system frees the lock of a process that was killed.
    """
    path = directory / LOCK_FILE
    holder, new = Holder.read(path), not path.exists()
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE if holder is not None and holder.is_gone() else 0)
    except Timeout:
        raise InputError(f"{what} is in use by {Holder.read(path) or holder or 'another process'}") from None
    try:
        path.write_text(json.dumps(asdict(Holder.this_process())), encoding="utf-8")
        _HELD[directory] = _file(path)
        yield
    except InputError:
        if new and _is_held(directory):  # where nothing came of it, nothing is left
            path.unlink(missing_ok=True)
        raise
    finally:
        if _is_held(directory):
            path.write_text("", encoding="utf-8")
        _HELD.pop(directory, None)
        lock.release()


def check_held(directory: Path) -> None:
    """Raise `InputError` where this process took the lock of a directory that is not there any more, or another one:
    what it would still write there could be amid another process's files.
    """
    if directory in _HELD and not _is_held(directory):
        raise InputError(
            f"{directory} was removed or replaced while this process was writing there; nothing more is written"
        )


def _is_held(directory: Path) -> bool:
    path = directory / LOCK_FILE
    return directory in _HELD and path.exists() and _file(path) == _HELD[directory]


def _file(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
