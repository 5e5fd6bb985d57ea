"""The tokenizer: trained byte-level BPE or a given tokenizer.json, and exact encoding in bounded memory.

Marker text in documents: where a document contains the literal separator, say `<|endoftext|>`, it is
encoded as the ordinary characters that it is, never as the control id, and decodes back to them.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ilr.data.corpora import Pieces
from ilr.data.documents import utf8_bytes
from ilr.errors import InputError

SEPARATOR = "<|endoftext|>"
SMALLEST_VOCABULARY = 257
"""256 bytes and the separator."""
PIECE_CHARACTERS = 1 << 13
BATCH_CHARACTERS = 1 << 19

Encoded = tuple[NDArray[np.int64], int]
"""Token ids of a piece, and its bytes in UTF-8."""


def train_tokenizer(documents: Pieces, vocab_size: int) -> Tokenizer:
    """A byte-level BPE of at most `vocab_size` entries from these documents; id 0 is the separator.

    All 256 bytes are in the alphabet, nothing is normalised: every text survives the round trip. The
    same text gives the same tokenizer, byte for byte. A small text gives fewer entries than asked
    (pairs seen once are not merged).
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pieces = (piece for piece in safe_pieces(documents) if piece is not None)
    tokenizer.train_from_iterator(pieces, trainer)
    return load_tokenizer(tokenizer.to_str())


def read_tokenizer(path: Path) -> str:
    """The content of a tokenizer.json; InputError when there is none or it is broken."""
    try:
        content = path.read_text(encoding="utf-8")
        Tokenizer.from_str(content)
    except OSError as error:
        raise InputError(f"--data.tokenizer: cannot read {path}: {error.strerror}") from None
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        raise InputError(
            f"--data.tokenizer: {path} is not a tokenizer.json of `tokenizers`: {error}"
        ) from None
    return content


def load_tokenizer(content: str, separator_token: str = SEPARATOR) -> Tokenizer:
    """A tokenizer from the text of a tokenizer.json, set to encode marker text as ordinary text.

    No truncation, no padding, nothing added around a text.
    """
    described = json.loads(content)
    for added in described.get("added_tokens", []):
        if added["content"] == separator_token:
            added["special"] = True  # only special ones can be told apart from text
    tokenizer = Tokenizer.from_str(json.dumps(described, ensure_ascii=False))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def separator_of(tokenizer: Tokenizer, separator_token: str) -> int:
    """The id of the separator; InputError naming the special tokens that there are."""
    separator = tokenizer.token_to_id(separator_token)
    if separator is None:
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        raise InputError(
            f"--data.separator_token {separator_token!r} is not in the tokenizer; "
            f"its special tokens are {', '.join(map(repr, special)) or 'none'}"
        )
    return separator


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Largest id + 1, added tokens included: the number of rows that an embedding needs."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 of the tokenizer's content."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def cuts_safely(tokenizer: Tokenizer) -> bool:
    """Whether `safe_pieces` keeps this tokenizer's result: only for the pre-tokenisation of GPT-2.

    That is a byte-level pre-tokenizer with its regular expression, no normaliser and no added token that
    matches inside text. Others see documents whole.
    """
    described = json.loads(tokenizer.to_str())
    pre_tokenizer = described["pre_tokenizer"] or {}
    return (
        described["normalizer"] is None
        and pre_tokenizer.get("type") == "ByteLevel"
        and pre_tokenizer.get("use_regex", True)
        and not pre_tokenizer.get("add_prefix_space")
        and all(added["special"] for added in described.get("added_tokens", []))
    )


_LINE_END = re.compile(r"\n(?=[\w!-~])")
_SPACE = re.compile(r" (?=[\w!-~])")


def safe_pieces(documents: Pieces, size: int = PIECE_CHARACTERS) -> Pieces:
    r"""Documents in pieces of about `size` characters that the GPT-2 expression splits as if uncut.

    A cut lies before a line feed (else a space) that a visible character follows. Of a run of white
    space the expression takes the last character apart from the rest (`\s+(?!\S)`), a line feed alone and
    a space together with the word; so a pre-token ends there in any case, and begins there too. Text
    without such a place stays whole.
    """
    text, searched = "", 0
    for piece in documents:
        if piece is not None:
            text += piece
        # The character after the white space must be there to be looked at: hence the end of the search.
        while len(text) > 2 * size:
            begin = max(size, searched)
            cut = _LINE_END.search(text, begin) or _SPACE.search(text, begin)
            if cut is None:
                searched = len(text) - 1
                break
            yield text[: cut.start()]
            text, searched = text[cut.start() :], 0
        if piece is None:
            if text:
                yield text
            yield None
            text, searched = "", 0


def whole_documents(documents: Pieces) -> Pieces:
    """Each document in one piece."""
    parts: list[str] = []
    for piece in documents:
        if piece is not None:
            parts.append(piece)
        else:
            yield "".join(parts)
            yield None
            parts = []


def encode_documents(documents: Pieces, tokenizer: Tokenizer, separator: int) -> Iterator[Encoded | None]:
    """Token ids piece by piece, None after each document; equal to encoding each document in one go.

    Works on batches of about half a megabyte, in parallel where `tokenizers` is. One piece of each batch is
    decoded again and must give its text: InputError says where it does not.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    pieces = safe_pieces(documents) if cuts_safely(tokenizer) else whole_documents(documents)
    for batch in _batches(pieces):
        texts = [piece for piece in batch if piece is not None]
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        if texts:
            check_round_trip(tokenizer, texts[0], ids[0])
        found = iter(ids)
        for piece in batch:
            if piece is None:
                yield None
                continue
            piece_ids = next(found)
            if (piece_ids == separator).any():
                raise InputError(
                    f"the tokenizer turns text of a document into the separator's id {separator}; "
                    "choose another --data.separator_token"
                )
            yield piece_ids, utf8_bytes(piece)


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


def check_round_trip(tokenizer: Tokenizer, text: str, ids: NDArray[np.int64]) -> None:
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
