"""Bytes to text: UTF-8, or the encoding that a mark at the start names; everything else is refused."""

import codecs
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from ilr.data.compression import MAGIC_BYTES, compression_of, file_chunks, open_binary, shown, without_ending
from ilr.errors import InputError

MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: it begins with that one's mark
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_TEXT = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")


def encoding_of(head: bytes) -> tuple[str, bytes]:
    """The encoding of text that begins with these bytes, and the mark (no part of the text) that says so."""
    return next(((name, mark) for mark, name in MARKS if head.startswith(mark)), ("utf-8", b""))


def text_pieces(path: Path) -> Iterator[str]:
    """A file's text in pieces: decompressed, without the mark at its start, line ends as they are.

    InputError at the first byte that is no text of the encoding, and at NUL bytes: they mean another one.
    """
    chunks = file_chunks(path)
    chunk = next(chunks, b"")
    while 0 < len(chunk) <= 4 and (more := next(chunks, b"")):  # a mark, and a byte after it
        chunk += more
    encoding, mark = encoding_of(chunk)
    decoder = codecs.getincrementaldecoder(encoding)()
    offset, chunk = len(mark), chunk[len(mark) :]
    beyond_ascii = False
    while True:
        held_back = decoder.getstate()[0]
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            data = error.object
            raise InputError(
                _undecodable(path, encoding, data, error.start, offset - len(held_back), beyond_ascii)
            ) from None
        if "\0" in text:
            raise InputError(_holds_nul(path, encoding, held_back + chunk, offset - len(held_back)))
        if text:
            beyond_ascii = beyond_ascii or not text.isascii()
            yield text
        if not chunk:
            return
        offset += len(chunk)
        chunk = next(chunks, b"")


def _undecodable(path: Path, encoding: str, data: bytes, at: int, offset: int, beyond_ascii: bool) -> str:
    where = f"{shown(path)} is not {encoding.upper()}: byte 0x{data[at]:02x} at offset {offset + at}"
    if encoding != "utf-8":
        return f"{where}, though the mark at its start says so; it is damaged or cut off"
    if offset == 0 and 0 in data[:4096] and (guess := _wide_encoding(data[:4096])) is not None:
        return f"{where}; it looks like {guess}, convert it: {conversion(path, f'iconv -f {guess} -t UTF-8')}"
    if len(_NO_TEXT.findall(data[:512])) > 8:
        return f"{where}; it holds binary data, no text"
    good = len(re.findall(r"[^\x00-\x7f\ufffd]", data.decode("utf-8", errors="replace")))
    if beyond_ascii or good > len(re.findall(r"\ufffd", data.decode("utf-8", errors="replace"))):
        # Most of it is UTF-8: read as another encoding, all that is right would become wrong.
        return f"{where}; the rest is UTF-8, so it is damaged there; leave such bytes out, for example: " + (
            conversion(path, "iconv -c -f UTF-8 -t UTF-8")
        )
    return (
        f"{where}; convert it from its encoding first, for example (Western European): "
        f"{conversion(path, 'iconv -f WINDOWS-1252 -t UTF-8')}"
    )


def _holds_nul(path: Path, encoding: str, data: bytes, offset: int) -> str:
    where = f"{shown(path)} holds NUL characters (U+0000), so it is no plain text"
    if encoding != "utf-8":
        return where
    at = data.index(0)
    where = f"{shown(path)} holds a NUL byte at offset {offset + at}, so it is no UTF-8 text"
    many = data[:4096].count(0) * 20 >= len(data[:4096])  # every blank of UTF-16 has one
    if offset == 0 and many and (guess := _wide_encoding(data[:4096])) is not None:
        return f"{where}; it looks like {guess}, convert it: {conversion(path, f'iconv -f {guess} -t UTF-8')}"
    without = conversion(path, r"tr -d '\000'")
    return f"{where}; if it is text all the same, leave such bytes out: {without}"


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 if the text without a mark can only be that one, by where its NUL bytes stand."""
    places = {at % 4 for at, byte in enumerate(head) if byte == 0}
    guesses = (
        ("UTF-32LE", {2, 3} <= places and 0 not in places),
        ("UTF-32BE", {0, 1} <= places and 3 not in places),
        ("UTF-16LE", places <= {1, 3}),
        ("UTF-16BE", places <= {0, 2}),
    )
    for encoding, possible in guesses:
        if possible:
            text = head.decode(encoding, errors="replace")
            if "\0" not in text and text.count("\ufffd") <= 1:  # the head may end within a character
                return encoding
    return None


def conversion(path: Path, convert: str) -> str:
    """A line for the shell that writes a converted copy beside the file."""
    with open_binary(path) as file:
        compression = compression_of(file.read(MAGIC_BYTES))
    name = shlex.quote(shown(path))
    read = f"{compression.command} {name} | {convert}" if compression else f"{convert} < {name}"
    plain = Path(without_ending(path.name)[0])
    converted = path.with_name(f"{plain.stem}.utf8{plain.suffix}")
    return f"{read} > {shlex.quote(shown(converted))}"
