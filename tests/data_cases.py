"""Sixty short lines as a corpus, and data modules over it, for the tests of the data."""

from pathlib import Path
from typing import Any

from ilr.data import TextData


def squares(lines: int) -> list[str]:
    """Lines that differ and yet repeat their words."""
    return [
        f"line {number} says that {number} times {number} is {number * number}\n" for number in range(lines)
    ]


LINES = squares(60)


def text_data(corpus: Path | list[str] | str, cache: Path, **options: Any) -> TextData:
    """A data module with a tiny vocabulary and context, a document a line; nothing is made yet."""
    given = corpus if isinstance(corpus, list) else str(corpus)
    settings: dict[str, Any] = {"vocab_size": 300, "context": 8, "document": "line", **options}
    return TextData(given, cache_dir=str(cache), **settings)


def ready(*args: Any, **options: Any) -> TextData:
    """The same, prepared and opened."""
    data = text_data(*args, **options)
    data.setup()
    return data


def text(data: TextData) -> list[str]:
    """All documents as they were, split after split."""
    return [document for split in ("train", "validation", "test") for document in data.text_of(split)]
