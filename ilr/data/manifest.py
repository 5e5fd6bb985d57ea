"""The manifest of a prepared directory: what was prepared, from what, and whether its files are as written."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ilr.errors import InputError
from ilr.files import plain_json
from ilr.files.text import read_text

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class SplitInfo:
    """A split: tokens with separators, documents, UTF-8 bytes of its text, SHA-256 of the stream."""

    tokens: int
    documents: int
    bytes: int
    hash: str


@dataclass(frozen=True)
class Duplicates:
    """Documents of a split whose text also stands in train: how many, their tokens with separators, their bytes."""

    documents: int
    tokens: int
    bytes: int


@dataclass(frozen=True)
class FileInfo:
    """A file as it was written: its bytes, and their SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What was prepared, from what; written last, so that a directory with a valid one is complete.

    `duplicates`: of validation and test; `dropped_duplicates`: documents that were for that reason left out of
    train.
    """

    key: str
    corpus_hash: str
    tokenizer_hash: str
    vocab_size: int
    separator_token: str
    separator_id: int
    dtype: str
    document: str
    pseudo_documents: bool
    skipped_documents: int
    splits: dict[str, SplitInfo]
    duplicates: dict[str, Duplicates]
    dropped_duplicates: int
    files: dict[str, FileInfo] = field(repr=False)

    def write(self, directory: Path) -> None:
        """Store as JSON together with its own hash."""
        content = asdict(self)
        content["sha256"] = _hash(content)
        (directory / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a complete directory; None when anything is missing or cut short, or the manifest changed.

    Of the other files it looks at the sizes only: see `changed_file`.
    """
    # Only now: the library takes a moment to load.
    from pydantic import TypeAdapter

    try:
        path = directory / MANIFEST
        content = plain_json.loads(read_text(path), path)
        if content.pop("sha256") != _hash(content):
            return None
        manifest = TypeAdapter(Manifest).validate_json(json.dumps(content), strict=True)
        sizes = {name: (directory / name).stat().st_size for name in manifest.files}
    except (InputError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if sizes == {name: info.size for name, info in manifest.files.items()} else None


def changed_file(directory: Path, manifest: Manifest) -> str | None:
    """The name of the first file whose content is not what was written; None where all are as they were.

    Reads every byte (a gigabyte or two a second), so it is asked once for a start, by the process that prepares,
    and not again in that process; others look at sizes only. The tokens take about half the bytes of their text,
    which is hashed at a start anyway where it is read.
    """
    for name, info in manifest.files.items():
        try:
            found = (directory / name).stat()
            same = _digest(directory / name, found.st_ino, found.st_size, found.st_mtime_ns) == info.sha256
        except OSError:
            same = False
        if not same:
            return name
    return None


def file_info(path: Path) -> FileInfo:
    """The file as it is now."""
    with path.open("rb") as file:
        return FileInfo(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


@lru_cache(maxsize=4096)
def _digest(path: Path, inode: int, size: int, modified: int) -> str:
    """SHA-256 of a file; the same arguments stand for the same content."""
    return file_info(path).sha256


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
