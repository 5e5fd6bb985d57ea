"""Text to batches: corpora, documents, tokenizer, prepared token files, the data module."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ilr.data.blocks import NO_BLOCK as NO_BLOCK
    from ilr.data.module import TextData as TextData
    from ilr.data.tokens import DocumentTable as DocumentTable
    from ilr.data.tokens import Manifest as Manifest

_HOMES = {
    "TextData": "ilr.data.module",
    "NO_BLOCK": "ilr.data.blocks",
    "DocumentTable": "ilr.data.tokens",
    "Manifest": "ilr.data.tokens",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562): torch and lightning take seconds."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
