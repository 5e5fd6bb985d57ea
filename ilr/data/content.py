"""What corpora say, as one hash: the same text in another file, container or compression has the same."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ilr.data.corpora import Pieces, Source, combine
from ilr.data.documents import join_rows

READING = "1"
"""Part of what is remembered: raise it when the same bytes are read as other items than before."""


def corpus_items(sources: Sequence[Source], *, joined: bool) -> Pieces:
    """The items of all sources in order; the rows of each source joined to one if so asked."""
    for source in sources:
        yield from join_rows(source.pieces()) if joined and source.rows else source.pieces()


class ContentHash:
    """SHA-256 over items, each by the SHA-256 of its UTF-8 bytes, however it came in pieces."""

    def __init__(self) -> None:
        self._all, self._item = hashlib.sha256(), hashlib.sha256()

    def watch(self, pieces: Iterable[str | None]) -> Iterator[str | None]:
        """The same pieces, entered into the hash as they pass."""
        for piece in pieces:
            if piece is None:
                self._all.update(self._item.digest())
                self._item = hashlib.sha256()
            else:
                self._item.update(piece.encode())
            yield piece

    def hexdigest(self) -> str:
        """The hash of the items that have passed."""
        return self._all.hexdigest()


def content_hash(sources: Sequence[Source], cache: Path, *, joined: bool) -> str:
    """The hash of the items of these sources (`corpus_items`).

    Reading much text takes long, so the hash is remembered in `cache / content` by a hash of the stored
    bytes. A cache that cannot be written is no error here.
    """
    fingerprints = [source.fingerprint() for source in sources]
    known = [fingerprint for fingerprint in fingerprints if fingerprint is not None]
    if len(known) < len(fingerprints):
        return _read(sources, joined=joined)
    remembered = cache / "content" / combine(READING, str(joined), *known)
    try:
        content = remembered.read_text(encoding="ascii")
        if re.fullmatch("[0-9a-f]{64}", content):
            return content
    except (OSError, ValueError):
        pass
    content = _read(sources, joined=joined)
    if [source.fingerprint() for source in sources] != fingerprints:
        return content  # something writes to them: not to be remembered for either state
    partial = remembered.with_name(f"{remembered.name}.{os.getpid()}.partial")
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(content, encoding="ascii")
        partial.replace(remembered)
    except OSError:
        with suppress(OSError):
            partial.unlink()
    return content


def _read(sources: Sequence[Source], *, joined: bool) -> str:
    content = ContentHash()
    for _ in content.watch(corpus_items(sources, joined=joined)):
        pass
    return content.hexdigest()
