"""Reading our files: whatever they hold, plain data that fits, or one line that names file, key and what is allowed."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage_cases import KINDS, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ilr.errors import InputError
from ilr.files import plain_json, plain_yaml
from ilr.files.readers import read_json, read_jsonl, read_yaml
from ilr.files.text import MissingFile
from ilr.runs.directory import RunDirectory, read_history
from ilr.runs.schema import CheckpointRecord, Point, Settings

POINT = {"step": 1, "tokens": 8, "training_flops": 80, "train/loss": 2.5}
NUMBERS = (
    st.floats()
    | st.integers(-9, 9)
    | st.text(st.characters(codec="utf-8"), max_size=3)
    | st.none()
    | st.booleans()
)
TREES = st.recursive(
    NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3)
    ),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_in_one_line(kind: str, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "record.json"
    whole = b'{"last": [{"file": "step-00000001.ckpt", "step": 1, "val_loss": 2.5}], "best": null}'
    path.write_bytes(damaged(kind, whole))
    with pytest.raises(InputError) as caught:
        read_json(path, CheckpointRecord)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "empty"])
def test_a_damaged_line_is_named_by_its_number(kind: str, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "history.jsonl"
    line = json.dumps(POINT).encode() + b"\n"
    path.write_bytes(line + damaged(kind, line) + line)
    with pytest.raises(InputError, match=r"line 2|not UTF-8") as caught:
        read_jsonl(path, Point)
    assert str(path) in str(caught.value)


def test_only_the_last_line_may_be_cut(tmp_path: Path) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "history.jsonl"
    line = json.dumps(POINT)
    for end in range(len(line)):
        path.write_text(f"{line}\n{line[:end]}")
        assert read_history(path) == [POINT]
    path.write_text(f"{line}\n{line}")
    assert read_history(path) == [POINT, POINT]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_marks_of_a_byte_order_and_other_line_ends_are_no_damage(
    mark: bytes, end: bytes, tmp_path: Path
) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(mark + json.dumps(POINT).encode() + end + json.dumps(POINT).encode() + end)
    assert read_history(path) == [POINT, POINT]
    path.write_bytes(mark + b"model:" + end + b"  width: 8" + end)
    assert read_yaml(path, Settings, "configuration").model == {"width": 8}


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    """Right numbers, point 20: a directory, a pipe without a writer, a file beyond all bounds, a closed one."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    for name, said in (("directory", "a directory"), ("pipe", "a pipe"), ("huge", "1,099,511,627,776 bytes")):
        with pytest.raises(InputError, match=said):
            read_json(tmp_path / name, CheckpointRecord)
    with pytest.raises(MissingFile, match="no such file"):
        read_json(tmp_path / "nothing", CheckpointRecord)
    with pytest.raises(MissingFile, match="no such file"):
        read_json(tmp_path / "huge" / "below", CheckpointRecord)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "lacks the key 'last'"),
        ({"last": {}}, "last: got {}, allowed: a valid list"),
        ({"last": [3]}, r"last\[0\]: got 3, allowed"),
        ({"last": [{"file": "a", "step": "1"}]}, r"last\[0\].step: got '1', allowed: a valid integer"),
        ({"last": [{"file": "a", "step": True}]}, r"last\[0\].step: got True, allowed: a valid integer"),
        ({"last": [{"file": "a", "step": -1}]}, r"got -1, allowed: greater than or equal to 0"),
        ({"last": [{"file": "../other/a.ckpt", "step": 1}]}, r"file: got '../other/a.ckpt', allowed"),
        (
            {"last": [{"file": "a", "step": 1, "val_loss": []}]},
            r"val_loss: got \[\], allowed: a valid number",
        ),
    ],
)
def test_a_wrong_value_is_said_with_its_key_and_what_is_allowed(
    content: object, said: str, tmp_path: Path
) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        read_json(path, CheckpointRecord)


@settings(max_examples=50)
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), TREES, max_size=4))
def test_json_is_strict_and_gives_every_number_back(content: dict[str, Any]) -> None:
    """Right numbers, point 19: what is not finite is null in the file, and said beside it."""
    content.pop("not_finite", None)
    text = plain_json.dumps(content)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert repr(plain_json.loads(text, "here")) == repr(content)


def test_words_for_numbers_of_older_files_are_read(tmp_path: Path) -> None:
    """Right numbers, point 19."""
    path = tmp_path / "history.jsonl"
    path.write_text('{"step": 1, "tokens": 8, "training_flops": 80, "val/perplexity": Infinity}\n')
    assert read_history(path)[0]["val/perplexity"] == math.inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "gives the key 'a' twice"),
        ("a: &a [*a]", "refers to itself"),
        ("[" * 100_000, "not YAML|nested"),
        ("- " * 500 + "a", "nested deeper"),
        ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{after}: &{after} [{','.join(['*' + before] * 10)}]\n"
            for before, after in zip("abcdefgh", "bcdefghi", strict=True)
        ), "expands to more than"),
        ("a: !!binary aGk=", "a value of type bytes"),
        ("1: 2", "the key 1 is"),
        ("a: !!int x", "not YAML"),
        ("a: !!python/object/apply:os.system [x]", "not YAML"),
        ("--- 1\n--- 2", "single document"),
        ("a: 0x" + "f" * 9000, "^$"),
        ("a: " + "9" * 9000, "not YAML"),
    ],
)  # fmt: skip
def test_yaml_beyond_plain_data_is_refused(text: str, said: str) -> None:
    """Right numbers, points 20 and 21."""
    if said == "^$":
        assert plain_yaml.parse(text, "here")["a"] > 0
        return
    with pytest.raises(InputError, match=said) as caught:
        plain_yaml.parse(text, "here")
    assert "here" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_is_read_as_the_training_commands_read_it() -> None:
    """Right numbers, point 8: 3e-3 is a number and a date is a text wherever it is read."""
    assert plain_yaml.parse("{a: 3e-3, b: 2020-01-01, c: 1.5e3, d: .inf, e: 1}", "") == {
        "a": 0.003, "b": "2020-01-01", "c": 1500.0, "d": math.inf, "e": 1,
    }  # fmt: skip


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_give_a_result_or_one_line(content: bytes, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    path = tmp_path / "summary.json"
    path.write_bytes(content)
    for read in (
        lambda: read_json(path, CheckpointRecord),
        lambda: read_yaml(path, Settings, "configuration"),
        lambda: read_history(path),
        lambda: RunDirectory(tmp_path).summary(),
    ):
        said = line_of(read)
        assert said is None or (str(path) in said and "\n" not in said)


def line_of(read: Callable[[], object]) -> str | None:
    """What is said of bad input, or None where there is a result."""
    try:
        read()
    except InputError as error:
        return str(error)
    return None
