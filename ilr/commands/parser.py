"""Command lines whose errors are one message: what was given, what is allowed, and where. No torch."""

import re
import sys
from typing import NoReturn

from jsonargparse import ArgumentParser, _loaders_dumpers

from ilr.files.plain_yaml import PlainLoader
from ilr.model.plan import SCHEDULE_EXAMPLES

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
