"""JSON values one after another from text in pieces: lines, or the items of one array."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ilr.data.rows import LONGEST_ROW, too_long, twice
from ilr.errors import InputError

_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_CUT = 12
"""A value cut off by the end of a piece is an error at most this far before it (strings aside)."""


class JsonStream:
    """A window onto the text: filled at its end, dropped at its start.

    Objects that name `column` twice are refused. `where` names the file in errors.
    """

    def __init__(self, pieces: Iterator[str], column: str, where: str) -> None:
        self._pieces, self._column, self._where = pieces, column, where
        self._decode = json.JSONDecoder(object_pairs_hook=self._object).raw_decode
        self._text, self._at = "", 0
        self._line, self._counted = 1, 0

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each value after its place, "FILE line N": the items of an array if the text begins with one."""
        array = self._next() == "["
        if array:
            self._at += 1
            if self._next() == "]":
                self._at += 1
                self._expect_end()
                return
        while self._next() or array:
            yield self._value()
            if array:
                separator = self._next()
                self._at += 1
                if separator == "]":
                    self._expect_end()
                    return
                if separator != ",":
                    self._at -= 1
                    raise InputError(
                        f"{self._place()} is not JSON: expecting ',' or ']' after an array's item"
                    )

    def _value(self) -> tuple[str, Any]:
        place = self._place()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                inside = error.pos - self._at
                if not (self._cut_off(error) and self._fill()):
                    self._at += inside
                    raise InputError(f"{self._place()} is not JSON: {error.msg}") from None
            except (ValueError, RecursionError) as error:  # a number of 5,000 digits, brackets too deep
                if isinstance(error, InputError):
                    raise
                raise InputError(f"{place} is not JSON that can be read: {error}") from None
            else:
                if end < len(self._text) or not self._fill():  # else a number could go on
                    self._at = end
                    return place, value

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and sum(key == self._column for key, _ in pairs) > 1:
            raise twice(self._place(), self._column)
        return found

    def _cut_off(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _LONGEST_CUT

    def _next(self) -> str:
        """The next character that is no white space, empty at the end of the text."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _expect_end(self) -> None:
        if self._next():
            raise InputError(f"{self._place()} is not JSON: more comes after the end of the array")

    def _fill(self) -> bool:
        """Drop what is read and double the rest, at least; False at the end of the text."""
        self._count()
        kept = [self._text[self._at :]]
        length = len(kept[0])
        if length > LONGEST_ROW:
            raise too_long(self._place())
        wanted = 2 * length
        for piece in self._pieces:
            kept.append(piece)
            length += len(piece)
            if length >= wanted:
                break
        self._text, self._at, self._counted = "".join(kept), 0, 0
        return len(kept) > 1

    def _count(self) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at

    def _place(self) -> str:
        self._count()
        return f"{self._where} line {self._line}"
