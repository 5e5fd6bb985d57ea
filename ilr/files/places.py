"""Places for results: directories that come or leave nothing behind, and files that are named where they fail."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ilr.errors import InputError


@contextmanager
def output_directory(path: Path, option: str) -> Iterator[None]:
    """A directory for results: made where it is missing, and gone again if what is done in here fails.

    Raises `InputError` that names the option and the path where it cannot be made or nothing can be written in it.
    """
    missing = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{os.getpid()}.partial"
        probe.touch()
        probe.unlink()
    except OSError as error:
        remove_empty(missing)
        raise InputError(f"{option} {path} cannot be written: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{option} {str(path)!a} is no file name") from None
    try:
        yield
    except BaseException:
        if path in missing:  # all that lies in it was made in here, and is half of the results
            shutil.rmtree(path, ignore_errors=True)
        remove_empty(missing)
        raise


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove these folders, in this order, as far as nothing lies in them."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have a file that cannot be written in here be called this: a full disk names none, and a temporary file is
    nobody's.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(".partial"):
            error.filename, error.filename2 = str(path), None
        raise
