"""Every byte of every document is in its token ids, or the tokenizer is refused: whatever the tokenizer."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import CASES, PLAIN, SEPARATOR, Case, byte_level
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers

from ilr.data import TextData
from ilr.data.encoding import encode_documents, encode_text
from ilr.data.tokenizer import TokenizerError, library_errors, load_tokenizer
from ilr.errors import InputError


def rows(path: Path, texts: list[str]) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_tokenizer_gives_every_byte_back_or_is_refused_with_the_document(
    case: Case, tmp_path: Path
) -> None:
    """Right numbers, point 4: what holds of all text is checked on all text."""
    case.build().save(str(tmp_path / "tokenizer.json"))
    texts = [*PLAIN[:37], case.odd, *PLAIN[37:]]
    options = {"tokenizer": str(tmp_path / "tokenizer.json"), "cache_dir": str(tmp_path / "cache")}

    def prepared() -> TextData:
        data = TextData(rows(tmp_path / "corpus.jsonl", texts), splits=(1.0, 0.0, 0.0), **options)
        data.setup()
        return data

    if case.refused is not None:
        with pytest.raises(InputError, match=case.refused):
            prepared()
        assert not list((tmp_path / "cache").glob("*/manifest.json"))
        return
    data = prepared()
    stream, table = data.stream("train").tolist(), data.documents("train")
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True
    assert list(data.text_of("train")) == texts
    assert data.bytes_scored("train") == sum(len(text.encode()) for text in texts)
    separator = data.separator_id
    for text, start, tokens in zip(texts, table.start.tolist(), table.tokens.tolist(), strict=True):
        ids = stream[start : start + tokens - 1]
        assert plain.decode(ids, skip_special_tokens=False) == text
        assert ids == plain.encode(text, add_special_tokens=False).ids
        assert separator not in ids
        assert encode_text(text, data.tokenizer, separator, "the prompt") == ids


PIECES = st.sampled_from(
    [*"ab \n▁é你😀.'", "e\u0301", "ﬁ", SEPARATOR, "<s>", "the ", "  ", "Ġ", "\x00", "A", "ß"]
)
TEXTS = st.lists(st.lists(PIECES, min_size=1, max_size=12).map("".join), min_size=1, max_size=4)
NORMALIZERS = st.sampled_from(
    [
        None,
        normalizers.NFC(),
        normalizers.NFKD(),
        normalizers.Lowercase(),
        normalizers.Strip(),
        normalizers.Replace(" ", "▁"),
        normalizers.Prepend("▁"),
        normalizers.ByteLevel(),
    ]
)
SPLITTERS = st.sampled_from(
    [
        None,
        pre_tokenizers.ByteLevel(False),
        pre_tokenizers.ByteLevel(True),
        pre_tokenizers.ByteLevel(False, use_regex=False),
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Whitespace(),
        pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.Sequence([pre_tokenizers.Split("a", "removed"), pre_tokenizers.ByteLevel(False)]),
    ]
)
DECODERS = st.sampled_from(
    [
        None,
        decoders.ByteLevel(),
        decoders.Metaspace(),
        decoders.WordPiece(),
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
        decoders.Fuse(),
    ]
)
ADDED = st.lists(
    st.builds(
        AddedToken,
        st.sampled_from(["a", "é", "the", " ", "<s>", "Ġ", "你", "ab"]),
        single_word=st.booleans(),
        lstrip=st.booleans(),
        rstrip=st.booleans(),
        normalized=st.booleans(),
        special=st.booleans(),
    ),
    max_size=2,
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, NORMALIZERS, SPLITTERS, DECODERS, ADDED, st.booleans())
def test_random_text_through_a_random_tokenizer_is_exact_or_refused(
    texts: list[str], normalizer: object, splitter: object, decoder: object, added: list[object], full: bool
) -> None:
    """Right numbers, point 4: accepted means that the plain library gives the same ids and the text back."""
    made = byte_level(full, PLAIN[:3])
    for name, part in (("normalizer", normalizer), ("pre_tokenizer", splitter), ("decoder", decoder)):
        if part is not None or name == "normalizer":
            setattr(made, name, part)
    made.add_tokens(added)
    tokenizer = load_tokenizer(made.to_str())
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    stream = (piece for text in texts for piece in (text, None))
    found: list[list[int]] = [[]]
    num_bytes, refused = 0, None
    try:
        for encoded in encode_documents(stream, tokenizer, 0):
            if encoded is None:
                found.append([])
            else:
                found[-1] += encoded[0].tolist()
                num_bytes += encoded[1]
    except InputError as error:
        refused = str(error)
    if refused is None:
        assert len(found) == len(texts) + 1
        assert num_bytes == sum(len(text.encode()) for text in texts)
        for text, ids in zip(texts, found[:-1], strict=True):
            assert plain.encode(text, add_special_tokens=False).ids == ids
            assert plain.decode(ids, skip_special_tokens=False) == text
    else:
        number = int(refused.split(":")[0].removeprefix("document "))
        assert [unfit(plain, text) for text in texts[:number]] == [False] * (number - 1) + [True]


def unfit(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the plain library loses the text, makes a separator of it, or fails."""
    try:
        with library_errors():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            return tokenizer.decode(ids, skip_special_tokens=False) != text or 0 in ids
    except TokenizerError:
        return True


def test_a_file_that_makes_the_library_panic_is_refused_in_a_line(tmp_path: Path) -> None:
    """Right numbers, point 4."""
    described = json.loads(byte_level().to_str())
    described["model"]["continuing_subword_prefix"] = "##"
    with pytest.raises(InputError, match=r"--data\.tokenizer is not a tokenizer\.json"):
        load_tokenizer(json.dumps(described))
