"""The tokenizer: trained byte-level BPE or a given tokenizer.json."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ilr.data.corpora import Pieces
from ilr.data.pieces import safe_pieces
from ilr.errors import InputError

SEPARATOR = "<|endoftext|>"
SMALLEST_VOCABULARY = 257
"""256 bytes and the separator."""
LARGEST_VOCABULARY = 2**22
"""The trainer reserves memory for as many entries as are asked for; the largest in public use have a million."""


class TokenizerError(Exception):
    """What `tokenizers` says of a file or a text that it cannot take."""


@contextmanager
def library_errors() -> Iterator[None]:
    """Make a `TokenizerError` of what `tokenizers` raises: bare Exception, or a panic, which is none."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError(str(error)) from None


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
    """The content of a tokenizer.json; InputError when there is none, it is broken or cannot be used."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"--data.tokenizer: cannot read {path}: {reason}") from None
    load_tokenizer(content, name=f"--data.tokenizer: {path}")
    return content


def load_tokenizer(
    content: str, separator_token: str = SEPARATOR, name: str = "--data.tokenizer"
) -> Tokenizer:
    """A tokenizer from the text of a tokenizer.json, set to encode marker text as ordinary text.

    The one loader: training, evaluation and generation use it, so that all have one encoding
    (`ilr.data.encoding`). No truncation, no padding, nothing added around a text. Raises InputError, with
    `name` for the file, for what is no tokenizer.json or gives the same text other ids each time.
    """
    try:
        with library_errors():
            Tokenizer.from_str(content)
            described = json.loads(content)
    except TokenizerError as error:
        raise InputError(f"{name} is not a tokenizer.json of `tokenizers`: {error}") from None
    if dropout := described["model"].get("dropout"):
        raise InputError(
            f"{name}: its model has dropout {dropout}, so that the same text gets other ids each time; "
            'set "dropout" to null in the file'
        )
    for added in described.get("added_tokens") or []:
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
