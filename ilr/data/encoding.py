"""Text to token ids, exactly, in bounded memory: what was encoded before is looked up.

The one way in which text becomes ids: of documents that are trained on or evaluated, and of prompts. Marker
text: where a text contains the literal separator, say `<|endoftext|>`, or another special token, it is encoded
as the ordinary characters that it is, never as the control id, and decodes back to them. Nothing is put around
a text. All ids are decoded again and must give the text: no byte is lost without a word.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ilr.data.corpora import Pieces
from ilr.data.documents import utf8_bytes
from ilr.data.pieces import cuts_safely, safe_pieces, whole_documents, words
from ilr.data.tokenizer import TokenizerError, library_errors
from ilr.errors import InputError

BATCH_CHARACTERS = 1 << 19
KEPT_WORDS = 1 << 17
LONGEST_KEPT = 32
"""Words kept, and characters of the longest: at most some 40 MB."""

LOSSLESS = (
    ", so bits per byte would mean nothing (--data.tokenizer); give none, then one is trained that keeps "
    "every text, or train a lossless one: models.BPE, no normalizer, pre_tokenizers.ByteLevel("
    "add_prefix_space=False), decoders.ByteLevel(), and a BpeTrainer with "
    "initial_alphabet=pre_tokenizers.ByteLevel.alphabet()"
)
"""What to do about a tokenizer that loses text."""

Encoded = tuple[NDArray[np.uint32], int]
"""Token ids of a piece, and its bytes in UTF-8."""


def encode_documents(
    documents: Pieces,
    tokenizer: Tokenizer,
    separator: int,
    place: Callable[[int], str] = "document {}".format,
) -> Iterator[Encoded | None]:
    """Token ids piece by piece, None after each document; equal to encoding each document in one go.

    Works on batches of about half a megabyte, in parallel where `tokenizers` is. Raises `Misencoded` for
    the first document that the ids do not give back, as `place` calls it by its number (from 1).
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    cut = cuts_safely(tokenizer)
    known = _Known(tokenizer, separator)
    number = 1
    for batch in _batches(safe_pieces(documents) if cut else whole_documents(documents)):
        rows = [None if piece is None else words(piece) if cut else [piece] for piece in batch]
        try:
            found = iter(known.ids([row for row in rows if row is not None]))
        except _Misencoded as error:
            where, wrong = _located(error.wrong, rows, number, place)
            raise Misencoded(f"{where}: {wrong.fact}", wrong.advice) from None
        for piece in batch:
            number += piece is None
            yield None if piece is None else (next(found), utf8_bytes(piece))


def encode_text(text: str, tokenizer: Tokenizer, separator: int, name: str) -> list[int]:
    """The ids that a document of this text has in training, without the separator after it.

    Raises InputError, with `name` for what the text is, where the ids do not give it back.
    """
    encoded = encode_documents(iter((text, None)), tokenizer, separator, lambda _: name)
    try:
        return [token for piece in encoded if piece is not None for token in piece[0].tolist()]
    except Misencoded as error:
        raise InputError(error.fact) from None


class Misencoded(InputError):
    """Ids that do not give a text back: the fact, and what to do about it where a tokenizer can be chosen."""

    def __init__(self, fact: str, advice: str) -> None:
        super().__init__(fact + advice)
        self.fact = fact


@dataclass(frozen=True)
class _Wrong:
    """What is wrong with the ids of a text, and what to do about it."""

    fact: str
    advice: str = ""


class _Misencoded(Exception):
    """Texts whose ids are wrong, each with the reason."""

    def __init__(self, wrong: dict[str, _Wrong]) -> None:
        super().__init__(wrong)
        self.wrong = wrong


class _Known:
    """The ids of texts that are encoded each alone; those of short ones are kept for the next time."""

    def __init__(self, tokenizer: Tokenizer, separator: int) -> None:
        self._tokenizer, self._separator = tokenizer, separator
        self._known: dict[str, bytes] = {}

    def ids(self, rows: list[list[str]]) -> list[NDArray[np.uint32]]:
        """The ids of each row of texts, one after another; raises `_Misencoded`."""
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
        try:
            with library_errors():
                encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
                rows = [encoding.ids for encoding in encodings]
                decoded = self._tokenizer.decode_batch(rows, skip_special_tokens=False)
        except TokenizerError as error:
            if len(texts) == 1:
                fact = f"the tokenizer cannot encode {_excerpt(texts[0])}: {error}"
                raise _Misencoded({texts[0]: _Wrong(fact)}) from None
            wrong: dict[str, _Wrong] = {}
            for text in texts:  # which one it was is to be said
                try:
                    self._add([text])
                except _Misencoded as one:
                    wrong |= one.wrong
            if wrong:
                raise _Misencoded(wrong) from None
            return
        wrong = {
            text: _Wrong(_difference(text, back), LOSSLESS)
            for text, back in zip(texts, decoded, strict=True)
            if text != back
        }
        for text, ids in zip(texts, rows, strict=True):
            if self._separator in ids:
                wrong[text] = _Wrong(
                    f"the tokenizer turns {_excerpt(text)} into the separator's id {self._separator}; choose "
                    "another --data.separator_token"
                )
            self._known[text] = array("I", ids).tobytes()
        if wrong:
            raise _Misencoded(wrong)


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


def _located(
    wrong: dict[str, _Wrong], rows: list[list[str] | None], number: int, place: Callable[[int], str]
) -> tuple[str, _Wrong]:
    """The place of the first of these texts in the order of the rows, of which the first belongs to document
    `number`, and what is wrong with it.
    """
    for row in rows:
        number += row is None
        for text in row or ():
            if text in wrong:
                return place(number), wrong[text]
    raise AssertionError("a text that is in no row")


def _difference(text: str, decoded: str) -> str:
    shorter = min(len(text), len(decoded))
    at = next((i for i in range(shorter) if text[i] != decoded[i]), shorter)
    begin = max(0, at - 10)
    return (
        "the tokenizer does not give the text back: "
        f"{_excerpt(text[begin:])} became {_excerpt(decoded[begin:])}"
    )


def _excerpt(text: str) -> str:
    return repr(text[:40])
