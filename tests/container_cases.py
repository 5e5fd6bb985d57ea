"""The same rows written to every container and compression, by the writers that people use."""

import bz2
import csv
import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from ilr.data.corpora import Source
from ilr.data.formats import Format, local_source

Texts = Sequence[str | None]


def _lines(path: Path, texts: Texts, *, ascii_only: bool = False) -> None:
    rows = (json.dumps({"id": n, "text": text}, ensure_ascii=ascii_only) for n, text in enumerate(texts))
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8", newline="")


def _array(path: Path, texts: Texts, *, indent: int | None = None) -> None:
    rows = [{"id": n, "text": text} for n, text in enumerate(texts)]
    path.write_text(json.dumps(rows, indent=indent), encoding="utf-8")


def _strings(path: Path, texts: Texts) -> None:
    path.write_text(json.dumps(list(texts)), encoding="utf-8")


def _table(path: Path, texts: Texts, *, delimiter: str, line_end: str = "\r\n", mark: str = "") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(mark)
        writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end)
        writer.writerow(["id", "text"])
        writer.writerows([n, text] for n, text in enumerate(texts))


def _parquet(path: Path, texts: Texts, *, kind: pa.DataType) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)
    column = pa.array([text if is_text or text is None else text.encode() for text in texts], type=value)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_encode()
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": column}), path)


CONTAINERS: dict[str, tuple[str, Callable[[Path, Texts], None]]] = {
    "json lines": (".jsonl", _lines),
    "json lines in .JSONL": (".JSONL", _lines),
    "json lines in .ndjson": (".ndjson", lambda path, texts: _lines(path, texts, ascii_only=True)),
    "json lines in .jsonlines": (".jsonlines", _lines),
    "json lines in .json": (".json", _lines),
    "json array": (".json", _array),
    "json array over lines": (".json", lambda path, texts: _array(path, texts, indent=1)),
    "json array in .jsonl": (".jsonl", _array),
    "json array of strings": (".json", _strings),
    "csv": (".csv", lambda path, texts: _table(path, texts, delimiter=",")),
    "csv in .CSV with a mark": (
        ".CSV",
        lambda path, texts: _table(path, texts, delimiter=",", mark="\ufeff"),
    ),
    "csv with semicolons": (".csv", lambda path, texts: _table(path, texts, delimiter=";", line_end="\n")),
    "tsv": (".tsv", lambda path, texts: _table(path, texts, delimiter="\t", line_end="\n")),
    "parquet": (".parquet", lambda path, texts: _parquet(path, texts, kind=pa.string())),
    "parquet, large": (".parquet", lambda path, texts: _parquet(path, texts, kind=pa.large_string())),
    "parquet, view": (".parquet", lambda path, texts: _parquet(path, texts, kind=pa.string_view())),
    "parquet, bytes": (".parquet", lambda path, texts: _parquet(path, texts, kind=pa.binary())),
    "parquet, dictionary": (
        ".parquet",
        lambda path, texts: _parquet(path, texts, kind=pa.dictionary(pa.int32(), pa.string())),
    ),
}
"""Name → the ending of the file's name, and what writes texts (None: null) with a column `id` before them."""

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def write(container: str, folder: Path, texts: Texts, compressed: str = "") -> Path:
    """A file of that container in the folder, perhaps compressed."""
    ending, writer = CONTAINERS[container]
    path = folder / f"rows{ending}"
    writer(path, texts)
    if compressed:
        packed = path.with_name(path.name + compressed)
        packed.write_bytes(COMPRESS[compressed](path.read_bytes()))
        path = packed
    return path


def items(source: Source) -> list[str]:
    """The texts between the Nones."""
    found, parts = [], []
    for piece in source.pieces():
        if piece is None:
            found.append("".join(parts))
            parts = []
        else:
            parts.append(piece)
    assert not parts
    return found


def read(path: Path, column: str = "text", data_format: Format = "auto") -> list[str]:
    """The items of a file, by the reader chosen for it."""
    return items(local_source(path, column, data_format))
