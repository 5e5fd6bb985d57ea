"""What figures need beyond the package's own requirements."""

from importlib.util import find_spec

from ilr.errors import InputError


def require_matplotlib() -> None:
    """Raise `InputError`, saying what to install, where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib, which is not installed: pip install 'ilr[demo]'")
