"""Streaming text: the pieces joined are the whole, whatever the tokens are."""

import random

import pytest
from tokenizer_cases import CASES, PLAIN, Case
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ilr.data.encoding import encode_text
from ilr.data.tokenizer import load_tokenizer
from ilr.generation.text import TextStream

TEXT = "Grüße, 世界! 😀 naïve café — “quoted” 👩‍👩‍👧 "


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Byte-level, with so few merges that most characters outside ASCII are several tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["hello world " * 9],
        trainers.BpeTrainer(
            vocab_size=270, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
        ),
    )
    return made


def test_characters_split_over_tokens_come_out_whole(tokenizer) -> None:
    tokens = tokenizer.encode(TEXT).ids
    assert len(tokens) > len(TEXT)
    stream = TextStream(tokenizer, 0)
    pieces = [stream.feed(token) for token in tokens]
    assert "".join(pieces) == TEXT
    assert "�" not in "".join(pieces)
    assert "" in pieces
    assert stream.rest() == ""


def test_a_text_cut_inside_a_character_ends_with_a_replacement_and_loses_nothing(tokenizer) -> None:
    tokens = tokenizer.encode("ab😀").ids[:-1]
    stream = TextStream(tokenizer, 0)
    assert "".join(stream.feed(token) for token in tokens) == "ab"
    assert stream.rest() == "�"


def test_random_tokens_give_the_text_of_the_whole(tokenizer) -> None:
    draw = random.Random(0)
    for _ in range(200):
        tokens = [draw.randrange(tokenizer.get_vocab_size()) for _ in range(60)]
        prompt, new = tokens[:20], tokens[20:]
        alone = TextStream(tokenizer, 0)
        assert "".join(map(alone.feed, tokens)) + alone.rest() == tokenizer.decode(tokens)
        after = TextStream(tokenizer, 0, prompt)
        continued = "".join(map(after.feed, new)) + after.rest()
        assert tokenizer.decode(tokens).endswith(continued)


def test_the_separator_has_no_text(tokenizer) -> None:
    stream = TextStream(tokenizer, 0)
    separator = tokenizer.token_to_id("<|endoftext|>")
    hello = tokenizer.encode("hello").ids
    assert "".join(map(stream.feed, [*hello, separator, *hello])) == "hellohello"


@pytest.mark.parametrize("case", [case for case in CASES if case.refused is None], ids=lambda case: case.name)
def test_texts_and_random_tokens_come_out_through_any_tokenizer(case: Case) -> None:
    """Right numbers, point 5: prompts and what follows, whatever decodes them."""
    tokenizer = load_tokenizer(case.build().to_str())
    for text in (case.odd, *PLAIN[:5]):
        tokens = encode_text(text, tokenizer, 0, "the prompt")
        stream = TextStream(tokenizer, 0)
        assert "".join(map(stream.feed, tokens)) + stream.rest() == text
    draw = random.Random(1)
    for _ in range(20):
        stream = TextStream(tokenizer, 0)
        tokens = [draw.randrange(1, tokenizer.get_vocab_size()) for _ in range(60)]
        written = "".join(map(stream.feed, tokens)) + stream.rest()
        assert written.replace("\ufffd", "").strip()
