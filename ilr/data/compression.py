"""The bytes of a file, decompressed where its first bytes say so; damage is named, never passed over."""

import bz2
import importlib
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from ilr.errors import InputError

CHUNK_BYTES = 1 << 18
MAGIC_BYTES = 6
"""So many first bytes say how a file is compressed."""


class Decompressor(Protocol):
    """What `bz2`, `lzma` and `compression.zstd` have: decompresses one stream, some bytes at a time."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached, its checksum compared."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out without more data."""

    @property
    def unused_data(self) -> bytes:
        """What stood after the end of the stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """What the data give, at most so many bytes; the rest at the next call."""


class _Gzip:
    """One member of a gzip file."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not (self._full or self._inner.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        decompressed = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._full = len(decompressed) == max_length
        return decompressed


class _Zstandard:
    """One frame by the package `zstandard`, which bounds its output only by what it is given."""

    SLICE = 1 << 8  # at most some 8 MB come out of so much

    def __init__(self, inner: "Decompressor") -> None:
        self._inner = inner
        self._data, self._at = b"", 0

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return self._at >= len(self._data)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + self._data[self._at :]

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._data, self._at = self._data[self._at :] + data if data else self._data, 0 if data else self._at
        begin, self._at = self._at, self._at + self.SLICE
        return self._inner.decompress(self._data[begin : self._at])  # type: ignore[call-arg]


def _zstd() -> Decompressor:
    try:
        return importlib.import_module("compression.zstd").ZstdDecompressor()
    except ModuleNotFoundError:
        pass
    try:
        return _Zstandard(importlib.import_module("zstandard").ZstdDecompressor().decompressobj())
    except ModuleNotFoundError:
        raise InputError("to read zstd files: pip install zstandard") from None


@dataclass(frozen=True)
class Compression:
    """A way to compress: its name, its first bytes, endings of file names, the command that undoes it."""

    name: str
    magic: re.Pattern[bytes]
    endings: tuple[str, ...]
    command: str
    make: Callable[[], Decompressor]


COMPRESSIONS = (
    Compression("gzip", re.compile(rb"\x1f\x8b\x08"), (".gz", ".gzip"), "gzip -dc", _Gzip),
    Compression(
        "bzip2",
        re.compile(rb"BZh[1-9][1\x17]"),
        (".bz2", ".bzip2"),
        "bzip2 -dc",
        bz2.BZ2Decompressor,
    ),
    Compression(
        "xz",
        re.compile(rb"\xfd7zXZ\x00|\x5d\x00\x00"),
        (".xz", ".lzma"),
        "xz -dc",
        lambda: lzma.LZMADecompressor(memlimit=1 << 29),
    ),
    Compression(
        "zstd",
        # A data frame, or the skippable frame that parallel compressors begin with.
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        (".zst", ".zstd"),
        "zstd -dc",
        _zstd,
    ),
)


def compression_of(head: bytes) -> Compression | None:
    """How a file that begins with these bytes is compressed; None for one that is not."""
    return next((each for each in COMPRESSIONS if each.magic.match(head)), None)


def without_ending(name: str) -> tuple[str, str]:
    """A file's name and the ending that says how it is compressed (empty if none does)."""
    for compression in COMPRESSIONS:
        for ending in compression.endings:
            if name.lower().endswith(ending):
                return name[: -len(ending)], name[-len(ending) :]
    return name, ""


def shown(path: Path) -> str:
    """A path as text that can be printed anywhere: bytes that are no UTF-8 as escapes."""
    try:
        return os.fsencode(path).decode("utf-8", errors="backslashreplace")
    except UnicodeEncodeError:  # no name of a file at all
        return ascii(str(path))


def open_binary(path: Path) -> BufferedReader:
    """Open for reading bytes; InputError when the file is not there or not readable."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {shown(path)}: {error.strerror}") from None


def file_chunks(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed, in chunks of bounded size.

    InputError when compressed data are cut off, damaged, or followed by anything else.
    """
    with open_binary(path) as file:
        data = read_bytes(file, path)
        while 0 < len(data) < MAGIC_BYTES and (more := read_bytes(file, path)):
            data += more
        compression = compression_of(data)
        if compression is not None:
            yield from _decompressed(file, path, compression, data)
            return
        while data:
            yield data
            data = read_bytes(file, path)


def _decompressed(file: BufferedReader, path: Path, compression: Compression, data: bytes) -> Iterator[bytes]:
    decompressor = compression.make()
    while True:
        try:
            decompressed = decompressor.decompress(data, CHUNK_BYTES)
        except Exception as error:  # each library has its own
            raise InputError(
                f"{shown(path)} is damaged: its {compression.name} data cannot be decompressed: {error}"
            ) from None
        if decompressed:
            yield decompressed
        data = b""
        if decompressor.eof:
            data = _after_padding(decompressor.unused_data, file, path)
            if not data:
                return
            if not compression.magic.match(data):
                raise InputError(
                    f"{shown(path)} is damaged: after the end of its {compression.name} data comes something else"
                )
            decompressor = compression.make()
        elif decompressor.needs_input:
            data = read_bytes(file, path)
            if not data:
                raise InputError(f"{shown(path)} is cut off: its {compression.name} data have no end")


def _after_padding(data: bytes, file: BufferedReader, path: Path) -> bytes:
    """What comes after zero bytes, enough of it to be known by its first ones; empty at the file's end."""
    while True:
        data = data.lstrip(b"\0")
        if len(data) >= MAGIC_BYTES or not (more := read_bytes(file, path)):
            return data
        data += more


def read_bytes(file: BufferedReader, path: Path, most: int | None = None) -> bytes:
    """The next bytes of an open file, a chunk by default; InputError when the disk does not give them."""
    try:
        return file.read(CHUNK_BYTES if most is None else most)
    except OSError as error:
        raise InputError(f"cannot read {shown(path)}: {error.strerror}") from None
