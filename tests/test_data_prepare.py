"""Prepared files: keyed by content, made once, whole or made again, and exactly the text."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ilr.data import TextData
from ilr.data.recipe import check_least
from ilr.errors import InputError

LINES = [f"line {number} says that {number} times {number} is {number * number}\n" for number in range(60)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "squares.txt"
    path.write_text("".join(LINES))
    return path


def text_data(corpus: Path | list[str] | str, cache: Path, **options: Any) -> TextData:
    given = corpus if isinstance(corpus, list) else str(corpus)
    settings: dict[str, Any] = {"vocab_size": 300, "context": 8, "document": "line", **options}
    return TextData(given, cache_dir=str(cache), **settings)


def ready(*args: Any, **options: Any) -> TextData:
    data = text_data(*args, **options)
    data.setup()
    return data


def text(data: TextData) -> list[str]:
    return [document for split in ("train", "validation", "test") for document in data.text_of(split)]


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


def test_a_second_start_is_a_hit_that_tokenises_nothing(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ready(corpus, tmp_path / "cache")
    said = capfd.readouterr().err
    assert f"cache miss, preparing key {first.manifest.key}" in said
    monkeypatch.setattr("ilr.data.prepare.encode_documents", None)
    second = ready(corpus, tmp_path / "cache", context=4, batch_size=3, seed=9, max_train_tokens=100)
    assert f"cache hit, key {first.manifest.key}" in capfd.readouterr().err
    assert second.manifest.key == first.manifest.key, "context, batches and data seed are not in the key"


def test_a_changed_byte_of_equal_size_and_time_is_seen(corpus: Path, tmp_path: Path) -> None:
    first = ready(corpus, tmp_path / "cache")
    before = corpus.stat()
    corpus.write_text("".join(LINES).replace("line 7", "line 8"))
    os.utime(corpus, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (corpus.stat().st_size, corpus.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second = ready(corpus, tmp_path / "cache")
    assert second.manifest.key != first.manifest.key
    assert second.manifest.corpus_hash != first.manifest.corpus_hash
    assert sum("line 8 " in document for document in text(second)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"document": "[0-9]"},
        {"splits": [0.7, 0.2, 0.1]},
        {"split_seed": 1},
        {"vocab_size": 280},
        {"max_documents": 30},
        {"validation": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_files_changes_the_key(
    corpus: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("".join(LINES[:30]).upper())
    change = {name: str(other) if value == "other" else value for name, value in change.items()}
    first = ready(corpus, tmp_path / "cache")
    second = ready(corpus, tmp_path / "cache", **change)
    assert first.manifest.key != second.manifest.key


def test_where_the_text_lies_does_not_matter_but_its_division_does(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_bytes(corpus.read_bytes())
    (tmp_path / "a.txt").write_text("".join(LINES[:30]))
    (tmp_path / "b.txt").write_text("".join(LINES[30:]))
    keys = [
        ready(given, tmp_path / "cache").manifest.key
        for given in (corpus, tmp_path / "elsewhere.txt", [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("damage", ["truncated stream", "missing table", "edited manifest", "no manifest"])
def test_a_damaged_cache_is_noticed_and_made_again(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    first = ready(corpus, tmp_path / "cache")
    directory = tmp_path / "cache" / first.manifest.key
    stream = directory / "train.tokens"
    match damage:
        case "truncated stream":
            stream.write_bytes(stream.read_bytes()[:-2])
        case "missing table":
            (directory / "test.documents.npy").unlink()
        case "edited manifest":
            manifest = directory / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"separator_id": 0', '"separator_id": 1'))
        case "no manifest":
            (directory / "manifest.json").unlink()
    capfd.readouterr()
    again = ready(corpus, tmp_path / "cache")
    assert "incomplete or damaged, preparing again" in capfd.readouterr().err
    assert again.manifest == first.manifest
    np.testing.assert_array_equal(again.stream("train"), first.stream("train"))


def test_an_error_midway_leaves_nothing_that_looks_prepared(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ilr.data.prepare.vocabulary_size", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ready(corpus, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert sorted(text(ready(corpus, tmp_path / "cache"))) == sorted(LINES)


def test_a_cache_that_cannot_be_written_is_an_input_error(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write prepared data in .*--data\.cache_dir"):
        ready(corpus, tmp_path / "file" / "cache")


def test_the_cache_lies_where_the_environment_says(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ILR_CACHE", str(tmp_path / "there"))
    data = TextData(str(corpus), vocab_size=300, document="line")
    data.setup()
    assert (tmp_path / "there" / data.manifest.key / "manifest.json").exists()


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": [0.5, 0.1, 0.1]}, r"--data\.splits must be three shares"),
        ({"splits": [0.0, 0.5, 0.5]}, r"--data\.splits"),
        ({"splits": [1.2, -0.1, -0.1]}, r"--data\.splits"),
        ({"vocab_size": 256}, r"--data\.vocab_size must be at least 257.*got 256"),
        ({"separator_token": "</s>"}, r"--data\.separator_token '</s>' belongs to a given --data\.tokenizer"),
        ({"tokenizer": "nowhere.json"}, r"--data\.tokenizer: cannot read nowhere\.json"),
        ({"context": 0}, r"--data\.context must be an integer of at least 1, got 0"),
        ({"batch_size": 0}, r"--data\.batch_size"),
        ({"eval_batch_size": -1}, r"--data\.eval_batch_size"),
        ({"eval_contexts": [0]}, r"--data\.eval_contexts"),
        ({"eval_contexts": [16, 16]}, r"--data\.eval_contexts must differ"),
        ({"num_workers": -1}, r"--data\.num_workers"),
        ({"seed": -1}, r"--data\.seed"),
        ({"max_train_tokens": 0}, r"--data\.max_train_tokens"),
        ({"document": "("}, r"--data\.document"),
        ({"validation": "nowhere.txt"}, r"--data\.validation: 'nowhere\.txt' is no file"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_made(
    corpus: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        text_data(corpus, tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()
    for corpus_given in ([], "", [""]):
        with pytest.raises(InputError, match=r"--data\.corpus must be a name"):
            text_data(corpus_given, tmp_path / "cache")
    with pytest.raises(InputError):
        check_least(1, context=True)


def test_too_short_splits_are_named_with_both_lengths(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache", context=5000, splits=[0.9, 0.1, 0.0])
    with pytest.raises(InputError, match=r"train split has \d+ tokens, fewer than one block of context 5000"):
        data.train_dataloader()
    with pytest.raises(InputError, match=r"test split has 0 tokens, nothing to score"):
        data.test_dataloader()
    assert sum(int((batch["targets"] >= 0).sum()) for batch in data.val_dataloader()[0]) == (
        data.manifest.splits["validation"].tokens - 1
    )


def test_several_evaluation_contexts_score_the_same_tokens(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache", context=8, eval_contexts=[3, 32], eval_batch_size=4)
    loaders = data.val_dataloader()
    assert [loader.blocks.context for loader in loaders] == [8, 3, 32]
    assert [loader.batch_size for loader in loaders] == [4, 4, 1]
    for loader in loaders:
        scored = sum(int((batch["targets"] >= 0).sum()) for batch in loader)
        assert scored == data.manifest.splits["validation"].tokens - 1


CHILD = (
    "import sys, time\nfrom ilr.data import tokenizer, prepare, TextData\n"
    "from ilr.data.prepare import train_tokenizer as train\n"
    "prepare.train_tokenizer = lambda *a: (time.sleep(1.5), train(*a))[1]\n"
    "data = TextData(sys.argv[1], document='line', vocab_size=300, cache_dir=sys.argv[2])\n"
    "data.setup()\nprint(data.manifest.splits['train'].hash)"
)


@pytest.mark.slow
def test_two_processes_at_once_prepare_once(corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(corpus), str(tmp_path / "cache")]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    results = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert results[0][0] == results[1][0] != ""
    said = results[0][1] + results[1][1]
    assert said.count("training a tokenizer") == 1
    assert said.count("cache hit") == 1


@pytest.mark.slow
def test_after_a_kill_the_next_start_prepares_again_and_cleans_up(corpus: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(corpus), str(cache)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list(cache.glob("*.tmp-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert len(list(cache.glob("*.tmp-*"))) == 1
    assert sorted(text(ready(corpus, cache))) == sorted(LINES)
    assert not list(cache.glob("*.tmp-*"))


PEAK = (
    "import resource, sys\nfrom pathlib import Path\nfrom ilr.data.prepare import prepare\n"
    "from ilr.data.recipe import Recipe\n"
    "recipe = Recipe(corpus=(sys.argv[1],), validation=(), test=(), dataset_config=None, dataset_split='train',\n"
    "    revision=None, column='text', streaming=False, max_documents=None, document='file',\n"
    "    splits=(0.8, 0.1, 0.1), split_seed=0, tokenizer=None, separator_token='<|endoftext|>', vocab_size=300)\n"
    "prepare(recipe, Path(sys.argv[2]))\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, 'torch' in sys.modules)"
)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for megabytes in (4, 32):
        path = tmp_path / f"{megabytes}.txt"
        with path.open("w") as file:
            for number in range(megabytes * 20_000):
                file.write(f"{number % 1000:06d} the quick brown fox jumps over it\n")
        command = [sys.executable, "-c", PEAK, str(path), str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak, torch_imported = done.stdout.split()
        assert torch_imported == "False"
        peaks.append(int(peak))
    assert peaks[1] - peaks[0] < 15, f"peak RSS in MB of 4 MB and 32 MB: {peaks}"
