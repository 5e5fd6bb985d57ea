"""Files are read by what they are: every container under every compression, damage and foreign formats by name."""

import gzip
import io
import lzma
import pickle
import shutil
import sqlite3
import subprocess
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from container_cases import COMPRESS, CONTAINERS, items, read, write

from ilr.data import compression
from ilr.data.corpora import TextFile
from ilr.data.formats import Format
from ilr.errors import InputError

TEXTS = [
    "one",
    'zwei\nlines, "quoted"; and\ttabs',
    "🦊 数学",
    " spaces ",
    "x" * 5000,
    '[1, {"a": null}]\r\nend',
]


@pytest.mark.parametrize("compressed", COMPRESS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_under_every_compression_gives_its_documents(
    tmp_path: Path, container: str, compressed: str
) -> None:
    """Right numbers, points 6 and 7: no format is trained on as text."""
    path = write(container, tmp_path, TEXTS, compressed)
    if compressed and container.startswith("parquet"):
        with pytest.raises(InputError, match=r"rows\.parquet\.\w+ holds a parquet file: decompress it first"):
            read(path)
    else:
        assert read(path) == TEXTS


@pytest.mark.parametrize("compressed", COMPRESS)
def test_text_is_the_same_compressed_or_not_whatever_the_name_says(tmp_path: Path, compressed: str) -> None:
    """Right numbers, point 6: the first bytes decide, not the ending."""
    text = "zwölf Boxkämpfer\r\n\tjagen 🦊\x0b\u2028 数学\n" * 5000
    for name in ("a.txt", f"a.txt{compressed}", "a", "wiki.train.tokens", "a.py", "a.html", "a.TXT.GZ"):
        (tmp_path / name).write_bytes(COMPRESS[compressed](text.encode()))
        assert read(tmp_path / name) == [text]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("size", [1, 3, 1 << 18])
def test_a_mark_at_the_start_names_the_encoding_and_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, size: int
) -> None:
    """Right numbers, point 6: UTF-16 is read, not made NULs of."""
    monkeypatch.setattr(compression, "CHUNK_BYTES", size)
    mark = "\ufeff" if encoding.endswith("be") else ""
    for name, text, expected in (
        ("a.txt", "Привет 🦊\n", ["Привет 🦊\n"]),
        ("a.jsonl", '{"text": "Привет 🦊"}\n', ["Привет 🦊"]),
        ("a.csv", "text,n\nПривет 🦊,1\n", ["Привет 🦊"]),
        ("empty.txt", "", [""]),
    ):
        (tmp_path / name).write_bytes((mark + text).encode(encoding))
        assert read(tmp_path / name) == expected


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("text", ["plain words\n", "Привет, мир\n", "数学 and 🦊\n"])
def test_wide_text_without_a_mark_is_refused_and_the_advice_makes_it_right(
    tmp_path: Path, encoding: str, text: str
) -> None:
    """Right numbers, point 6: the command that the message gives is run as it stands."""
    path = tmp_path / "wide text.txt"
    path.write_bytes((text * 2000).encode(encoding))
    with pytest.raises(
        InputError, match=f"wide text.txt .* it looks like {encoding}, convert it: "
    ) as raised:
        read(path)
    assert read(follow(raised.value, path, "convert it: ")) == [text * 2000]


def follow(error: InputError, path: Path, after: str) -> Path:
    """Run the command that a message ends with; the path of what it made."""
    command = str(error).split(after)[-1]
    subprocess.run(["bash", "-c", command], check=False, capture_output=True)
    (made,) = [each for each in path.parent.iterdir() if ".utf8" in each.name]
    return made


@pytest.mark.parametrize("compressed", COMPRESS)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("it’s café – naïve\n".encode("cp1252") * 20, "it’s café – naïve\n" * 20),
        ("数学 café\n".encode() * 20 + b"bad \xff byte\n", "数学 café\n" * 20 + "bad  byte\n"),
        (b"some words\n" * 9 + b"a\0b\n", "some words\n" * 9 + "ab\n"),
    ],
    ids=["another encoding", "a damaged byte", "a NUL byte"],
)
def test_the_advice_for_text_that_is_not_utf8_is_true_when_followed(
    tmp_path: Path, compressed: str, data: bytes, expected: str
) -> None:
    """Right numbers, point 6: also for compressed files, and without making right characters wrong."""
    if compressed == ".zst" and shutil.which("zstd") is None:
        pytest.skip("no command zstd")
    path = tmp_path / f"it's.txt{compressed}"
    path.write_bytes(COMPRESS[compressed](data))
    with pytest.raises(InputError, match=r"it's\.txt.* (is not UTF-8: byte 0x|holds a NUL byte)") as raised:
        read(path)
    assert read(follow(raised.value, path, ": ")) == [expected]


