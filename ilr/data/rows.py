"""What a row is, the same in every container: which texts count, which are empty, what is refused."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ilr.data.corpora import Pieces, Source
from ilr.errors import InputError

LONGEST_ROW = 1 << 28
"""Characters (or bytes) of the longest row: a row is held in memory whole."""


@dataclass(frozen=True)
class Missing:
    """Stands for the text of a row that has no such column; `columns` are those that it has."""

    columns: tuple[str, ...]


class Rows(Source):
    """Rows of a table, each an item; the rules for them.

    - The text is kept as it is, a U+FEFF at its start included (at the start of a file it is a mark).
    - Null, and a row without the column where others have it, are empty texts: skipped and counted like
      all documents without a visible character.
    - Bytes are UTF-8.
    - InputError: a file none of whose rows has the column, a column that is there twice, a value that is
      no text, text that is no Unicode (a lone surrogate, other bytes than UTF-8), a row too long.
    """

    rows = True
    column: str

    @abstractmethod
    def values(self) -> Iterator[tuple[str, object]]:
        """The value of each row's column, after the row's place ("line 3" of a file)."""

    def pieces(self) -> Pieces:
        """The rows' texts, by the rules above."""
        where, others = "", dict[str, None]()
        found = False
        for place, value in self.values():
            if isinstance(value, Missing):
                where = where or place
                if len(others) < _MOST_NAMED:
                    others.update(dict.fromkeys(value.columns))
                yield ""
            else:
                found = True
                yield row_text(value, place, self.column)
            yield None
        if where and not found:
            raise InputError(missing_column(where, self.column, others))


def row_text(value: object, place: str, column: str) -> str:
    """The text that a row holds, empty for null; InputError naming the place for what is no text."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: column {column!r} is not UTF-8: {error.reason}") from None
    if not isinstance(value, str):
        raise InputError(f"{place}: column {column!r} must hold text, got {type(value).__name__}")
    if len(value) > LONGEST_ROW:
        raise too_long(place)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}: {column!r} holds a lone surrogate, no text") from None
    return value


def too_long(place: str) -> InputError:
    """The error for a row that does not fit into memory."""
    return InputError(f"{place} is longer than {LONGEST_ROW:,} characters, which are held in memory at once")


_MOST_NAMED = 20


def missing_column(where: str, column: str, existing: Iterable[str]) -> str:
    """The message for a column that is not there, naming those that are."""
    names = sorted(existing)
    listed = ", ".join(name if len(name) <= 40 else name[:40] + "…" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{where} has no column {column!r}; it has {listed or 'none'}{more} (--data.column)"


def twice(where: str, column: str) -> InputError:
    """The error for a column whose name is there twice: either could be meant."""
    return InputError(f"{where} has the column {column!r} twice; give the columns different names")
