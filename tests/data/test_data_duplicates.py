"""The same document in training and evaluation: counted, said, kept in the manifest, and dropped when asked."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilr.data import TextData
from ilr.data.documents import Pieces
from ilr.data.duplicates import census, twins
from ilr.errors import InputError

ROWS = [f"Row {number} says that {number} times {number} is {number * number}." for number in range(60)]


def jsonl(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return path


def ready(corpus: Path, cache: Path, **options: Any) -> TextData:
    data = TextData(str(corpus), cache_dir=str(cache), context=8, vocab_size=300, **options)
    data.setup()
    return data


def check(data: TextData) -> dict[str, int]:
    """Compare the manifest's figures with texts that are read back; the documents in train by split."""
    trained = set(data.text_of("train"))
    counted = {}
    for split in ("validation", "test"):
        table, texts = data.documents(split), list(data.text_of(split))
        there = np.array([text in trained for text in texts], dtype=bool)
        found = data.manifest.duplicates[split]
        counted[split] = found.documents
        assert found.documents == there.sum()
        assert found.tokens == table.tokens[there].sum()
        assert found.bytes == sum(len(text.encode()) for text in texts if text in trained)
    return counted


def test_repeated_rows_are_counted_and_said_at_every_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 9: ten rows ten times; all of validation is trained on."""
    corpus = jsonl(tmp_path / "a.jsonl", ROWS[:10] * 10)
    for _ in range(2):
        data = ready(corpus, tmp_path / "cache")
        assert check(data) == {"validation": 10, "test": 10}
        said = capfd.readouterr().err
        assert "warning: 10 of 10 validation documents (100.0% of its tokens) also stand in train" in said
        assert "--data.duplicates drop" in said


def test_texts_without_duplicates_say_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Right numbers, point 9: also not of rows that differ by a space."""
    data = ready(jsonl(tmp_path / "a.jsonl", [*ROWS, *(row + " " for row in ROWS)]), tmp_path / "cache")
    assert check(data) == {"validation": 0, "test": 0}
    assert "warning" not in capfd.readouterr().err


@pytest.mark.parametrize("way", ["same file", "symlink", "other container", "other name"])
def test_a_validation_text_of_its_own_is_compared_by_its_content(tmp_path: Path, way: str) -> None:
    """Right numbers, point 9: whatever the file is called."""
    corpus = jsonl(tmp_path / "a.jsonl", ROWS)
    match way:
        case "same file":
            given, expected = corpus, 54
        case "symlink":
            given, expected = tmp_path / "link.jsonl", 54
            given.symlink_to(corpus)
        case "other container":
            given, expected = tmp_path / "rows.txt", 54
            given.write_text("\n".join(ROWS))
        case "other name":
            given, expected = (
                jsonl(tmp_path / "b.jsonl", [*ROWS[:30], *(row.upper() for row in ROWS[:30])]),
                None,
            )
    options = {"document": "line"} if way == "other container" else {}
    data = ready(corpus, tmp_path / "cache", validation=str(given), splits=[0.9, 0.0, 0.1], **options)
    trained = {text.rstrip("\n") for text in data.text_of("train")}
    validated = [text.rstrip("\n") for text in data.text_of("validation")]
    assert data.manifest.duplicates["validation"].documents == sum(text in trained for text in validated)
    assert expected in (None, data.manifest.duplicates["validation"].documents)


def test_dropping_takes_them_out_of_training_and_changes_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 9."""
    corpus = jsonl(tmp_path / "a.jsonl", [*ROWS, *ROWS[::2], ROWS[0]])
    kept, dropped = (ready(corpus, tmp_path / "cache", duplicates=how) for how in ("keep", "drop"))
    assert check(kept)["validation"] + check(kept)["test"] > 0
    assert check(dropped) == {"validation": 0, "test": 0}
    assert kept.manifest.key != dropped.manifest.key
    for split in ("validation", "test"):
        assert list(kept.text_of(split)) == list(dropped.text_of(split))
    held_out = {*kept.text_of("validation"), *kept.text_of("test")}
    assert list(dropped.text_of("train")) == [t for t in kept.text_of("train") if t not in held_out]
    left_out = sum(text in held_out for text in kept.text_of("train"))
    assert (kept.manifest.dropped_duplicates, dropped.manifest.dropped_duplicates) == (0, left_out)
    assert f"{left_out} documents of train left out" in capfd.readouterr().err
    assert dropped.manifest.splits["train"].tokens == len(dropped.stream("train"))


def test_dropping_everything_is_refused(tmp_path: Path) -> None:
    """Right numbers, point 9."""
    corpus = jsonl(tmp_path / "a.jsonl", ROWS[:10] * 10)
    with pytest.raises(InputError, match=r"--data\.duplicates drop leaves nothing to train on: all 80"):
        ready(corpus, tmp_path / "cache", duplicates="drop")
    with pytest.raises(InputError, match=r"--data\.duplicates must be keep or drop, got 'yes'"):
        ready(corpus, tmp_path / "cache", duplicates="yes")


def test_the_figures_are_those_of_the_text_that_is_used(tmp_path: Path) -> None:
    """Right numbers, point 9: of a train split cut to its beginning only that counts; of validation too."""
    corpus = jsonl(tmp_path / "a.jsonl", ROWS[:30] * 4)
    whole = check(ready(corpus, tmp_path / "cache"))
    cut = check(ready(corpus, tmp_path / "cache", max_train_tokens=300))
    assert 0 < cut["validation"] < whole["validation"]
    assert check(ready(corpus, tmp_path / "cache", max_eval_tokens=100))["test"] < whole["test"]


TEXTS = st.lists(st.text(st.sampled_from("ab\r\n é"), max_size=6), max_size=12)


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 3))
def test_digests_find_what_comparing_texts_finds(train: list[str], others: list[str], size: int) -> None:
    """Right numbers, point 9: whatever pieces the texts come in; line ends at their ends do not count."""

    def pieces(texts: list[str]) -> Pieces:
        for text in texts:
            yield from (text[at : at + size] for at in range(0, len(text), size))
            yield None

    counted = census(pieces(train))
    assert (counted.number, counted.bytes) == (len(train), sum(len(text.encode()) for text in train))
    first: dict[str, int] = {}
    for number, text in enumerate(train):
        first.setdefault(text.rstrip("\r\n"), number)
    expected = [first.get(text.rstrip("\r\n"), -1) for text in others]
    assert twins(counted.digests, census(pieces(others)).digests).tolist() == expected
    assert len(set(counted.digests.tolist())) == len(Counter(text.rstrip("\r\n") for text in train))
