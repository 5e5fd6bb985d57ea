"""Which format a file has: by its first bytes, then by the ending of its name; what is no text is refused."""

import re
from pathlib import Path
from typing import Literal

from ilr.data.compression import (
    Compression,
    compression_of,
    file_chunks,
    open_binary,
    read_bytes,
    shown,
    without_ending,
)
from ilr.data.containers import DelimitedRows, JsonRows, ParquetRows
from ilr.data.corpora import Source, TextFile
from ilr.data.decoding import encoding_of
from ilr.errors import InputError

Format = Literal["auto", "text", "json", "csv", "tsv", "parquet"]
"""How files are read; auto: by their first bytes and the endings of their names."""

FORMATS: tuple[Format, ...] = ("auto", "text", "json", "csv", "tsv", "parquet")
_ENDINGS: dict[str, Format] = {
    **dict.fromkeys([".jsonl", ".ndjson", ".jsonlines", ".ldjson", ".jl", ".json"], "json"),
    ".csv": "csv",
    **dict.fromkeys([".tsv", ".tab"], "tsv"),
    **dict.fromkeys([".parquet", ".parq", ".pq"], "parquet"),
}
HEAD_BYTES = 4096

_CONVERT = "save its text as .txt, .jsonl, .csv or .parquet first"
_UNPACK = "unpack it first and give the files in it"
_FOREIGN: dict[bytes, tuple[str, str]] = {
    b"%PDF-": ("a PDF document", _CONVERT),
    b"%!PS": ("a PostScript document", _CONVERT),
    b"{\\rtf": ("a rich-text document", _CONVERT),
    b"\xd0\xcf\x11\xe0": ("an old office document (.doc, .xls, .ppt)", _CONVERT),
    b"PK\x03\x04": (
        "a zip archive or a document made of one (.docx, .xlsx, .odt, .epub)",
        "unpack the archive, or save the document's text as .txt",
    ),
    b"PK\x05\x06": ("an empty zip archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    b"Rar!\x1a\x07": ("a rar archive", _UNPACK),
    b"\x1f\x9d": ("compressed by `compress`", "decompress it first"),
    b"\x04\x22\x4d\x18": ("compressed by lz4", "decompress it first"),
    b"LZIP\x01": ("compressed by lzip", "decompress it first"),
    b"\xff\x06\x00\x00sNaPpY": ("compressed by snappy", "decompress it first"),
    b"ARROW1\0\0": ("an Arrow or Feather file", _CONVERT),
    b"\xff\xff\xff\xff": ("an Arrow stream", _CONVERT),
    b"FEA1\0": ("a Feather file", _CONVERT),
    b"Obj\x01": ("an Avro file", _CONVERT),
    b"SQLite format 3\0": ("an SQLite database", _CONVERT),
    b"\x89HDF\r\n\x1a\n": ("an HDF5 file", _CONVERT),
    b"\x93NUMPY": ("a NumPy array", _CONVERT),
    **{b"\x80" + bytes([version]): ("a Python pickle", _CONVERT) for version in range(2, 6)},
    b"\x89PNG": ("a picture", _CONVERT),
    b"\xff\xd8\xff": ("a picture", _CONVERT),
    b"GIF87a": ("a picture", _CONVERT),
    b"GIF89a": ("a picture", _CONVERT),
    b"\x7fELF": ("a program", _CONVERT),
    b"WARC/": ("a web archive (WARC)", _CONVERT),
    b"version https://git-lfs.github.com/spec/": ("the pointer of Git LFS, not the data", "git lfs pull"),
}
"""First bytes of what holds no text as it stands: what it is, what to do."""

_FOREIGN_ENDINGS = {
    **dict.fromkeys([".doc", ".docx", ".odt", ".rtf", ".pdf", ".ps", ".djvu", ".ppt", ".pptx"], "a document"),
    **dict.fromkeys([".epub", ".mobi", ".azw3"], "an electronic book"),
    **dict.fromkeys([".xls", ".xlsx", ".ods"], "a spreadsheet"),
    **dict.fromkeys([".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".jar", ".whl"], "an archive"),
    **dict.fromkeys([".br", ".lz4", ".lz", ".sz", ".snappy", ".z", ".lzo"], "a compressed file"),
    **dict.fromkeys([".arrow", ".feather", ".orc", ".avro", ".h5", ".hdf5", ".mat", ".rds"], "a table"),
    **dict.fromkeys([".db", ".sqlite", ".sqlite3", ".mdb", ".lmdb", ".duckdb"], "a data base"),
    **dict.fromkeys([".npy", ".npz", ".pkl", ".pickle", ".joblib", ".bin", ".idx", ".mds"], "binary data"),
    **dict.fromkeys([".pt", ".pth", ".ckpt", ".safetensors", ".gguf", ".onnx"], "a model's weights"),
    **dict.fromkeys([".tfrecord", ".tfrecords", ".msgpack", ".pb", ".beton"], "a file of records"),
    **dict.fromkeys([".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"], "a picture"),
    **dict.fromkeys([".mp3", ".mp4", ".wav", ".flac", ".ogg", ".mkv", ".avi", ".webm"], "sound or film"),
    **dict.fromkeys([".exe", ".so", ".dll", ".o", ".a", ".pyc", ".class", ".wasm"], "a program"),
    **dict.fromkeys([".ipynb", ".warc", ".arff"], "a format around text"),
}
READABLE_ENDINGS = frozenset([*_ENDINGS, ".txt", ".text", ".md"])
LOCAL_ENDINGS = READABLE_ENDINGS | _FOREIGN_ENDINGS.keys()

_JSON_ROWS = re.compile(r'\s*(\[\s*)?\{\s*"([^"\\]|\\.)*"\s*:|\s*\[\s*"([^"\\]|\\.)*"\s*[,\]]')
"""The beginning of an object, of an array of objects, or of one of strings."""


def local_source(path: Path, column: str, data_format: Format) -> Source:
    """The reader for a file; InputError naming the file for what is not known to be readable text."""
    with open_binary(path) as file:
        raw = read_bytes(file, path, HEAD_BYTES)
    compression = compression_of(raw)
    head = raw if compression is None else _decompressed_head(path)
    plain_name, compressed_ending = without_ending(path.name)
    if compressed_ending and not raw:
        raise InputError(f"{shown(path)} is empty: no {compressed_ending[1:]} file has 0 bytes")
    _check_not_foreign(path, head, compression)
    ending = Path(plain_name).suffix.lower()
    chosen: Format = _ENDINGS.get(ending, "text") if data_format == "auto" else data_format
    if chosen == "parquet" or head.startswith(b"PAR1\x15"):
        return _parquet(path, column, head, compression, data_format)
    match chosen:
        case "json":
            return JsonRows(path, column)
        case "csv":
            return DelimitedRows(path, column, ",")
        case "tsv":
            return DelimitedRows(path, column, "\t")
        case _:
            if data_format == "auto":
                _check_plain_text(path, ending, head, column)
            return TextFile(path)


def _decompressed_head(path: Path) -> bytes:
    chunks = file_chunks(path)
    head = next(chunks, b"")
    while len(head) < HEAD_BYTES and (more := next(chunks, b"")):
        head += more
    return head[:HEAD_BYTES]


def _check_not_foreign(path: Path, head: bytes, compression: Compression | None) -> None:
    inside = f"{shown(path)} {'holds' if compression else 'is'}"
    if compression is not None and (again := compression_of(head)) is not None:
        raise InputError(f"{shown(path)} is compressed twice, the second time by {again.name}: {_UNPACK}")
    if head[257:262] == b"ustar" and b"\0" in head[:257]:
        raise InputError(f"{inside} a tar archive: {_UNPACK}")
    if head.startswith(tuple(_FOREIGN)):
        what, advice = next(_FOREIGN[magic] for magic in _FOREIGN if head.startswith(magic))
        raise InputError(f"{inside} {what}: {advice}")


def _parquet(
    path: Path, column: str, head: bytes, compression: Compression | None, data_format: Format
) -> Source:
    if not head.startswith(b"PAR1"):
        raise InputError(f"cannot read {shown(path)} as parquet: it does not begin as such a file does")
    if compression is not None:
        raise InputError(f"{shown(path)} holds a parquet file: decompress it first")
    if data_format not in ("auto", "parquet"):
        raise InputError(f"{shown(path)} is a parquet file, --data.format {data_format} does not fit")
    return ParquetRows(path, column)


def _check_plain_text(path: Path, ending: str, head: bytes, column: str) -> None:
    """InputError when a file without a known ending of rows is no plain text, or looks like rows."""
    if ending in _FOREIGN_ENDINGS:
        raise InputError(
            f"{shown(path)} is {_FOREIGN_ENDINGS[ending]} by its ending {ending}: {_CONVERT}; if it is plain "
            "text all the same: --data.format text"
        )
    encoding, mark = encoding_of(head)
    text = head[len(mark) :].decode(encoding, errors="ignore")
    if _JSON_ROWS.match(text):
        looks, reader = "JSON", "json"
    elif (delimiter := _delimiter_of_header(text, column)) is not None:
        looks, reader = "a table", "tsv" if delimiter == "\t" else "csv"
    else:
        return
    raise InputError(
        f"{shown(path)} begins like {looks}, which its name does not say: --data.format {reader} reads its rows' "
        f"column {column!r} (--data.column), --data.format text trains on it as it stands"
    )


def _delimiter_of_header(text: str, column: str) -> str | None:
    """The delimiter if the first line is names of columns, one of them the column asked for."""
    first = text.partition("\n")[0] if "\n" in text and column in text else ""
    for delimiter in ",\t;|":
        names = [name.strip().strip('"') for name in first.split(delimiter)]
        if (
            len(names) > 1
            and column in names
            and all(re.fullmatch(r"[\w .:-]{0,40}", name) for name in names)
        ):
            return delimiter
    return None
