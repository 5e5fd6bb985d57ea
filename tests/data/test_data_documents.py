"""Documents: boundaries, pseudo-documents, and the split of each."""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from ilr.data.documents import (
    PSEUDO_CHARACTERS,
    SPLITS,
    Boundaries,
    NonEmpty,
    assign_splits,
    first_documents,
    join_rows,
    pseudo_documents,
)
from ilr.errors import InputError

TITLE = r"^ = [^=]+ = $"
TEXT = " = A = \n\n x \n = = a = = \n y \n\n\n\n = B = \n z\r\n\nlast"


def cut(items: list[str], size: int) -> Iterator[str | None]:
    """The items in pieces of this many characters."""
    for item in items:
        for start in range(0, len(item), size):
            yield item[start : start + size]
        yield None


def joined(pieces: Iterator[str | None]) -> list[str]:
    found, parts = [], []
    for piece in pieces:
        if piece is None:
            found.append("".join(parts))
            parts = []
        else:
            parts.append(piece)
    assert not parts, "the last document is closed"
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [TEXT]),
        ("line", [line + "\n" for line in TEXT.split("\n")[:-1]] + ["last"]),
        ("paragraph", [" = A = \n\n", " x \n = = a = = \n y \n\n\n\n", " = B = \n z\r\n\n", "last"]),
        (TITLE, [" = A = \n\n x \n = = a = = \n y \n\n\n\n", " = B = \n z\r\n\nlast"]),
        ("z", [TEXT[: TEXT.index(" z")], " z\r\n\nlast"]),
    ],
)
def test_documents_begin_where_the_policy_says(document: str, expected: list[str], size: int) -> None:
    assert joined(Boundaries(document).split(cut([TEXT], size))) == expected


@pytest.mark.parametrize("document", ["file", "line", "paragraph", TITLE, "[0-9]"])
def test_documents_together_are_the_items_whatever_the_pieces(document: str) -> None:
    draw = random.Random(0)
    for _ in range(50):
        items = ["".join(draw.choices("ab1 \n\n\r=é", k=draw.randrange(60))) for _ in range(3)]
        results = [joined(Boundaries(document).split(cut(items, size))) for size in (1, 4, 1000)]
        assert results[0] == results[1] == results[2]
        assert "".join(results[0]) == "".join(items)


def test_a_pattern_that_does_not_compile_is_refused_and_matches_are_counted() -> None:
    with pytest.raises(InputError, match=r"--data\.document must be file, line, paragraph or a regular"):
        Boundaries("[")
    boundaries = Boundaries(TITLE)
    joined(boundaries.split(cut([TEXT], 7)))
    assert boundaries.matches == 2


def test_rows_are_joined_for_a_pattern_with_line_ends_only_where_missing() -> None:
    rows = [" = A = \n", "", "x", "y\n", " = B = "]
    assert "".join(piece or "" for piece in join_rows(cut(rows, 3))) == " = A = \nx\ny\n = B = \n"
    assert joined(Boundaries(TITLE).split(join_rows(cut(rows, 3)))) == [" = A = \nx\ny\n", " = B = \n"]


def test_documents_without_visible_characters_are_skipped_and_counted() -> None:
    non_empty = NonEmpty()
    kept = joined(non_empty.filter(cut(["a", "", " \n\t", "\n\n b", "\u2003"], 1)))
    assert kept == ["a", "\n\n b"]
    assert non_empty.skipped == 3


@pytest.mark.parametrize("alphabet", ["ab \n", "ab ", "ab"])
def test_pseudo_documents_partition_the_text_and_end_at_line_ends(alphabet: str) -> None:
    draw = random.Random(1)
    text = "".join(draw.choices(alphabet, k=100_000))
    results = [joined(pseudo_documents(cut([text, "short"], size))) for size in (999, 100_000)]
    assert results[0] == results[1]
    *documents, short = results[0]
    assert short == "short"
    assert "".join(documents) == text
    for document in documents[:-1]:
        assert document[-1] == alphabet[-1] or alphabet == "ab"
    if alphabet != "ab":
        assert all(
            PSEUDO_CHARACTERS <= len(document) < PSEUDO_CHARACTERS + 100 for document in documents[:-1]
        )


def test_only_the_first_documents_are_read() -> None:
    read = []

    def source() -> Iterator[str | None]:
        for number in range(9):
            read.append(number)
            yield str(number)
            yield None

    assert joined(first_documents(source(), 3)) == ["0", "1", "2"]
    assert read == [0, 1, 2]


def test_splits_depend_on_the_split_seed_alone_and_have_the_shares_asked_for() -> None:
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1}
    first = assign_splits(200, shares, split_seed=0, contiguous=False)
    assert np.bincount(first).tolist() == [160, 20, 20]
    np.random.seed(3)
    np.testing.assert_array_equal(first, assign_splits(200, shares, split_seed=0, contiguous=False))
    assert (first != assign_splits(200, shares, split_seed=1, contiguous=False)).any()
    runs = np.flatnonzero(np.diff(first))
    assert len(runs) > 20, "drawn, not cut in three"


def test_contiguous_splits_are_three_runs_in_order() -> None:
    shares = {"train": 0.8, "validation": 0.1, "test": 0.1}
    assigned = assign_splits(30, shares, split_seed=5, contiguous=True)
    assert assigned.tolist() == [0] * 24 + [1] * 3 + [2] * 3


@pytest.mark.parametrize(
    ("number", "shares", "counts"),
    [
        (3, {"train": 0.8, "validation": 0.1, "test": 0.1}, [1, 1, 1]),
        (10, {"train": 0.9, "validation": 0.1, "test": 0.0}, [9, 1, 0]),
        (9, {"train": 0.8, "test": 0.1}, [8, 0, 1]),
        (1, {"train": 0.8}, [1, 0, 0]),
    ],
)
def test_every_split_with_a_share_gets_a_document(
    number: int, shares: dict[str, float], counts: list[int]
) -> None:
    assigned = assign_splits(number, shares, split_seed=0, contiguous=False)
    assert np.bincount(assigned, minlength=len(SPLITS)).tolist() == counts


def test_too_few_documents_for_the_splits_are_refused() -> None:
    with pytest.raises(InputError, match="has 2 documents, too few for the splits train, validation, test"):
        assign_splits(2, {"train": 0.8, "validation": 0.1, "test": 0.1}, split_seed=0, contiguous=True)
