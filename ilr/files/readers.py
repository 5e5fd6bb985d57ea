"""Our files as typed data: each is read here, checked by its schema, and named where it is not what it should be."""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ilr.errors import InputError
from ilr.files import plain_json, plain_yaml
from ilr.files.text import LARGEST, read_text

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Schema = TypeVar("Schema", bound="BaseModel")

LARGEST_HISTORY = 2**32


def read_json(path: Path, schema: type[Schema], largest: int = LARGEST) -> Schema:
    """The object of a JSON file; raises `MissingFile`, or `InputError` that names file and key."""
    return validated(plain_json.loads(read_text(path, largest), path), schema, path)


def read_yaml(path: Path, schema: type[Schema], what: str) -> Schema:
    """The mapping of a YAML file; raises as `read_json`. ``what`` names the file's kind in a message."""
    return validated(plain_yaml.read_mapping(path, what), schema, path)


def read_jsonl(path: Path, schema: type[Schema], containing: str = "") -> list[Schema]:
    """The objects of a file with one a line; raises as `read_json`, naming the line too.

    A last line that was cut short, by a kill, is left out. ``containing`` skips lines without this text unread.
    """
    lines = read_text(path, LARGEST_HISTORY).split("\n")
    if not _is_whole(lines[-1]):
        del lines[-1]
    chosen = [(number, line) for number, line in enumerate(lines, 1) if containing in line]
    together = _all_at_once([line for _, line in chosen], schema)
    if together is not None:
        return together
    found = []
    for number, line in chosen:
        where = f"{path}, line {number}"
        found.append(validated(plain_json.loads(line, where), schema, where))
    return found


def _all_at_once(lines: list[str], schema: type[Schema]) -> list[Schema] | None:
    """The objects of flat lines in one go, which is quicker; None where something is to be looked at line by line."""
    from pydantic import TypeAdapter, ValidationError

    text = ",".join(lines)
    if text.count("{") != len(lines) or "[" in text or "\\u" in text:
        return None
    try:
        values = json.loads(f"[{text}]")
        return TypeAdapter(list[schema]).validate_python(values)  # type: ignore[valid-type]
    except (ValueError, ValidationError):
        return None


def _is_whole(last: str) -> bool:
    try:
        plain_json.loads(last, "")
    except InputError:
        return False
    return True


def validated(value: Any, schema: type[Schema], where: object) -> Schema:
    """Plain data as this schema; raises `InputError` that names the place, the key, what came and what is allowed."""
    from pydantic import ValidationError

    if not isinstance(value, Mapping):
        raise InputError(f"{where}: got {_short(value)}, allowed: an object with keys")
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{where}: {_described(error)}") from None


def _described(error: "ValidationError") -> str:
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ""
    for part in first["loc"]:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    if first["type"] == "missing":
        text = f"lacks the key {key!r}"
    else:
        allowed = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        text = f"{key}: got {_short(first['input'])}, allowed: {allowed}"
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def _short(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # more digits than Python writes out
        return "a number without end"
