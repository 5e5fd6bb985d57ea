"""JSON that every reader takes: a number that is not finite stands as null, and beside it what it was.

`{"val_loss": 800.0, "val_perplexity": null, "not_finite": {"val_perplexity": "infinity"}}`. Below the first
level ``not_finite`` has the keys and, of lists, the positions on the way. Reading gives the numbers back.
"""

import json
import math
import re
from typing import Any

from ilr.errors import InputError

NOT_FINITE = "not_finite"
DEEPEST = 64
"""Levels of lists and objects in each other that a file of ours may have."""

_NUMBERS = {"infinity": math.inf, "-infinity": -math.inf, "not a number": math.nan}


def dumps(content: dict[str, Any], indent: int | None = None) -> str:
    """An object as strict JSON."""
    assert NOT_FINITE not in content
    plain, found = _without(content)
    return json.dumps(plain | {NOT_FINITE: found} if found else plain, indent=indent, allow_nan=False)


def loads(text: str, where: object) -> Any:
    """What `dumps` wrote, or any other JSON; ``where`` names the place in a message.

    Files written before this rule hold the words NaN and Infinity: these are read too. Raises `InputError`
    for what is not JSON, nested too deeply, or text that is none (half of a surrogate pair).
    """
    if not text.strip():
        raise InputError(f"{where} is empty")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{where} is not JSON ({place}: {error.msg})") from None
    except RecursionError:
        raise InputError(f"{where} is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:  # a number of more digits than Python takes
        raise InputError(f"{where} is not JSON: {str(error).split(';')[0]}") from None
    _check(value, where, 0)
    if re.search(r"\\u[dD][89a-fA-F]", text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InputError(f"{where} holds half of a surrogate pair, which is no text") from None
    return _restored(value, where)


def _without(value: Any) -> tuple[Any, Any]:
    """The value with nulls for what is not finite, and what that was, by key; None where there is nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, "not a number" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if not isinstance(value, dict | list | tuple):
        return value, None
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    parts = {key: _without(entry) for key, entry in entries}
    plain = {key: entry for key, (entry, _) in parts.items()}
    found = {str(key): words for key, (_, words) in parts.items() if words is not None}
    return plain if isinstance(value, dict) else list(plain.values()), found or None


def _restored(value: Any, where: object) -> Any:
    """The value with the numbers that `_without` took out."""
    if not isinstance(value, dict) or NOT_FINITE not in value:
        return value
    found = value.pop(NOT_FINITE)
    try:
        return _with(value, found)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise InputError(
            f"{where}: {NOT_FINITE}: got {json.dumps(found)[:60]}, allowed: keys whose value is null, each with "
            f"one of {', '.join(_NUMBERS)}"
        ) from None


def _with(value: Any, found: Any) -> Any:
    if value is None:
        return _NUMBERS[found]
    for key, words in found.items():
        place = int(key) if isinstance(value, list) else key
        value[place] = _with(value[place], words)
    return value


def _check(value: Any, where: object, depth: int) -> None:
    if depth > DEEPEST:
        raise InputError(f"{where} is nested deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for entry in value:
        if isinstance(entry, dict | list):
            _check(entry, where, depth + 1)
