"""The text of a file, or one line that says why there is none."""

import os
import stat
from pathlib import Path

from ilr.errors import InputError

LARGEST = 2**28
"""Bytes of a file that is read whole, unless told otherwise: far above what is ever written."""


class MissingFile(InputError):
    """There is no such file."""


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The text of a UTF-8 file, without the mark of a byte order at its start.

    Raises `MissingFile` where there is none, and `InputError` for what is no plain file (a directory, a pipe,
    a device), too large, forbidden to read or not UTF-8.
    """
    return decoded(path, read_bytes(path, largest))


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a plain file; raises as `read_text`."""
    try:
        # Not blocking: a pipe without a writer would never open.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
                raise InputError(f"{path} is {kind}, not a file")
            if found.st_size > largest:
                raise InputError(f"{path} has {found.st_size:,} bytes; at most {largest:,} are read")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(largest + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{path}: no such file") from None
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{str(path)!a} is no file name: it holds a NUL") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def decoded(path: Path, content: bytes) -> str:
    """These bytes of a file as text; raises `InputError` where they are not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start:,})") from None
