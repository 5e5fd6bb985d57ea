"""What a run directory may bring along: plain values. Code comes only from what the user names. No torch."""

import re
from collections.abc import Iterator
from typing import Any

from ilr.errors import InputError

KNOWN = {
    *(f"lightning.pytorch.callbacks.{name}" for name in ("EarlyStopping", "LearningRateMonitor", "Timer")),
    "lightning.pytorch.callbacks.GradientAccumulationScheduler",
    "lightning.pytorch.plugins.MixedPrecision",
    "lightning.pytorch.plugins.precision.MixedPrecision",
    *(f"lightning.pytorch.strategies.{name}" for name in ("DDPStrategy", "ModelParallelStrategy")),
    "lightning.pytorch.strategies.SingleDeviceStrategy",
}
"""Classes that a run directory may name all the same: with plain arguments they train or stop, and do no more."""

_SHORT = {name.rpartition(".")[2] for name in KNOWN}
_DOTTED = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]")
"""Somewhere in a text, what may be the name of code."""


def check_plain(section: str, values: dict[str, Any], source: str) -> None:
    """Refuse values of a run directory that would have code imported.

    Raises `InputError`, which names the class, the option, ``source`` and ``--trust``.
    """
    for option, value in values.items():
        if option == "default_root_dir":  # a path, which this project's runs do not use
            continue
        for name in _imports(value, classes=section == "trainer"):
            raise InputError(
                f"{source} names {name} for --{section}.{option}: code from a run directory is imported only where "
                f"you name it yourself (--{section}.{option}), or with --trust for a directory that you trust"
            )


def _imports(value: Any, classes: bool) -> Iterator[str]:
    """What a value would have imported: classes, and under the trainer also whatever reads like a name of code."""
    if isinstance(value, dict):
        if "class_path" in value and not _is_known(value["class_path"]):
            yield str(value["class_path"])
        for key, entry in value.items():
            if key != "class_path":
                yield from _imports(entry, classes)
    elif isinstance(value, list | tuple | set):
        for entry in value:
            yield from _imports(entry, classes)
    elif isinstance(value, str) and not _is_known(value) and _reads_as_code(value, classes):
        yield value


def _reads_as_code(text: str, classes: bool) -> bool:
    """Whether the parser may find a class in a text: it reads JSON within texts, too."""
    return "class_path" in text or (classes and _DOTTED.search(text) is not None)


def _is_known(name: Any) -> bool:
    return isinstance(name, str) and (name in KNOWN or name in _SHORT)
