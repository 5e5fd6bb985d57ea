"""Finding files: a name, or a pattern in whose path every part that exists as written stands for itself."""

import glob
import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ilr.data.compression import shown, without_ending
from ilr.data.formats import READABLE_ENDINGS
from ilr.errors import InputError


def matching_paths(name: str) -> list[Path]:
    """The existing file of this name, or the files that it matches as a pattern, sorted; perhaps none.

    Patterns are those of the shell: `*`, `?`, `[…]` within a part of a path, `**` for directories of any
    depth; none of them stands for hidden files. A part with such characters that is there under its
    very name stands for that: so `a [1]/*.txt` finds the files in `a [1]`. InputError for a directory, for
    what can be read only once, and for a name that is no text.
    """
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(
            f"{shown(Path(name))}: the name is not UTF-8, so no record of a run can hold it; rename it, or "
            "give it by a pattern, with ? for each byte that is none"
        )
    path = Path(os.path.expanduser(name))
    try:
        if _exists(path):
            return [_readable(path)]
        if not glob.has_magic(name):
            return []
        return sorted(_readable(found) for found in _expand(path) if not found.is_dir())
    except OSError as error:
        raise InputError(f"cannot look for {shown(path)}: {error.strerror}") from None


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a NUL character
        return False
    return True


def _expand(pattern: Path) -> list[Path]:
    found = [Path(pattern.anchor)]
    for part in pattern.parts[1 if pattern.anchor else 0 :]:
        # The same directory may be found twice: `**/*` and the like.
        found = list(dict.fromkeys(match for base in found for match in _matches(base, part)))
    return found


def _matches(base: Path, part: str) -> Iterator[Path]:
    if os.path.lexists(base / part):
        yield base / part
    elif part == "**":
        yield from (
            each
            for each in base.glob("**")  # does not follow links to directories, which may lead in circles
            if not any(name.startswith(".") for name in each.relative_to(base).parts)
        )
    elif glob.has_magic(part):
        yield from (base / found for found in glob.glob(part, root_dir=base))


def _readable(path: Path) -> Path:
    """The path itself; InputError unless it leads to a file that can be read again and again."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{shown(path)} is a link to a file that is not there") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{shown(path)} is a directory{_advice(path)}")
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISFIFO: "a pipe", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}
        kind = next((kind for test, kind in kinds.items() if test(mode)), "a socket")
        raise InputError(f"{shown(path)} is {kind}, and text is read more than once: save it to a file first")
    return path


def _advice(directory: Path) -> str:
    """What to give instead of a directory: a pattern that finds most of its files."""
    for deeper in ("", "**/"):
        names = [
            path.name
            for path in islice(directory.glob(f"{deeper}*"), 10_000)
            if path.is_file() and not path.name.startswith(".")
        ]
        endings = Counter(_ending(name) for name in names)
        known = [ending for ending in endings if READABLE_ENDINGS & set(Path(f"x{ending}").suffixes)]
        if names:
            ending = max(known, key=lambda each: (endings[each], each)) if known else ""
            pattern = shlex.quote(shown(directory / f"{deeper}*{glob.escape(ending)}"))
            return f"; give its files, for example {pattern}"
    return " without files"


def _ending(name: str) -> str:
    """The ending of a file's name, that of a compressed one with the ending before it."""
    plain, compressed = without_ending(name)
    return Path(plain).suffix + compressed
