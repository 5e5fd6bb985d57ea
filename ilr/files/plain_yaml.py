"""YAML as plain data, read as the training commands read it: numbers and texts, lists, mappings with text as keys.

The arguments of a class (`init_args`, `dict_kwargs`) are the class's own: their mappings may have numbers as keys.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any

import yaml

from ilr.errors import InputError
from ilr.files.plain_json import DEEPEST
from ilr.files.text import read_text

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # a PyYAML built without libyaml: the same, slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

LARGEST = 2**24
"""Bytes of a YAML file."""

OF_A_CLASS = ("init_args", "dict_kwargs")
"""Keys under which the arguments of a class stand."""

MOST_NODES = 2**20
"""Values of a file once every alias stands for what it repeats."""


class Unbounded(yaml.YAMLError):
    """A text that expands or nests beyond what is read, or gives a key twice; what a message says about it."""


class PlainLoader(_SafeLoader):
    """A loader for `yaml.load`: dates are text, and 3e-3 is a number.

    Whatever is wrong is an error of YAML. How far a text expands and nests is seen while its events go by,
    before anything is built of it: the parser itself dies of a million lists within each other.
    """

    def __init__(self, text: str) -> None:
        try:
            _check_growth(yaml.parse(text, _SafeLoader))
            super().__init__(text)
        except UnicodeEncodeError:
            raise Unbounded("holds half of a surrogate pair, which is no text") from None

    def get_single_data(self) -> Any:
        """The data of the only document; None where there is none."""
        try:
            return super().get_single_data()
        except (yaml.YAMLError, MemoryError):
            raise
        except (
            Exception
        ) as error:  # a scalar under a tag that it does not fit raises whatever its constructor does
            raise Unbounded(f"is not YAML: {str(error).split(';')[0]}") from None


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.[0-9_]+(?:[eE][-+]?[0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.VERBOSE,
    ),
    list("-+0123456789."),
)


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """A YAML file that holds a mapping; empty where the file is. ``what`` names the file's kind in a message."""
    content = parse(read_text(path, LARGEST), path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: a {what} is a mapping, got {_name(content)}")
    return content


def parse(text: str, where: object) -> Any:
    """The plain data of a YAML text. ``where`` names the place in a message.

    Raises `InputError` for what is not YAML, gives a key twice, refers to itself, expands beyond bounds, or
    makes something else than plain data.
    """
    try:
        value = yaml.load(text, PlainLoader)
    except Unbounded as error:
        raise InputError(f"{where} {error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    _check_plain(value, where)
    return value


def _check_growth(events: Iterable[yaml.Event]) -> None:
    """Raise `Unbounded` where a text, every alias standing for what it repeats, is too large, too deep or endless."""
    sizes: dict[str, int] = {}
    opened: list[_Open] = []
    total = 0
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            if ended.anchor is not None:
                sizes[ended.anchor] = total - ended.before
            continue
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.NodeEvent) and opened:
            opened[-1].add(event, line)
        if isinstance(event, yaml.AliasEvent):
            if any(one.anchor == event.anchor for one in opened):
                raise Unbounded(f"refers to itself (line {line})")
            total += sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            opened.append(_Open(event.anchor, total, is_mapping))
            total += 1
        if len(opened) > DEEPEST:
            raise Unbounded(f"is nested deeper than {DEEPEST} levels")
        if total > MOST_NODES:
            raise Unbounded(f"expands to more than {MOST_NODES:,} values")


@dataclass
class _Open:
    """A list or mapping whose end has not come: its anchor, the values before it, and its keys so far."""

    anchor: str | None
    before: int
    is_mapping: bool
    entries: int = 0
    keys: set[str] = field(default_factory=set)

    def add(self, event: yaml.NodeEvent, line: int) -> None:
        """One more entry; of a mapping each other one is a key, which may come once."""
        self.entries += 1
        if self.is_mapping and self.entries % 2 and isinstance(event, yaml.ScalarEvent):
            if event.value in self.keys:
                raise Unbounded(f"gives the key {event.value!r} twice (line {line})")
            self.keys.add(event.value)


def _check_plain(value: Any, where: object, keys: type | UnionType = str) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, keys):
                raise InputError(f"{where}: the key {key!r} is {_name(key)}, allowed: text")
            _check_plain(entry, where, str | int if key in OF_A_CLASS else keys)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(entry, where, keys)
    elif not isinstance(value, str | int | float | None):
        raise InputError(f"{where} holds {_name(value)}, allowed: numbers, texts, lists and mappings")
    elif isinstance(value, str) and not value.isprintable():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{where} holds half of a surrogate pair, which is no text") from None


def _name(value: object) -> str:
    names = {list: "a list", dict: "a mapping", str: "text", type(None): "nothing", bool: "yes or no"}
    return names.get(type(value), f"a value of type {type(value).__name__}")
