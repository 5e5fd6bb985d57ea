"""Tokens to text, piece by piece, for a terminal that shows them as they come."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """Text of a growing token sequence after ``prompt``; the pieces joined are the text of the whole.

    A character whose UTF-8 bytes lie in several tokens comes out when its last byte has come. Special
    tokens, such as the separator, have no text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._num_printed = 0
        for token in prompt:
            self.feed(token)

    def feed(self, token: int) -> str:
        """What has become printable with this token; empty in the middle of a character."""
        self._tokens.append(token)
        piece = self._stream.step(self._tokenizer, token) or ""
        self._num_printed += len(piece)
        return piece

    def rest(self) -> str:
        """What the end of the text still owes: bytes of a character that never became whole (as U+FFFD)."""
        return self._tokenizer.decode(self._tokens, skip_special_tokens=True)[self._num_printed :]
