"""One set of rules for rows, the same in every container: the table rule × container, and random rows."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from container_cases import COMPRESS, CONTAINERS, Texts, items, read, write
from data_cases import ready, text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ilr.data import hub
from ilr.data.containers import DelimitedRows, JsonRows, ParquetRows
from ilr.data.content import content_hash
from ilr.data.corpora import Source
from ilr.data.formats import local_source
from ilr.errors import InputError

JSON = [name for name in CONTAINERS if name.startswith("json") and "strings" not in name]
TABLES = [name for name in CONTAINERS if name.startswith(("csv", "tsv"))]
PARQUET = [name for name in CONTAINERS if name.startswith("parquet")]
READERS = [*CONTAINERS, "hub", "hub, streamed"]


@pytest.fixture
def rows_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Texts], Source]:
    """A source with these texts in a column `text`, of a container or of the hub."""
    import datasets

    def make(container: str, texts: Texts) -> Source:
        if not container.startswith("hub"):
            return local_source(write(container, tmp_path, texts), "text", "auto")
        if not texts and container == "hub, streamed":
            pytest.skip("`datasets` makes no iterable of no rows")
        loaded = datasets.Dataset.from_dict({"id": list(range(len(texts))), "text": list(texts)})
        monkeypatch.setattr(
            hub, "load", lambda *_, streaming: loaded.to_iterable_dataset() if streaming else loaded
        )
        monkeypatch.setattr(hub, "probe", lambda name, revision: "c" * 40)
        spool = tmp_path / "spool" if container == "hub, streamed" else None
        return hub.HubRows("owner/name", None, "train", None, "text", spool, None)

    return make


RULES: dict[str, tuple[Texts, list[str]]] = {
    "null is an empty text": (["a", None, "b"], ["a", "", "b"]),
    "null throughout is no missing column": ([None, None], ["", ""]),
    "empty stays, to be counted": (["a", "", "b"], ["a", "", "b"]),
    "white space stays, to be counted": (["a", " \n\t", "\u2003"], ["a", " \n\t", "\u2003"]),
    "a mark at a field's start is text": (["\ufeffa", "\ufeff\ufeffb"], ["\ufeffa", "\ufeff\ufeffb"]),
    "line ends stay": (["a\r\nb\rc\nd\n", "\n"], ["a\r\nb\rc\nd\n", "\n"]),
    "quotes and delimiters stay": (['"a","b"\t;|', '""', "'"], ['"a","b"\t;|', '""', "'"]),
    "escapes are not undone": (["\\n \\u0041 &amp; %41", "\\"], ["\\n \\u0041 &amp; %41", "\\"]),
    "words for nothing are words": (
        ["null", "NaN", "NA", "None", "5", "true"],
        ["null", "NaN", "NA", "None", "5", "true"],
    ),
    "beyond the basic plane": (["🦊\U0010ffff", "e\u0301 é"], ["🦊\U0010ffff", "e\u0301 é"]),
    "separators that are no line ends": (["a\u2028b\x0bc\x0cd\x85e\x1c"], ["a\u2028b\x0bc\x0cd\x85e\x1c"]),
    "longer than a reader's field": (["a" * 300_000], ["a" * 300_000]),
    "no rows": ([], []),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("container", READERS)
def test_the_same_rows_are_the_same_items_in_every_container(
    rows_of: Callable[[str, Texts], Source], container: str, rule: str
) -> None:
    """Right numbers, point 7: the table rule × container."""
    texts, expected = RULES[rule]
    assert items(rows_of(container, texts)) == expected


@pytest.mark.parametrize("document", ["file", "line", "paragraph"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_without_text_are_skipped_and_counted_alike(
    tmp_path: Path, container: str, document: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 7: one null is fatal nowhere, and the figure is the same."""
    texts = [f"row {number} of some" if number % 5 else (None, "", " ")[number % 3] for number in range(40)]
    data = ready(write(container, tmp_path, texts), tmp_path / "cache", document=document)
    assert "corpus: 8 empty documents skipped (null, missing, or blank)" in capfd.readouterr().err
    assert data.manifest.skipped_documents == 8
    assert sorted(text(data)) == sorted(each for each in texts if each and each.strip())


