"""Tokens to text, piece by piece, for a terminal that shows them as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """Text of a growing token sequence after ``prompt``; the pieces joined are the text of the whole.

    A character whose UTF-8 bytes lie in several tokens comes out when its last byte has come. The separator
    has no text; all other tokens have theirs, also those that the tokenizer calls special.
    """

    def __init__(self, tokenizer: Tokenizer, separator: int, prompt: Sequence[int] = ()) -> None:
        self._tokenizer, self._separator = tokenizer, separator
        self._stream = DecodeStream(skip_special_tokens=False)
        self._tokens: list[int] = []
        self._num_printed = 0
        for token in prompt:
            self.feed(token)

    def feed(self, token: int) -> str:
        """What has become printable with this token; empty in the middle of a character."""
        if token == self._separator:
            return ""
        self._tokens.append(token)
        piece = self._stream.step(self._tokenizer, token) or ""
        self._num_printed += len(piece)
        return piece

    def rest(self) -> str:
        """What the end of the text still owes: bytes of a character that never became whole (as U+FFFD)."""
        return self._tokenizer.decode(self._tokens, skip_special_tokens=False)[self._num_printed :]
