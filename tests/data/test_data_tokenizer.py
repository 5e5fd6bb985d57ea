"""The tokenizer: exact, stable, and encoding in pieces equals encoding in one go."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from ilr.data.encoding import encode_documents
from ilr.data.pieces import cuts_safely, safe_pieces, words
from ilr.data.tokenizer import (
    SEPARATOR,
    load_tokenizer,
    read_tokenizer,
    separator_of,
    train_tokenizer,
    vocabulary_size,
)
from ilr.errors import InputError

ALPHABET = [
    *"aab'st12.,!_  \n\n\r\t",
    "\u00a0",
    "\u2003",
    "\u0085",
    "\x1c",
    "é",
    "e\u0301",
    "数",
    "🦊",
    "'ll",
    "  ",
]


def stream(*documents: str) -> Iterator[str | None]:
    for document in documents:
        yield document
        yield None


def some_text(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices(ALPHABET, k=length))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(stream("It's a test, isn't it?\n\n  We'll see!\n" * 20, some_text(9, 20_000)), 600)


def ids_of(documents: Iterator[str | None], tokenizer: Tokenizer) -> list[list[int]]:
    found: list[list[int]] = []
    parts: list[int] = []
    for encoded in encode_documents(documents, tokenizer, separator_of(tokenizer, SEPARATOR)):
        if encoded is None:
            found.append(parts)
            parts = []
        else:
            parts += encoded[0].tolist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_encoding_in_pieces_equals_encoding_in_one_go(tokenizer: Tokenizer, seed: int) -> None:
    text = some_text(seed, 3000)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    for size in (1, 2, 7, 50):
        pieces = [piece for piece in safe_pieces(stream(text), size) if piece is not None]
        assert "".join(pieces) == text
        assert len(pieces) > 3000 / (40 * size + 100)
        encodings = tokenizer.encode_batch(pieces, add_special_tokens=False)
        assert [token for encoding in encodings for token in encoding.ids] == whole


@pytest.mark.parametrize("seed", range(20))
def test_encoding_words_alone_equals_encoding_in_one_go(tokenizer: Tokenizer, seed: int) -> None:
    text = some_text(seed, 3000)
    cut = words(text)
    assert "".join(cut) == text
    visible = "".join(map(chr, range(33, 127))) + "é数"
    places = [at for at in range(1, len(text) - 1) if text[at] in " \n" and text[at + 1] in visible]
    assert len(cut) == len(places) + 1
    encodings = tokenizer.encode_batch(cut, add_special_tokens=False)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    assert [token for encoding in encodings for token in encoding.ids] == whole


def test_a_long_document_is_encoded_as_if_in_one_go(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [some_text(1, 200_000), "short", some_text(2, 70_000)]
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in documents]
    assert ids_of(stream(*documents), tokenizer) == expected
    monkeypatch.setattr("ilr.data.encoding.BATCH_CHARACTERS", 1000)
    assert ids_of(stream(*documents), tokenizer) == expected
    for kept, longest in ((1 << 17, 1), (50, 1), (50, 10**9), (0, 32)):
        monkeypatch.setattr("ilr.data.encoding.KEPT_WORDS", kept)
        monkeypatch.setattr("ilr.data.encoding.LONGEST_KEPT", longest)
        assert ids_of(stream(*documents), tokenizer) == expected


def test_text_without_a_safe_place_stays_whole() -> None:
    for text in ("x" * 500, "\n" * 500, " \n" * 300, "a\u2003b" * 100, "a \u0301" * 100):
        assert [piece for piece in safe_pieces(stream(text), 10) if piece is not None] == [text]


def test_every_unicode_character_and_byte_survives_the_round_trip(tokenizer: Tokenizer) -> None:
    surrogates = range(0xD800, 0xE000)
    text = "".join(chr(point) for point in range(0x3000) if point not in surrogates) + "🦊\U0010ffff\r\n\x00"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_marker_text_in_a_document_is_ordinary_text(tokenizer: Tokenizer) -> None:
    text = f"before {SEPARATOR}{SEPARATOR} after"
    (ids,) = ids_of(stream(text), tokenizer)
    assert separator_of(tokenizer, SEPARATOR) not in ids
    assert len(ids) > len("before  after")
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_given_tokenizer_treats_marker_text_the_same_even_if_it_is_not_marked_special(
    tokenizer: Tokenizer,
) -> None:
    described = json.loads(tokenizer.to_str())
    described["added_tokens"][0]["special"] = False
    given = load_tokenizer(json.dumps(described))
    text = f"x{SEPARATOR}y"
    (ids,) = ids_of(stream(text), given)
    assert ids == tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 not in ids


def test_two_processes_train_the_same_tokenizer_to_the_byte(tmp_path: Path) -> None:
    code = (
        "import sys, pydoc_data.topics as t\nfrom ilr.data.tokenizer import train_tokenizer\n"
        "texts = list(t.topics.values())[:20]\n"
        "print(train_tokenizer((p for x in texts for p in (x, None)), 1000).to_str())"
    )
    results = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert results[0] == results[1]
    assert len(json.loads(results[0])["model"]["vocab"]) == 1000


def test_training_does_not_depend_on_how_the_text_came_in_pieces() -> None:
    text = some_text(4, 300_000)
    in_parts = (part for start in range(0, len(text), 1000) for part in [text[start : start + 1000]])

    def parts() -> Iterator[str | None]:
        yield from in_parts
        yield None

    assert train_tokenizer(parts(), 400).to_str() == train_tokenizer(stream(text), 400).to_str()


def test_a_small_text_gives_a_small_vocabulary_with_all_bytes() -> None:
    small = train_tokenizer(stream("to be or not to be"), 100_000)
    assert 257 <= vocabulary_size(small) < 270
    assert vocabulary_size(small) == small.get_vocab_size()
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(small.get_vocab())


@pytest.mark.parametrize(
    ("normalizer", "prefix", "regex"),
    [({"type": "NFC"}, False, True), (None, True, True), (None, False, False)],
)
def test_a_tokenizer_that_splits_otherwise_sees_documents_whole(
    tokenizer: Tokenizer, normalizer: dict[str, str] | None, prefix: bool, regex: bool
) -> None:
    assert cuts_safely(tokenizer)
    described = json.loads(tokenizer.to_str())
    described["normalizer"] = normalizer
    described["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": regex,
    }
    other = load_tokenizer(json.dumps(described))
    assert not cuts_safely(other)
    text = " It's a test, isn't it?\n" * 8000
    assert ids_of(stream(text), other) == [other.encode(text, add_special_tokens=False).ids]


def test_a_tokenizer_that_loses_text_is_refused(tokenizer: Tokenizer) -> None:
    lossy = load_tokenizer(tokenizer.to_str())
    lossy.normalizer = normalizers.Lowercase()
    with pytest.raises(InputError, match=r"does not give the text back.*'two Three' became 'two three'"):
        ids_of(stream("two Three"), lossy)


def test_truncation_padding_and_added_tokens_of_a_given_tokenizer_are_switched_off(
    tokenizer: Tokenizer,
) -> None:
    given = Tokenizer.from_str(tokenizer.to_str())
    given.enable_truncation(4)
    given.enable_padding(length=10)
    text = "more than four tokens, surely"
    assert ids_of(stream(text), load_tokenizer(given.to_str())) == ids_of(stream(text), tokenizer)


def test_a_missing_separator_and_a_broken_file_are_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=rf"'</s>' is not in the tokenizer; its special tokens are '{SEPARATOR[:2]}"
    ):
        separator_of(tokenizer, "</s>")
    with pytest.raises(InputError, match=r"--data\.tokenizer: cannot read .*none\.json"):
        read_tokenizer(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text('{"model": 1}')
    with pytest.raises(InputError, match=r"broken\.json is not a tokenizer\.json"):
        read_tokenizer(tmp_path / "broken.json")


def test_the_largest_id_decides_the_vocabulary_size() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary["a"] = 69_999
    sparse = Tokenizer(models.BPE(vocabulary, []))
    sparse.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    sparse.decoder = decoders.ByteLevel()
    assert vocabulary_size(sparse) == 70_000
    np.testing.assert_array_equal(sparse.encode("aa").ids, [69_999, 69_999])
