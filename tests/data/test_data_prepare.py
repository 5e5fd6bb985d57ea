"""Prepared files are exactly the text: streams, tables, splits, tokenizer."""

import json
from pathlib import Path

import numpy as np
import pytest
from data_cases import LINES, ready, text
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ilr.data import TextData
from ilr.errors import InputError


def test_the_streams_are_exactly_the_documents_each_with_one_separator(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache")
    assert sorted(text(data)) == sorted(LINES)
    for split, documents in (("train", 48), ("validation", 6), ("test", 6)):
        stream, table, texts = data.stream(split), data.documents(split), list(data.text_of(split))
        info = data.manifest.splits[split]
        expected: list[int] = []
        for number, document in enumerate(texts):
            ids = [*data.tokenizer.encode(document, add_special_tokens=False).ids, data.separator_id]
            assert table.start[number] == len(expected)
            assert table.tokens[number] == len(ids)
            assert table.bytes[number] == len(document.encode())
            expected += ids
        assert stream.tolist() == expected
        assert int((stream == data.separator_id).sum()) == len(texts) == info.documents == documents
        assert info.tokens == len(stream)
        assert info.bytes == data.bytes_scored(split) == sum(len(document.encode()) for document in texts)
        assert [LINES.index(document) for document in texts] == sorted(map(LINES.index, texts)), (
            "corpus order"
        )


def test_the_tokenizer_learns_from_the_train_split_alone(corpus: Path, tmp_path: Path) -> None:
    first = ready(corpus, tmp_path / "cache")
    held_out = {*first.text_of("validation"), *first.text_of("test")}

    def changed(chosen: bool) -> TextData:
        path = tmp_path / f"{chosen}.txt"
        path.write_text("".join("zyx zyx zyx\n" if (line in held_out) == chosen else line for line in LINES))
        return ready(path, tmp_path / "cache")

    assert changed(True).manifest.tokenizer_hash == first.manifest.tokenizer_hash
    assert changed(False).manifest.tokenizer_hash != first.manifest.tokenizer_hash


def test_few_documents_are_cut_and_split_in_order_and_this_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "book.txt"
    book = "".join(f"Sentence {number} of the book.\n" for number in range(12_000))
    path.write_text(book)
    data = ready(path, tmp_path / "cache", document="file")
    assert "1 document, fewer than 20: cut at line ends into" in capfd.readouterr().err
    assert data.manifest.pseudo_documents
    assert "".join(text(data)) == book, "train, then validation, then test, in the order of the text"
    assert all(document.endswith("\n") for document in text(data))
    sizes = data.documents("train").bytes
    assert sizes.min() >= 8192
    assert sizes.max() < 8192 + 40


def test_marker_text_in_a_corpus_is_text_and_every_document_has_one_separator(tmp_path: Path) -> None:
    lines = [f"<|endoftext|> number {number} <|endoftext|>\n" for number in range(40)]
    (tmp_path / "a.txt").write_text("".join(lines))
    data = ready(tmp_path / "a.txt", tmp_path / "cache")
    assert sorted(text(data)) == sorted(lines)
    assert sum(int((data.stream(split) == data.separator_id).sum()) for split in data.manifest.splits) == 40


def test_empty_documents_are_skipped_and_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = [f"document {number}" if number % 3 else " \n" for number in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    data = ready(tmp_path / "a.jsonl", tmp_path / "cache", document="file")
    assert "20 empty documents skipped" in capfd.readouterr().err
    assert data.manifest.skipped_documents == 20
    assert sorted(text(data)) == sorted(each for each in texts if each.strip())


def test_a_pattern_that_matches_nothing_is_taken_for_a_misspelling(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--data\.document 'paragraphs' is none of file, line, paragraph"):
        ready(corpus, tmp_path / "cache", document="paragraphs")


def test_splits_given_as_their_own_corpora_are_used_whole(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("".join(line.upper() for line in LINES[:25]))
    data = ready(corpus, tmp_path / "cache", validation=str(other))
    assert list(data.text_of("validation")) == [line.upper() for line in LINES[:25]]
    assert data.manifest.splits["train"].documents == 53  # 60 less round(60 × 0.1 / 0.9)
    assert data.manifest.splits["test"].documents == 7
    both = ready(corpus, tmp_path / "cache", validation=str(other), test=str(other))
    assert list(both.text_of("train")) == LINES


def test_a_vocabulary_larger_than_the_text_gives_is_reported_as_it_is(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache", vocab_size=100_000)
    assert data.vocab_size_actual == data.tokenizer.get_vocab_size() < 1000
    assert max(int(data.stream(split).max()) for split in data.manifest.splits) < data.vocab_size_actual


def test_a_given_tokenizer_of_70000_entries_keeps_its_largest_id(corpus: Path, tmp_path: Path) -> None:
    vocabulary = {
        character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    vocabulary |= {"<end>": 300, "l": 69_999}
    given = Tokenizer(models.BPE(vocabulary, []))
    given.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    given.decoder = decoders.ByteLevel()
    given.save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer": str(tmp_path / "tokenizer.json"), "separator_token": "<end>"}
    data = ready(corpus, tmp_path / "cache", **options)
    assert data.vocab_size_actual == 70_000
    assert data.manifest.dtype == "<u4"
    assert data.stream("train").max() == 69_999
    assert data.separator_id == 300
    assert sorted(text(data)) == sorted(LINES)
    with pytest.raises(InputError, match="'<eos>' is not in the tokenizer"):
        ready(corpus, tmp_path / "cache", **{**options, "separator_token": "<eos>"})


def test_the_train_split_can_be_cut_to_its_first_documents(corpus: Path, tmp_path: Path) -> None:
    whole = ready(corpus, tmp_path / "cache")
    cut = ready(corpus, tmp_path / "cache", max_train_tokens=200)
    info = cut.manifest.splits["train"]
    assert 200 - whole.documents("train").tokens.max() < info.tokens <= 200
    np.testing.assert_array_equal(cut.stream("train"), whole.stream("train")[: info.tokens])
    assert info.hash != whole.manifest.splits["train"].hash
    assert list(cut.text_of("train")) == list(whole.text_of("train"))[: info.documents]
    assert cut.bytes_scored("train") == sum(map(len, cut.text_of("train")))
    with pytest.raises(InputError, match=r"--data\.max_train_tokens 3 is less than"):
        ready(corpus, tmp_path / "cache", max_train_tokens=3)


def test_the_evaluated_splits_can_be_cut_to_their_first_documents(corpus: Path, tmp_path: Path) -> None:
    whole = ready(corpus, tmp_path / "cache")
    most = int(whole.documents("validation").tokens[:2].sum())
    cut = ready(corpus, tmp_path / "cache", max_eval_tokens=most)
    assert list(cut.text_of("validation")) == list(whole.text_of("validation"))[:2]
    assert cut.bytes_scored("validation") == sum(map(len, cut.text_of("validation")))
    assert cut.manifest.splits["test"].tokens <= most
    assert cut.manifest.splits["train"] == whole.manifest.splits["train"]
    with pytest.raises(InputError, match=r"--data\.max_eval_tokens 1 is less than"):
        ready(corpus, tmp_path / "cache", max_eval_tokens=1)
