"""Tokens to text, piece by piece, for a terminal that shows them as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer

UNFINISHED = "\ufffd"
"""What the beginning of a character's bytes is decoded to."""


class TextStream:
    """Text of a growing token sequence after ``prompt``; the pieces joined are the text of the whole.

    A character whose UTF-8 bytes lie in several tokens comes out when its last byte has come. The separator
    has no text; all other tokens have theirs, also those that the tokenizer calls special.
    """

    def __init__(self, tokenizer: Tokenizer, separator: int, prompt: Sequence[int] = ()) -> None:
        self._tokenizer, self._separator = tokenizer, separator
        # The last tokens: some whose text is out, as what comes first is decoded otherwise than what follows
        # (a space before it falls away), and behind them those that still owe theirs.
        self._tokens: list[int] = []
        self._num_shown, self._shown = 0, ""
        for token in prompt:
            self.feed(token)

    def feed(self, token: int) -> str:
        """What has become printable with this token; empty in the middle of a character."""
        if token == self._separator:
            return ""
        self._tokens.append(token)
        text = self._decoded(self._tokens)
        if len(text) <= len(self._shown) or text.endswith(UNFINISHED):
            return ""
        piece = text[len(self._shown) :]
        del self._tokens[: self._num_shown]
        self._num_shown, self._shown = len(self._tokens), self._decoded(self._tokens)
        return piece

    def rest(self) -> str:
        """What the end of the text still owes: bytes of a character that never became whole (as U+FFFD)."""
        return self._decoded(self._tokens)[len(self._shown) :]

    def _decoded(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))
