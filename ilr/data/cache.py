"""A directory of prepared files that is complete or not there, made by one process at a time."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ilr.data.manifest import Manifest, changed_file, read_manifest
from ilr.errors import InputError
from ilr.progress import say


def cache_directory(given: str | None) -> Path:
    """Where prepared data lie: as given, else $ILR_CACHE, else ~/.cache/ilr."""
    return Path(given or os.environ.get("ILR_CACHE") or "~/.cache/ilr").expanduser()


def fetch(cache: Path, key: str, build: Callable[[Path], Manifest]) -> Manifest:
    """The manifest of the prepared directory of this key, built first if it is not there or not as it was written.

    `build(directory)` fills an empty directory and gives the manifest, which is written last; then the
    directory gets its name. Says whether it was a hit. Two processes build once: the other waits.
    InputError when the cache cannot be written.
    """
    target = cache / key
    if (manifest := intact(target)) is not None:
        say(f"data: cache hit, key {key} in {cache}")
        return manifest
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with file_lock(cache / f"{key}.lock", f"data: another process prepares key {key}, waiting for it"):
            if (manifest := intact(target)) is not None:
                say(f"data: cache hit, key {key} in {cache}, just prepared by another process")
                return manifest
            if target.exists():
                say(
                    f"data: the cache of key {key} in {cache} is incomplete or damaged, preparing again: "
                    f"{damage(target)}"
                )
                shutil.rmtree(target)
            else:
                say(f"data: cache miss, preparing key {key} in {cache}")
            return _build(target, build)
    except OSError as error:
        raise InputError(
            f"cannot write prepared data in {cache}: {error.strerror or error}; "
            "make room or give another --data.cache_dir (or $ILR_CACHE)"
        ) from error


def intact(directory: Path) -> Manifest | None:
    """The manifest of a prepared directory in which every byte is as it was written; None for any other."""
    manifest = read_manifest(directory)
    return None if manifest is None or changed_file(directory, manifest) is not None else manifest


def damage(directory: Path) -> str:
    """What is wrong with a directory that is not intact."""
    manifest = read_manifest(directory)
    changed = None if manifest is None else changed_file(directory, manifest)
    return (
        "files are missing, cut short or changed"
        if changed is None
        else f"{changed} is not as it was written"
    )


def _build(target: Path, build: Callable[[Path], Manifest]) -> Manifest:
    # Left by a process that was killed: nobody else builds this key while the lock is held.
    for left in target.parent.glob(f"{target.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{target.name}.tmp-", dir=target.parent))
    try:
        manifest = build(temporary)
        for path in temporary.iterdir():
            sync(path)
        manifest.write(temporary)
        sync(temporary / "manifest.json")
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return manifest


@contextmanager
def file_lock(path: Path, waiting: str) -> Iterator[None]:
    """Hold an exclusive lock between processes; says `waiting` when another holds it. Freed at death."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync(path: Path) -> None:
    """Have the file's content on the disk, so that a rename after it never shows an empty file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
