"""Which tokens of a text the next one is predicted from, past the context too.

One rule for rope, alibi and none: up to the context everything is seen; a text one longer drops half a
context from its beginning, and what is left is run again from position 0. The window is a function of the
text's length alone, so that it is the same with and without a cache, alone and in a batch, and no position
is ever used that training has not seen. Learned positions stop at the context instead.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ilr.errors import InputError
from ilr.model.config import DecoderConfig


def window_start(length: int, context: int) -> int:
    """First token seen of a text of ``length`` tokens: the smallest multiple of half the context that leaves
    at most ``context``.
    """
    half = max(context // 2, 1)
    return max(0, -(-(length - context) // half)) * half


def check_room(config: DecoderConfig, longest_prompt: int, max_new_tokens: int) -> None:
    """Raise `InputError` where learned positions end before the text would."""
    # The last new token is written, never read: it needs no position.
    needed = longest_prompt + max_new_tokens - 1
    if config.positions == "learned" and needed > config.context:
        raise InputError(
            f"learned positions end at the context of {config.context} tokens: a prompt of "
            f"{longest_prompt} and {max_new_tokens} new tokens need {needed}; "
            f"this prompt leaves room for {max(0, config.context + 1 - longest_prompt)}"
        )


def left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, T) with the rows flush right, and how many to the left of each are padding (B,); None where
    no row needs any.
    """
    longest = max(map(len, rows))
    padding = [longest - len(row) for row in rows]
    tokens = torch.tensor(
        [[0] * pad + list(row) for pad, row in zip(padding, rows, strict=True)], device=device
    )
    return tokens, torch.tensor(padding, device=device) if any(padding) else None
