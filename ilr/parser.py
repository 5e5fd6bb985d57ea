"""Command lines whose errors are one message: what was given, what is allowed, and where. No torch."""

import re
import sys
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, _loaders_dumpers

from ilr.plan import SCHEDULE_EXAMPLES
from ilr.runs.plain_yaml import PlainLoader

# The library reads option values and --config files with a loader of its own, without bounds; it has no public
# way to give it another one for all of them.
_loaders_dumpers.yaml_default_loader = PlainLoader  # type: ignore[assignment]  # declared None


def fail(message: str) -> NoReturn:
    """Print one error message and exit with status 2 (wrong use)."""
    print(f"error: {tidy(message)}", file=sys.stderr)
    if "model.schedule" in message and "for example" not in message:
        print(
            f'hint: a schedule is {SCHEDULE_EXAMPLES}; quoted: --model.schedule "[3,2,1,1]"', file=sys.stderr
        )
    raise SystemExit(2)


class CommandParser(ArgumentParser):
    """The parser of the commands that do not train."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong in one message."""
        fail(message)


def tidy(message: str) -> str:
    """A library's message without the line breaks of its own layout."""
    return re.sub(r"\s*\n\s*", " ", str(message)).strip()


def plain(value: Any) -> Any:
    """Configuration values as plain lists and dictionaries."""
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
