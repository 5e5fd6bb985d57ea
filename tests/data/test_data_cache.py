"""The cache: keyed by content, made once, whole or made again, in bounded memory."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_cases import LINES, ready, text

from ilr.data import TextData
from ilr.data.content import corpus_items
from ilr.data.corpora import Pieces, Source
from ilr.errors import InputError


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


FILES = ["train.tokens", "validation.tokens", "test.documents.npy", "test.twins.npy", "tokenizer.json"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("place", [0.0, 0.5, 0.99])
def test_a_flipped_bit_in_any_prepared_file_is_noticed_and_made_again(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, place: float
) -> None:
    """Right numbers, point 18: sizes and times may be as before."""
    first = ready(corpus, tmp_path / "cache")
    path = tmp_path / "cache" / first.manifest.key / name
    whole, before = path.read_bytes(), path.stat()
    flipped = bytearray(whole)
    flipped[int(place * len(whole))] ^= 4
    path.write_bytes(flipped)
    if name != "manifest.json":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    capfd.readouterr()
    again = ready(corpus, tmp_path / "cache")
    said = capfd.readouterr().err
    assert said.count("incomplete or damaged, preparing again") == 1
    assert name == "manifest.json" or f"{name} is not as it was written" in said
    assert again.manifest == first.manifest
    assert path.read_bytes() == whole
    ready(corpus, tmp_path / "cache")
    assert "cache hit" in capfd.readouterr().err


def test_prepared_data_are_read_whole_once_in_a_process(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right numbers, point 18: checking costs one reading a start."""
    ready(corpus, tmp_path / "cache")
    first = ready(corpus, tmp_path / "cache")
    hashed: list[object] = []
    monkeypatch.setattr("ilr.data.manifest.file_info", lambda *arguments: hashed.append(arguments))
    assert ready(corpus, tmp_path / "cache").manifest == first.manifest
    assert hashed == []


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
    left = {path.name for path in (tmp_path / "cache").iterdir()} - {"content"}
    assert [Path(name).suffix for name in left] == [".lock"]
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


@pytest.mark.parametrize("readings", [1, 2, 3])
@pytest.mark.parametrize("change", ["longer", "shorter", "other", "a document more"])
def test_text_that_changes_while_it_is_read_is_noticed_and_nothing_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, readings: int
) -> None:
    """Right numbers, points 7 and 8: the key never names other text than the prepared one."""
    texts = {
        "longer": "".join(LINES).replace("59 times", "59 times and"),
        "shorter": "".join(LINES[:-1]),
        "other": "".join(LINES).replace("line 7 ", "line 8 "),
        "a document more": "".join(LINES) + "one more\n",
    }
    opened = []

    def reading(sources: Sequence[Source], *, joined: bool) -> Pieces:
        opened.append(joined)
        if len(opened) == readings:
            corpus.write_text(texts[change])
        return corpus_items(sources, joined=joined)

    monkeypatch.setattr("ilr.data.corpus_documents.corpus_items", reading)
    with pytest.raises(InputError, match=r"--data\.corpus changed while it was read"):
        ready(corpus, tmp_path / "cache")
    assert len(opened) == readings
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir() and path.name != "content"]
