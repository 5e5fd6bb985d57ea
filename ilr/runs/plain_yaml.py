"""YAML as plain data, read as the training commands read it: numbers and texts, lists, mappings with text as keys."""

import re
from pathlib import Path
from typing import Any

import yaml

from ilr.errors import InputError
from ilr.runs.files import read_text
from ilr.runs.plain_json import DEEPEST

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # a PyYAML built without libyaml: the same, slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

LARGEST = 2**24
"""Bytes of a YAML file."""

MOST_NODES = 2**20
"""Values of a file once every alias stands for what it repeats."""


class _Loader(_SafeLoader):
    """Dates are text, and 3e-3 is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float"))]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
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
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _expanded(node, where, {}, 0)
        value = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    except InputError:
        raise
    except RecursionError:
        raise InputError(f"{where} is nested deeper than {DEEPEST} levels") from None
    except (
        Exception
    ) as error:  # a scalar under a tag that it does not fit raises whatever its constructor does
        raise InputError(f"{where} is not YAML: {error}") from None
    finally:
        loader.dispose()
    _check_plain(value, where)
    return value


def _expanded(node: yaml.Node, where: object, sizes: dict[int, int], depth: int) -> int:
    """How many values a node stands for with its aliases; 0 marks one that is being counted."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if (known := sizes.get(id(node))) is not None:
        if not known:
            raise InputError(f"{where} refers to itself (line {node.start_mark.line + 1})")
        return known
    if depth > DEEPEST:
        raise InputError(f"{where} is nested deeper than {DEEPEST} levels")
    sizes[id(node)] = 0
    entries = node.value
    if isinstance(node, yaml.MappingNode):
        _check_once(node, where)
        entries = [entry for pair in node.value for entry in pair]
    size = 1 + sum(_expanded(entry, where, sizes, depth + 1) for entry in entries)
    if size > MOST_NODES:
        raise InputError(f"{where} expands to more than {MOST_NODES:,} values")
    sizes[id(node)] = size
    return size


def _check_once(node: yaml.MappingNode, where: object) -> None:
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise InputError(
                    f"{where} gives the key {key.value!r} twice (line {key.start_mark.line + 1})"
                )
            seen.add(key.value)


def _check_plain(value: Any, where: object) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where}: the key {key!r} is {_name(key)}, allowed: text")
            _check_plain(entry, where)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(entry, where)
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
