"""Documents in pieces that a tokenizer encodes each alone as it would within the document."""

import json
import re

from tokenizers import Tokenizer

from ilr.data.corpora import Pieces

PIECE_CHARACTERS = 1 << 13


def cuts_safely(tokenizer: Tokenizer) -> bool:
    """Whether `safe_pieces` keeps this tokenizer's result: only for the pre-tokenisation of GPT-2.

    That is a byte-level pre-tokenizer with its regular expression, no normaliser and no added token that
    matches inside text; and its decoder, which gives a document back as its pieces one after another. Others
    see documents whole.
    """
    described = json.loads(tokenizer.to_str())
    pre_tokenizer = described["pre_tokenizer"] or {}
    return (
        described["normalizer"] is None
        and (described["decoder"] or {}).get("type") == "ByteLevel"
        and pre_tokenizer.get("type") == "ByteLevel"
        and pre_tokenizer.get("use_regex", True)
        and not pre_tokenizer.get("add_prefix_space")
        and all(added["special"] for added in described.get("added_tokens", []))
    )


_LINE_END = re.compile(r"\n(?=[\w!-~])")
_SPACE = re.compile(r" (?=[\w!-~])")
_WORD = re.compile(r".[^ \n]*(?:[ \n](?![\w!-~])[^ \n]*)*", re.DOTALL)


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


def words(text: str) -> list[str]:
    """The text cut at every place at which `safe_pieces` may cut: mostly words with the space before."""
    return _WORD.findall(text)
