"""Where documents begin and end, and which split each belongs to."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ilr.data.corpora import Pieces
from ilr.data.order import permutation
from ilr.data.rows import LONGEST_ROW, too_long
from ilr.errors import InputError

SPLITS = ("train", "validation", "test")
EVALUATED = SPLITS[1:]
FEWEST_DOCUMENTS = 20
"""Fewer documents than this are cut into pseudo-documents."""
PSEUDO_CHARACTERS = 8192
"""About 2,048 tokens of four characters; no tokenizer is asked, so that documents are the same for all."""
LONGEST_PSEUDO = 4 * PSEUDO_CHARACTERS


class Boundaries:
    """Cuts items into documents: file, line, paragraph, or a pattern at which a new document starts.

    Documents are cut at line starts and keep every character, so that together they give the item back.
    *file*: the whole item (a row, for data sets). *line*: one line with its end. *paragraph*: up to and
    with the blank lines that end it. Anything else is a regular expression, looked for in each line
    (without its line end); a line where it is found opens a document. `matches` counts those. With an
    expression the rows of a data set are joined first: in some, a row is a line.
    """

    def __init__(self, document: str) -> None:
        self.document = document
        self.matches = 0
        self.by_pattern = document not in ("file", "line", "paragraph")
        try:
            self._pattern = re.compile(document)
        except re.error as error:
            raise InputError(
                f"--data.document must be file, line, paragraph or a regular expression, got {document!r}: "
                f"{error}"
            ) from None

    def split(self, pieces: Pieces) -> Pieces:
        """Documents, each closed by None, from items."""
        if self.document == "file":
            yield from pieces
            return
        opened, blank = False, False
        for line in lines(pieces):
            if line is None:
                yield None  # an item without text too is a document, an empty one
                opened, blank = False, False
                continue
            if opened and self._starts(line, blank):
                yield None
            elif not opened:
                self._starts(line, blank)
            opened, blank = True, not line.strip()
            yield line

    def _starts(self, line: str, after_blank: bool) -> bool:
        match self.document:
            case "line":
                return True
            case "paragraph":
                return after_blank and bool(line.strip())
            case _:
                found = self._pattern.search(line.rstrip("\r\n")) is not None
                self.matches += found
                return found


def join_rows(pieces: Pieces) -> Pieces:
    """All items as one, each ended by a line feed if it has text and ends without."""
    last = "\n"
    for piece in pieces:
        if piece:
            last = piece
            yield piece
        elif piece is None and not last.endswith("\n"):
            last = "\n"
            yield last
    yield None


def lines(pieces: Pieces) -> Pieces:
    """The same text in whole lines (ended by a line feed), whatever the pieces were.

    InputError for a line that is longer than the longest row: lines are held in memory.
    """
    rest: list[str] = []
    length = 0
    for piece in pieces:
        if piece is None:
            if rest:
                yield "".join(rest)
                rest, length = [], 0
            yield None
        elif "\n" in piece:
            *whole, last = piece.split("\n")
            whole[0] = "".join([*rest, whole[0]])
            for line in whole:
                yield line + "\n"
            rest, length = ([last] if last else []), len(last)
        else:
            rest.append(piece)
            length += len(piece)
            if length > LONGEST_ROW:
                raise too_long("a line of the corpus")


def pseudo_documents(pieces: Pieces) -> Pieces:
    """Cut each document at the first line end after 8,192 characters, about 2,048 tokens.

    A line too long for that is cut after a space, without spaces anywhere. The cuts depend on the text
    alone, not on how it came in pieces.
    """
    text = ""
    for piece in pieces:
        text += piece or ""
        start = 0
        while len(text) - start > LONGEST_PSEUDO or (
            piece is None and len(text) - start > PSEUDO_CHARACTERS * 3 // 2
        ):
            end = _pseudo_end(text, start)
            yield text[start:end]
            yield None
            start = end
        text = text[start:]
        if piece is None:
            if text:
                yield text
                yield None
            text = ""


def _pseudo_end(text: str, start: int) -> int:
    shortest, longest = start + PSEUDO_CHARACTERS, start + LONGEST_PSEUDO
    cut = text.find("\n", shortest - 1, longest)
    if cut < 0:
        cut = text.find(" ", shortest - 1, longest)
    return cut + 1 if cut >= 0 else min(longest, len(text))


class NonEmpty:
    """Leaves out documents without any visible character; `skipped` counts them."""

    def __init__(self) -> None:
        self.skipped = 0

    def filter(self, documents: Pieces) -> Pieces:
        """The other documents, unchanged."""
        blank: list[str] = []
        visible, length = False, 0
        for piece in documents:
            if piece is None:
                if visible:
                    yield None
                else:
                    self.skipped += 1
                blank, visible, length = [], False, 0
            elif visible:
                yield piece
            elif piece.strip():
                visible = True
                yield from blank
                yield piece
            else:
                blank.append(piece)
                length += len(piece)
                if length > LONGEST_ROW:
                    raise too_long("the white space at the start of a document")


def first_documents(documents: Pieces, limit: int | None) -> Pieces:
    """The first `limit` documents, all for None; nothing beyond them is read."""
    if limit is None:
        yield from documents
        return
    for piece in documents:
        yield piece
        if piece is None:
            limit -= 1
            if limit == 0:
                return


def select(documents: Pieces, chosen: NDArray[np.bool_]) -> Iterator[str | None]:
    """The documents whose number is chosen."""
    number = 0
    for piece in documents:
        if chosen[number]:
            yield piece
        number += piece is None


def assign_splits(
    num_documents: int, shares: dict[str, float], *, split_seed: int, contiguous: bool
) -> NDArray[np.uint8]:
    """The split of each document as an index into SPLITS.

    Shares need not sum to 1; a split of share 0 gets nothing, every other at least one document. Drawn by
    a permutation of `split_seed` alone, or in order when contiguous (pseudo-documents: neighbours of one
    text in different splits would leak).
    """
    wanted = {split: share for split, share in shares.items() if share > 0}
    if num_documents < len(wanted):
        raise InputError(
            f"--data.corpus has {num_documents} documents, too few for the splits {', '.join(wanted)}; "
            "give more text, cut it finer with --data.document, or set a share of --data.splits to 0"
        )
    total = sum(wanted.values())
    counts = {s: max(1, round(num_documents * wanted[s] / total)) for s in wanted if s != "train"}
    counts["train"] = num_documents - sum(counts.values())
    if counts["train"] < 1:
        raise InputError(f"--data.splits leaves no document of {num_documents} to train on: {counts}")
    places = np.arange(num_documents) if contiguous else permutation(num_documents, "split", split_seed)
    assigned = np.empty(num_documents, dtype=np.uint8)
    start = 0
    for index, split in enumerate(SPLITS):
        end = start + counts.get(split, 0)
        assigned[places[start:end]] = index
        start = end
    return assigned


def utf8_bytes(text: str) -> int:
    """Bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
