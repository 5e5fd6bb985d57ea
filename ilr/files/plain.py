"""Configuration values as plain data. No torch."""

from typing import Any


def plain(value: Any) -> Any:
    """Configuration values as plain lists and dictionaries."""
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
