"""Prepared files: one stream of token ids per split, and its table of documents."""

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilr.data.documents import EVALUATED, SPLITS
from ilr.data.manifest import SplitInfo

TOKENIZER = "tokenizer.json"


def smallest_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned little-endian integer type that holds ids 0 … vocab_size − 1."""
    return np.min_scalar_type(vocab_size - 1).newbyteorder("<")


@dataclass(frozen=True)
class DocumentTable:
    """One entry per document of a split, in stream order.

    `start`: index of its first token in the stream; `tokens`: its tokens with the separator that follows;
    `bytes`: UTF-8 bytes of its text. All int64 of shape (documents,).
    """

    start: NDArray[np.int64]
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


class TokenFile:
    """A stream of token ids on disk, mapped into memory when first used, also in worker processes."""

    def __init__(self, path: Path, dtype: str, tokens: int) -> None:
        self.path, self.dtype, self.tokens = path, dtype, tokens
        self._array: NDArray[Any] | None = None

    def __len__(self) -> int:
        return self.tokens

    @property
    def array(self) -> NDArray[Any]:
        """The ids, shape (tokens,), read-only; a plain view, as slicing a memmap object is slow."""
        if self._array is None:
            if self.tokens == 0:  # an empty file cannot be mapped
                self._array = np.empty(0, dtype=self.dtype)
            else:
                mapped = np.memmap(self.path, dtype=self.dtype, mode="r", shape=(self.tokens,))
                self._array = np.asarray(mapped)
        return self._array

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None}


class SplitWriter:
    """Writes one split: its stream and its document table."""

    def __init__(self, directory: Path, split: str, dtype: np.dtype[Any]) -> None:
        self._stream = stream_path(directory, split).open("wb", buffering=1 << 20)
        self._table_path = table_path(directory, split)
        self._dtype = dtype
        self._hasher = hashlib.sha256()
        self._tokens = array("q")
        self._bytes = array("q")
        self._open_tokens = self._open_bytes = 0

    def add(self, ids: NDArray[np.uint32], num_bytes: int) -> None:
        """Append a piece of the open document: its ids, and the bytes of its text."""
        data = ids.astype(self._dtype).tobytes()
        self._hasher.update(data)
        self._stream.write(data)
        self._open_tokens += len(ids)
        self._open_bytes += num_bytes

    def end_document(self, separator: int) -> None:
        """Append the separator and enter the document into the table."""
        self.add(np.array([separator], dtype=np.uint32), 0)
        self._tokens.append(self._open_tokens)
        self._bytes.append(self._open_bytes)
        self._open_tokens = self._open_bytes = 0

    def close(self) -> SplitInfo:
        """Finish both files."""
        self._stream.close()
        tokens = np.array(self._tokens, dtype=np.int64)
        num_bytes = np.array(self._bytes, dtype=np.int64)
        np.save(self._table_path, np.stack([tokens, num_bytes]))
        return SplitInfo(int(tokens.sum()), len(tokens), int(num_bytes.sum()), self._hasher.hexdigest())


def stream_path(directory: Path, split: str) -> Path:
    """The file of a split's token ids."""
    return directory / f"{split}.tokens"


def table_path(directory: Path, split: str) -> Path:
    """The file of a split's documents: int64 (2, documents), tokens and bytes."""
    return directory / f"{split}.documents.npy"


def twins_path(directory: Path, split: str) -> Path:
    """The file of a split's duplicates: int64 (documents,), the first document of train of the same text or −1."""
    return directory / f"{split}.twins.npy"


def split_files(directory: Path) -> Iterator[Path]:
    """All files of a prepared directory but the manifest."""
    yield directory / TOKENIZER
    for split in SPLITS:
        yield stream_path(directory, split)
        yield table_path(directory, split)
    for split in EVALUATED:
        yield twins_path(directory, split)


def read_table(directory: Path, split: str) -> DocumentTable:
    """The document table of a split."""
    tokens, num_bytes = np.load(table_path(directory, split))
    return DocumentTable(np.cumsum(tokens) - tokens, tokens, num_bytes)
