"""documents.parquet read back: the likelihood of each evaluated document."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from ilr.errors import InputError
from ilr.files.text import LARGEST, MissingFile

COLUMNS = ("split", "document", "tokens", "bytes", "nll")


def read_documents(path: Path) -> dict[str, np.ndarray]:
    """The columns split, document (number or name), tokens, bytes and nll, one entry per document.

    Raises `MissingFile`, or `InputError` that names file and column: one that is missing, of another type,
    has holes, or counts below zero.
    """
    if not path.exists():
        raise MissingFile(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            missing = sorted(set(COLUMNS) - set(file.schema_arrow.names))
            if missing:
                raise InputError(f"{path} lacks the column(s) {', '.join(missing)}")
            if file.metadata.num_rows > LARGEST:
                raise InputError(f"{path} has {file.metadata.num_rows:,} rows; at most {LARGEST:,} are read")
            table = file.read(list(COLUMNS))
    except InputError:
        raise
    except Exception as error:  # a damaged file fails in many ways: in the footer, a page, a type, a text
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return {name: _checked(table[name], name, path) for name in COLUMNS}


def _checked(column: Any, name: str, path: Path) -> np.ndarray:
    kinds: dict[str, tuple[Any, str]] = {
        "split": (_is_text, "text"),
        "document": (lambda kind: _is_text(kind) or arrow.types.is_integer(kind), "text or whole numbers"),
        "nll": (arrow.types.is_floating, "numbers"),
    }
    fits, allowed = kinds.get(name, (arrow.types.is_integer, "whole numbers"))
    if not fits(column.type):
        raise InputError(f"{path}: {name}: got a column of {column.type}, allowed: {allowed}")
    if column.null_count:
        raise InputError(f"{path}: {name}: got {column.null_count} entries without a value, allowed: none")
    try:
        values: np.ndarray = column.to_numpy()
    except Exception as error:  # a text that is not UTF-8 is found only now
        raise InputError(f"{path}: {name} cannot be read: {' '.join(str(error).split())}") from None
    if name in ("tokens", "bytes") and len(values) and values.min() < 0:
        raise InputError(f"{path}: {name}: got {values.min()}, allowed: at least 0")
    return values


def _is_text(kind: Any) -> bool:
    return any(fits(kind) for fits in (arrow.types.is_string, arrow.types.is_large_string)) or (
        arrow.types.is_dictionary(kind) and _is_text(kind.value_type)
    )