def _tar(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("a.txt")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _zip(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "text")
    return packed.getvalue()


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table t (text)")
        return connection.serialize()


def _numpy() -> bytes:
    packed = io.BytesIO()
    np.save(packed, np.arange(5))
    return packed.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "a.docx": (_zip("word/document.xml"), "zip archive or a document"),
    "a.zip": (_zip("a.txt"), "zip archive"),
    "a.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF document"),
    "a.tar": (_tar(b"text"), "tar archive"),
    "a.tar.gz": (gzip.compress(_tar(b"text")), "holds a tar archive: unpack it first"),
    "a.txt.xz": (lzma.compress(_tar(b"text")), "holds a tar archive"),
    "a.pkl": (pickle.dumps(["text"]), "Python pickle"),
    "a.npy": (_numpy(), "NumPy array"),
    "a.db": (_sqlite(), "SQLite database"),
    "a.h5": (b"\x89HDF\r\n\x1a\n" + bytes(50), "HDF5 file"),
    "a.arrow": (b"ARROW1\0\0" + bytes(50), "Arrow or Feather"),
    "a.bin": (b"ordinary words", r"binary data by its ending \.bin.*--data\.format text"),
    "a.ipynb": (b'{"cells": []}', r"a format around text by its ending \.ipynb"),
    "a.br": (b"\x0b\x02\x80abc", r"a compressed file by its ending \.br"),
    "a.gz.txt": (gzip.compress(gzip.compress(b"text")), "compressed twice, the second time by gzip"),
    "a.txt.lz4": (b"\x04\x22\x4d\x18" + bytes(50), "compressed by lz4: decompress it first"),
    "pointer.txt": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "git lfs pull"),
    "page.parquet": (b"<!DOCTYPE html><html></html>", "as parquet: it does not begin as such a file does"),
    "cut.parquet": (b"PAR1" + bytes(100), "cannot read .*cut.parquet as parquet"),
    "rows.txt": (b'{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n', "begins like JSON.*--data.format json"),
    "rows": (b'[\n {"text": "a"}\n]', "begins like JSON"),
    "strings.md": (b'["a", "b"]', "begins like JSON"),
    "table.txt": (b"id,text\n1,a\n2,b\n", "begins like a table.*--data.format csv"),
    "table.dat": (b"text\tlabel\na\t1\n", "begins like a table.*--data.format tsv"),
    "program.txt": (b"\x7fELF\x02\x01\x01" + bytes(9), "a program"),
    "random.txt": (bytes(range(1, 256)) * 4, "holds binary data"),
    "empty.jsonl.gz": (b"", "is empty: no gz file has 0 bytes"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_text_is_refused_by_name_and_with_what_to_do(tmp_path: Path, name: str) -> None:
    """Right numbers, point 6: known by its first bytes where the ending lies."""
    data, message = FOREIGN[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name}.*{message}|{message}") as raised:
        read(tmp_path / name)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.pdf", "a.db", "a.npy", "a.pkl", "a.tar", "a.docx"])
def test_the_first_bytes_decide_under_every_other_name(tmp_path: Path, name: str) -> None:
    """Right numbers, point 6: an ending that lies."""
    data, message = FOREIGN[name]
    for other in ("b.txt", "b", "b.jsonl", "b.csv", "b.txt.gz"):
        (tmp_path / other).write_bytes(data)
        with pytest.raises(InputError, match=message):
            read(tmp_path / other)


@pytest.mark.parametrize(
    "text",
    [
        "BZhang said",
        "ORCHARDS",
        "PARENTS",
        "PAR1 of 2",
        "GIF8",
        "LZIP is",
        "Rar! it",
        "]",
        "%PD",
        "P*M",
        "FEA1",
        "[1] A",
        "{x}",
    ],
)
def test_text_that_begins_almost_like_another_format_is_text(tmp_path: Path, text: str) -> None:
    """Right numbers, point 6: nothing is refused for three letters."""
    for content in (text, text + " and more words\n" * 50):
        (tmp_path / "a.txt").write_text(content)
        assert read(tmp_path / "a.txt") == [content]


@pytest.mark.parametrize(
    ("name", "content", "data_format", "expected"),
    [
        ("a.json", '{"text": "a"}', "text", ['{"text": "a"}']),
        ("a.csv", "id,text\n1,a\n", "text", ["id,text\n1,a\n"]),
        ("a.txt", '{"text": "a"}\n{"text": "b"}\n', "json", ["a", "b"]),
        ("a.txt", "id,text\n1,a\n", "csv", ["a"]),
        ("a.dat", "id\ttext\n1\ta\n", "tsv", ["a"]),
        ("a.pdf", "plain\n", "text", ["plain\n"]),
    ],
)
def test_the_user_can_say_how_files_are_read(
    tmp_path: Path, name: str, content: str, data_format: Format, expected: list[str]
) -> None:
    """Right numbers, point 6: the options that the refusals name do what they say."""
    (tmp_path / name).write_text(content)
    assert read(tmp_path / name, data_format=data_format) == expected


@pytest.mark.parametrize("compressed", [".gz", ".bz2", ".xz", ".zst"])
def test_damaged_compressed_files_are_one_line_and_joined_ones_are_read(
    tmp_path: Path, compressed: str
) -> None:
    """Right numbers, point 6: nothing of a damaged file is trained on."""
    compress = COMPRESS[compressed]
    text = "".join(f"line {number * number}\n" for number in range(3000))
    whole = compress(text.encode())
    path = tmp_path / f"a.txt{compressed}"

    def result(data: bytes) -> list[str] | str:
        path.write_bytes(data)
        try:
            return items(TextFile(path))
        except InputError as error:
            return str(error)

    assert result(whole + whole) == [text + text]
    assert result(whole + bytes(512)) == [text]
    assert result(whole + bytes(512) + whole) == [text + text]
    assert result(compress(b"") + whole + compress(b"")) == [text]
    for cut in (len(whole) // 2, len(whole) - 1, 8):
        assert "cut off" in result(whole[:cut])
        assert "cut off" in result(whole + whole[:cut])
    for garbage in (b"garbage", b"x", b"more text\n" * 9):
        assert "comes something else" in result(whole + garbage)
    flipped = bytearray(whole)
    flipped[-6] ^= 255  # in the checksum, or in the data's end
    assert "damaged" in result(bytes(flipped))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no such file")
def test_a_disk_that_fails_is_one_line() -> None:
    """Right numbers, point 22."""
    with pytest.raises(InputError, match="cannot read /proc/self/mem: Input/output error"):
        read(Path("/proc/self/mem"))


def test_gzip_of_many_members_and_the_skippable_frames_of_zstd_are_read(tmp_path: Path) -> None:
    """Right numbers, point 6: what parallel compressors write."""
    (tmp_path / "a.txt.gz").write_bytes(b"".join(gzip.compress(f"{n}\n".encode()) for n in range(500)))
    assert read(tmp_path / "a.txt.gz") == ["".join(f"{n}\n" for n in range(500))]
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    frame = zstandard.ZstdCompressor().compress(b"text\n")
    (tmp_path / "a.txt.zst").write_bytes(skippable + frame + skippable + frame)
    assert read(tmp_path / "a.txt.zst") == ["text\ntext\n"]
    (tmp_path / "a.txt.lzma").write_bytes(lzma.compress(b"old\n", format=lzma.FORMAT_ALONE))
    assert read(tmp_path / "a.txt.lzma") == ["old\n"]


@pytest.mark.parametrize("compressed", [".gz", ".bz2", ".xz", ".zst"])
def test_a_small_file_of_much_text_is_read_in_bounded_memory(tmp_path: Path, compressed: str) -> None:
    """Right numbers, point 6: the memory of a bomb does not depend on what it holds."""
    path = tmp_path / f"a.txt{compressed}"
    once = COMPRESS[compressed](b"a" * 20_000_000)
    path.write_bytes(once * 3)
    tracemalloc.start()
    length = sum(len(piece or "") for piece in TextFile(path).pieces())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert length == 60_000_000
    assert peak < 25_000_000


def test_rows_and_lines_too_long_for_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right numbers, point 6: no row grows without a bound."""
    for module in ("rows", "json_stream", "containers"):
        monkeypatch.setattr(f"ilr.data.{module}.LONGEST_ROW", 1_000_000)
    monkeypatch.setattr(compression, "CHUNK_BYTES", 1 << 16)
    text = "a" * 3_000_000
    for container in CONTAINERS:
        with pytest.raises(InputError, match=r"longer than|field larger than"):
            read(write(container, tmp_path, ["short", text]))


def test_without_a_reader_for_zstd_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right numbers, point 6."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    (tmp_path / "a.txt.zst").write_bytes(COMPRESS[".zst"](b"text"))
    monkeypatch.setattr(compression.importlib, "import_module", absent)
    with pytest.raises(InputError, match="pip install zstandard"):
        read(tmp_path / "a.txt.zst")
