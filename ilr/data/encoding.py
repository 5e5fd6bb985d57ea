"""Text to token ids, exactly, in bounded memory: what was encoded before is looked up.

Marker text in documents: where a document contains the literal separator, say `<|endoftext|>`, it is
encoded as the ordinary characters that it is, never as the control id, and decodes back to them.
"""

import os
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ilr.data.corpora import Pieces
from ilr.data.documents import utf8_bytes
from ilr.data.pieces import cuts_safely, safe_pieces, whole_documents, words
from ilr.errors import InputError

BATCH_CHARACTERS = 1 << 19
KEPT_WORDS = 1 << 17
LONGEST_KEPT = 32
"""Words kept, and characters of the longest: at most some 40 MB."""

Encoded = tuple[NDArray[np.uint32], int]
"""Token ids of a piece, and its bytes in UTF-8."""


def encode_documents(documents: Pieces, tokenizer: Tokenizer, separator: int) -> Iterator[Encoded | None]:
    """Token ids piece by piece, None after each document; equal to encoding each document in one go.

    Works on batches of about half a megabyte, in parallel where `tokenizers` is. One piece of each batch is
    decoded again and must give its text: InputError says where it does not.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    cut = cuts_safely(tokenizer)
    known = _Known(tokenizer, separator)
    for batch in _batches(safe_pieces(documents) if cut else whole_documents(documents)):
        texts = [piece for piece in batch if piece is not None]
        found = iter(known.ids([words(text) for text in texts] if cut else [[text] for text in texts]))
        checked = False
        for piece in batch:
            if piece is None:
                yield None
                continue
            ids = next(found)
            if not checked:
                check_round_trip(tokenizer, piece, ids)
                checked = True
            yield ids, utf8_bytes(piece)


class _Known:
    """The ids of texts that are encoded each alone; those of short ones are kept for the next time."""

    def __init__(self, tokenizer: Tokenizer, separator: int) -> None:
        self._tokenizer, self._separator = tokenizer, separator
        self._known: dict[str, bytes] = {}

    def ids(self, rows: list[list[str]]) -> list[NDArray[np.uint32]]:
        """The ids of each row of texts, one after another."""
        new = set().union(*rows).difference(self._known)
        if len(self._known) + len(new) > KEPT_WORDS:
            self._known = {}
            new = set().union(*rows)
        self._add(list(new))
        found = [np.frombuffer(b"".join(map(self._known.__getitem__, row)), dtype=np.uint32) for row in rows]
        for text in new:
            if len(text) > LONGEST_KEPT:
                del self._known[text]
        return found

    def _add(self, texts: list[str]) -> None:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            ids = encoding.ids
            if self._separator in ids:
                raise InputError(
                    f"the tokenizer turns text of a document into the separator's id {self._separator}; "
                    "choose another --data.separator_token"
                )
            self._known[text] = array("I", ids).tobytes()


def _batches(pieces: Iterable[str | None]) -> Iterator[list[str | None]]:
    batch: list[str | None] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece or "")
        # Empty pieces cost memory too, hence the second limit.
        if size >= BATCH_CHARACTERS or len(batch) >= 8192:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def check_round_trip(tokenizer: Tokenizer, text: str, ids: NDArray[np.uint32]) -> None:
    """InputError when decoding the ids does not give the text back, with the first difference."""
    decoded = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
    if decoded == text:
        return
    shorter = min(len(text), len(decoded))
    at = next((i for i in range(shorter) if text[i] != decoded[i]), shorter)
    raise InputError(
        "the tokenizer does not give the text back, so bits per byte would mean nothing: "
        f"{text[at : at + 30]!r} became {decoded[at : at + 30]!r} (--data.tokenizer)"
    )
