"""Documents of another text that a run was trained on: found by their texts, in the run's prepared data."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ilr.data.cache import cache_directory, intact
from ilr.data.corpora import Pieces
from ilr.data.duplicates import census, duplicates, twins
from ilr.data.manifest import Manifest
from ilr.data.prepared import PreparedData
from ilr.data.recorded import RunText
from ilr.data.tokens import DocumentTable

MOST_BYTES = 2**28
"""Largest training text, in bytes, that is looked through: half a minute."""


def seen_in_training(
    text: RunText,
    max_train_tokens: int | None,
    cache: Path,
    name: str,
    other: Manifest,
    documents: Iterable[str],
    table: DocumentTable,
) -> Iterator[str]:
    """What is to be said, if anything, of these documents of the split or text ``name``, prepared as ``other``: how
    many of them the run of ``text`` was trained on, or that this is not known.
    """
    key = text.key
    places = () if key is None else dict.fromkeys([cache / key, cache_directory(None) / key])
    place = next((place for place in places if intact(place) is not None), None)
    train = None if place is None else PreparedData(place, max_train_tokens)
    if train is None or train.manifest.splits["train"].bytes > MOST_BYTES:
        why = "its prepared data are not in the cache" if train is None else "its text is large"
        yield f"whether the run was trained on documents of this {name} text was not looked up: {why}"
        return
    if other.corpus_hash == train.manifest.corpus_hash and other.document != train.manifest.document:
        yield f"these {name} documents are the corpus of the run cut otherwise: parts of them were trained on"
    known = census(_closed(train.texts("train"))).digests
    found = duplicates(twins(known, census(_closed(documents)).digests), table, len(known))
    if found.documents:
        share = 100 * found.tokens / int(table.tokens.sum())
        yield (
            f"the run was trained on {found.documents:,} of the {len(table):,} {name} documents "
            f"({share:.1f}% of the tokens)"
        )


def _closed(documents: Iterable[str]) -> Pieces:
    for document in documents:
        yield document
        yield None