def test_a_row_without_the_column_is_empty_where_others_have_it(tmp_path: Path) -> None:
    """Right numbers, point 7: missing is null, as it becomes in a table."""
    rows = [{"id": 1}, {"text": "a"}, {"id": 2, "text": None}, {}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    pq.write_table(
        pa.Table.from_pylist(rows, schema=pa.schema({"text": pa.string()})), tmp_path / "a.parquet"
    )
    (tmp_path / "a.csv").write_text("id,text\n1,\n\n,a\n \n2,\n,\n")
    for name in ("a.jsonl", "a.json", "a.parquet", "a.csv"):
        assert read(tmp_path / name) == ["", "a", "", ""]


def _refusals(path: Path, column: str = "text") -> str:
    with pytest.raises(InputError) as raised:
        read(path, column)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(str(path), "FILE")


@pytest.mark.parametrize("container", [*JSON, *TABLES, *PARQUET])
def test_a_column_that_is_nowhere_is_refused_with_those_that_are(tmp_path: Path, container: str) -> None:
    """Right numbers, point 7."""
    message = _refusals(write(container, tmp_path, ["a", "b"]), "body")
    assert "has no column 'body'; it has id, text (--data.column)" in message.replace("id;text", "id, text")


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Right numbers, point 7: no reader picks one of the two."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "a", "id": 1, "text": "b"}\n')
    (tmp_path / "a.csv").write_text("text,id,text\na,1,b\n")
    pq.write_table(
        pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"]), tmp_path / "a.parquet"
    )
    assert _refusals(tmp_path / "a.jsonl").startswith("FILE line 2 has the column 'text' twice")
    for name in ("a.csv", "a.parquet"):
        assert _refusals(tmp_path / name).startswith("FILE has the column 'text' twice")
    assert read(tmp_path / "a.csv", "id") == ["1"]


@pytest.mark.parametrize(
    ("value", "named"), [(5, "int"), (1.5, "float"), (["a"], "list"), ({"a": "b"}, "dict"), (True, "bool")]
)
def test_what_is_no_text_is_refused_by_its_row(tmp_path: Path, value: object, named: str) -> None:
    """Right numbers, point 7: a number or a list in the column of text."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\n\n" + json.dumps({"text": value}) + "\n")
    assert _refusals(tmp_path / "a.jsonl") == f"FILE line 3: column 'text' must hold text, got {named}"
    (tmp_path / "a.json").write_text(json.dumps([{"text": "a"}, {"text": value}], indent=0))
    assert f": column 'text' must hold text, got {named}" in _refusals(tmp_path / "a.json")
    pq.write_table(pa.table({"text": [value]}), tmp_path / "a.parquet")
    assert ": column 'text' must hold text, got " in _refusals(tmp_path / "a.parquet")


def test_text_that_is_no_unicode_is_refused_by_its_row(tmp_path: Path) -> None:
    """Right numbers, point 7: lone surrogates and bytes that are not UTF-8."""
    (tmp_path / "a.jsonl").write_text('{"text": "fine \\ud83e\\udd8a"}\n{"text": "\\ud800"}\n')
    assert _refusals(tmp_path / "a.jsonl") == "FILE line 2: 'text' holds a lone surrogate, no text"
    (tmp_path / "a.csv").write_bytes(b"text\na\n\xff\n")
    assert "not UTF-8: byte 0xff at offset 7" in _refusals(tmp_path / "a.csv")
    for number, kind in enumerate([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]):
        path = tmp_path / f"{number}.parquet"
        column = pa.array([b"a", b"\xff"], type=pa.large_binary() if "large" in str(kind) else pa.binary())
        pq.write_table(pa.table({"text": column.view(kind)}), path)
        assert _refusals(path).startswith("FILE row 2: column 'text' is not UTF-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{broken\n', "line 2 is not JSON"),
        ('{"text": "a"}\n[1]\n', "line 2 must be an object or a string, got list"),
        ('{"text": "a"}\n\n5\n', "line 3 must be an object or a string, got int"),
        ('{"text": "a"}\n{"text": "b\nc"}\n', "line 2 is not JSON: Invalid control character"),
        ('{"text": "a"}\n{"text": "b', "line 2 is not JSON: Unterminated string"),
        ('[{"text": "a"},\n{"text": "b"}', "line 2 is not JSON: expecting ',' or ']'"),
        ('[{"text": "a"},\n]', "line 2 is not JSON: Expecting value"),
        ('["a"]\n["b"]', "line 2 is not JSON: more comes after the end of the array"),
        ('{"text": ' + "[" * 200_000, "line 1 is not JSON that can be read"),
        ('{"text": ' + "1" * 5_000 + "}", "line 1 is not JSON that can be read"),
        ("plain text", "line 1 is not JSON"),
    ],
)
def test_what_is_no_json_is_refused_by_its_line(tmp_path: Path, content: str, message: str) -> None:
    """Right numbers, point 7."""
    (tmp_path / "a.json").write_text(content)
    assert message in _refusals(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text\n1,a\n2,b,c\n", "line 3 has 3 fields, the first line has 2"),
        ("id,text\n1,a\nrest of a\n", "line 3 has 1 fields, the first line has 2"),
        ('id,text\n1,"a\n2,b\n', "is no row: unexpected end of data"),
        ("id,text\n1,a\r\n", "line 2 ends in CR LF, the first line in LF alone"),
        ("id,text\r1,a\r2,b\r", "its lines end in CR alone; tr '\\r' '\\n' < FILE > "),
        ('id,text\n1,"a" b\n', "line 2 is no row: ',' expected after '\"'"),
        ("<!DOCTYPE html>\n<p>text\n", "has no column 'text'; it has <!DOCTYPE html>"),
    ],
)
def test_what_is_no_table_is_refused_by_its_line(tmp_path: Path, content: str, message: str) -> None:
    """Right numbers, point 7: no text is lost to a quote that is not closed or a delimiter that is not quoted."""
    (tmp_path / "a.csv").write_text(content)
    assert message in _refusals(tmp_path / "a.csv")


def test_one_text_has_one_content_hash_in_every_container_and_compression(tmp_path: Path) -> None:
    """Right numbers, points 7 and 8: equality by content, not by how it is stored."""
    texts, other = ["one", "zwei\n", "🦊"], ["one", "zwei\n", "🦊!"]
    hashes = set()
    for container in CONTAINERS:
        for compressed in COMPRESS if not container.startswith("parquet") else [""]:
            source = local_source(write(container, tmp_path, texts, compressed), "text", "auto")
            hashes.add(content_hash([source], tmp_path / "cache", joined=False))
    files = []
    for number, each in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(each)
        files.append(local_source(tmp_path / f"{number}.txt", "text", "auto"))
    hashes.add(content_hash(files, tmp_path / "cache", joined=False))
    assert len(hashes) == 1
    changed = local_source(write("json lines", tmp_path, other), "text", "auto")
    assert content_hash([changed], tmp_path / "cache", joined=False) not in hashes
    divided = local_source(write("json lines", tmp_path, ["one", "zwei", "\n🦊"]), "text", "auto")
    assert content_hash([divided], tmp_path / "cache", joined=False) not in hashes


def test_the_remembered_content_hash_is_that_of_the_text(tmp_path: Path) -> None:
    """Right numbers, point 8: a damaged or absent memory changes nothing, nor does another column share it."""
    path = tmp_path / "a.csv"
    path.write_text("text,body\na,b\n")
    cache = tmp_path / "cache"
    source = DelimitedRows(path, "text", ",")
    first = content_hash([source], cache, joined=False)
    (memory,) = (cache / "content").iterdir()
    assert content_hash([source], cache, joined=False) == first == memory.read_text()
    for damage in (b"", b"\xff", first.upper().encode(), first[:-1].encode()):
        memory.write_bytes(damage)
        assert content_hash([source], cache, joined=False) == first
    assert content_hash([DelimitedRows(path, "body", ",")], cache, joined=False) != first
    joined = content_hash([source], cache, joined=True)
    assert joined != first, "joined rows are another item: with a line end"
    with pytest.MonkeyPatch.context() as patch:
        fingerprints = iter(["one", "another"])
        patch.setattr(DelimitedRows, "fingerprint", lambda _: next(fingerprints))
        assert content_hash([source], tmp_path / "written to", joined=False) == first
    assert not (tmp_path / "written to").exists()
    (tmp_path / "no directory").write_text("")
    assert content_hash([source], tmp_path / "no directory", joined=False) == first


texts_without_surrogates = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
slow_disk = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@slow_disk
@given(st.lists(st.none() | texts_without_surrogates, max_size=8), st.integers(1, 64))
def test_random_rows_are_the_same_documents_in_every_container(
    tmp_path: Path, texts: list[str | None], size: int
) -> None:
    """Right numbers, point 7: as a property. Raw NUL characters no text file may hold."""
    # A row that a CR ends, in a table of lines that LF ends, is refused: tested apart.
    texts = [each and each.rstrip("\r") for each in texts]
    expected = [each or "" for each in texts]
    for container in CONTAINERS:
        compressed = "" if container.startswith("parquet") else list(COMPRESS)[size % len(COMPRESS)]
        if container in TABLES and any("\0" in each for each in expected):
            with pytest.raises(InputError, match="NUL"):
                read(write(container, tmp_path, texts))
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ilr.data.compression.CHUNK_BYTES", size)
            assert read(write(container, tmp_path, texts, compressed)) == expected, container


@slow_disk
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"PAR1", b"\x1f\x8b\x08", b"[", b'{"text": "', b"text\n", b"\xff\xfe"]),
)
def test_random_bytes_are_documents_or_one_line(tmp_path: Path, data: bytes, start: bytes) -> None:
    """Right numbers, points 6 and 20: result or InputError, under every name."""
    for name in (
        "a.txt",
        "a.jsonl",
        "a.csv",
        "a.tsv",
        "a.parquet",
        "a.txt.gz",
        "a.txt.zst",
        "a.json.xz",
        "a",
    ):
        path = tmp_path / name
        path.write_bytes(start + data)
        try:
            found = read(path)
        except InputError as error:
            found = str(error).splitlines()
            assert len(found) == 1
        assert all(each.encode().decode() == each for each in found)


def test_readers_with_equal_options_are_equal_and_hold_no_state(tmp_path: Path) -> None:
    path = write("json lines", tmp_path, ["a", "b"])
    assert JsonRows(path, "text") == local_source(path, "text", "auto") != ParquetRows(path, "text")
    source = JsonRows(path, "text")
    assert items(source) == items(source) == ["a", "b"]
