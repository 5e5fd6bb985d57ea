"""Files with rows: JSON lines and arrays, delimited tables, parquet."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ilr.data.compression import shown
from ilr.data.corpora import combine, hash_file
from ilr.data.decoding import conversion, text_pieces
from ilr.data.json_stream import JsonStream
from ilr.data.rows import LONGEST_ROW, Missing, Rows, missing_column, too_long, twice
from ilr.errors import InputError


@dataclass(frozen=True)
class JsonRows(Rows):
    """JSON values one a line (or one after another), or one array of them.

    A row is an object, whose `column` holds the text, or a string, which is the text, or null.
    """

    path: Path
    column: str

    def values(self) -> Iterator[tuple[str, object]]:
        """The rows in order; InputError naming the line for what is no JSON or no row."""
        for place, row in JsonStream(text_pieces(self.path), self.column, shown(self.path)).values():
            match row:
                case dict():
                    yield place, row[self.column] if self.column in row else Missing(tuple(row))
                case str() | None:
                    yield place, row
                case _:
                    raise InputError(f"{place} must be an object or a string, got {type(row).__name__}")

    def fingerprint(self) -> str:
        """SHA-256 of the raw bytes and of the column's name."""
        return combine("json", self.column, hash_file(self.path))


@dataclass(frozen=True)
class DelimitedRows(Rows):
    """A table whose first line names the columns, quoted as RFC 4180 says (csv, tsv).

    Of the given delimiter, comma, tab, semicolon and bar the first one counts with which the first line has
    the column. Every row must have as many fields as that line; lines without a character are no rows.
    A CR that no LF follows is text: many writers do not quote it.
    """

    path: Path
    column: str
    delimiter: str

    def values(self) -> Iterator[tuple[str, object]]:
        """The fields of the column in order; InputError naming the line for a row that does not fit."""
        name, lines = shown(self.path), _Lines(self.path)
        csv.field_size_limit(LONGEST_ROW)
        reader = csv.reader(lines, delimiter=self._delimiter(lines.first), strict=True)
        try:
            header = [_with_cr(field) for field in next(reader, [])]
            if header.count(self.column) > 1:
                raise twice(name, self.column)
            if header and self.column not in header:
                raise InputError(missing_column(name, self.column, header))
            for row in reader:
                place = f"{name} line {lines.number}"
                if len(row) == len(header):
                    lines.check_end(place)
                    yield place, _with_cr(row[header.index(self.column)])
                elif "".join(row).strip():
                    raise InputError(
                        f"{place} has {len(row)} fields, the first line has {len(header)}; a field with a "
                        "delimiter, a quote or a line end in it must stand in quotes"
                    )
        except csv.Error as error:
            lines.check_end(f"{name} line {lines.number}")
            raise InputError(f"{name} line {lines.number} is no row: {error}") from None

    def _delimiter(self, first: str) -> str:
        for delimiter in dict.fromkeys([self.delimiter, *",\t;|"]):
            try:
                if self.column in next(csv.reader([first], delimiter=delimiter, strict=True), []):
                    return delimiter
            except csv.Error:
                continue
        return self.delimiter

    def fingerprint(self) -> str:
        """SHA-256 of the raw bytes, of the column's name and the delimiter tried first."""
        return combine("delimited", self.delimiter, self.column, hash_file(self.path))


class _Lines:
    """Lines for `csv`, from the first one with a character on; a CR in the text stands as NUL meanwhile.

    For `csv` every CR ends a row. Text files hold no NUL, so nothing else is taken for one.
    """

    def __init__(self, path: Path) -> None:
        self._where, self._lines, self.number = shown(path), self._split(text_pieces(path)), 0
        self.first = next((line for line in self._lines if line.strip()), "")
        self._cr_lf = self.first.endswith("\r\n")
        if "\r" in self.first.rstrip("\r\n"):
            raise InputError(f"{self._where}: its lines end in CR alone; {conversion(path, _CR_TO_LF)}")
        self._last = ""

    def _split(self, pieces: Iterator[str]) -> Iterator[str]:
        rest: list[str] = []
        length = 0
        for piece in pieces:
            *whole, last = piece.split("\n")
            for line in whole:
                self.number += 1
                yield "".join([*rest, line, "\n"])
                rest, length = [], 0
            rest.append(last)
            length += len(last)
            if length > LONGEST_ROW:
                raise too_long(f"{self._where} line {self.number + 1}")
        if text := "".join(rest):
            self.number += 1
            yield text

    def __iter__(self) -> Iterator[str]:
        for line in chain([self.first] if self.first else [], self._lines):
            self._last = _BARE_CR.sub("\0", line) if self._cr_lf else line.replace("\r", "\0")
            yield self._last

    def check_end(self, place: str) -> None:
        """InputError where the row just read ends in CR LF and the first line does not: it could be text."""
        if self._last.endswith("\0\n"):
            raise InputError(f"{place} ends in CR LF, the first line in LF alone; give all the same line end")


_CR_TO_LF = r"tr '\r' '\n'"
_BARE_CR = re.compile(r"\r(?!\n)")


def _with_cr(field: str) -> str:
    return field.replace("\0", "\r")


@dataclass(frozen=True)
class ParquetRows(Rows):
    """A parquet file with a column of text: string or bytes, in any physical form, or all null."""

    path: Path
    column: str

    def values(self) -> Iterator[tuple[str, object]]:
        """The column's values, read in batches; InputError when it is not there or holds no text."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name, number = shown(self.path), 0
        try:
            with pq.ParquetFile(self.path, buffer_size=1 << 20, page_checksum_verification=True) as file:
                schema = file.schema_arrow
                if schema.names.count(self.column) > 1:
                    raise twice(name, self.column)
                if self.column not in schema.names:
                    raise InputError(missing_column(name, self.column, schema.names))
                check_text_type(schema.field(self.column).type, name, self.column)
                for batch in file.iter_batches(batch_size=256, columns=[self.column]):
                    for value in text_values(batch.column(0)):
                        number += 1
                        yield f"{name} row {number}", value
        except (OSError, pa.ArrowException) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"cannot read {name} as parquet: {first_line}") from None

    def fingerprint(self) -> str:
        """SHA-256 of the raw bytes and of the column's name."""
        return combine("parquet", self.column, hash_file(self.path))


def check_text_type(kind: Any, where: str, column: str) -> None:
    """InputError unless an Arrow type is one of text: string, bytes, null, or a dictionary of these."""
    import pyarrow.types as types

    value = kind.value_type if types.is_dictionary(kind) else kind
    tests = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_null,
    )
    if not any(test(value) for test in tests):
        raise InputError(f"{where}: column {column!r} must hold text, got {kind}")


def text_values(array: Any) -> list[object]:
    """The values of an Arrow array of text; as bytes, for what is no UTF-8 to be named by its row."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_string(array.type):
        array = array.view(pa.binary())
    elif types.is_large_string(array.type):
        array = array.view(pa.large_binary())
    elif types.is_string_view(array.type):
        array = array.view(pa.binary_view())
    return array.to_pylist()
