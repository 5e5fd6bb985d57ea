"""The largest numbers that are worked with, and how a value outside its bounds is said; no torch.

Every count that a user can give is compared with a bound before anything is made of it, so that a slip of
the hand costs a line and not the machine's memory.
"""

from reprlib import Repr

from ilr.errors import InputError

MOST_VISITS = 2**16
"""Visits of a plan, which are listed one by one: far above any depth that was ever trained."""

MOST_LAYERS = 2**16
"""Layers that a schedule may name."""

LARGEST_SIZE = 2**31 - 1
"""Features, tokens of context, token ids: what fits a 32-bit index. Such a model can be planned, not held."""

MOST_STEPS = 2**53
"""Steps, tokens and other counts of a run: whole numbers that floating point holds exactly."""

LARGEST_FLOAT32 = 3.4028234663852886e38
"""What a weight can be: larger numbers are infinite where the model computes with them."""

LARGEST_SEED = 2**32 - 1
"""What every generator of random numbers in use accepts."""

LONGEST_SHOWN = 600
"""Characters of a wrong value that stand in a message."""

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict, _SHORT.maxset = 3, 32, 32, 32, 32
_SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 200, 200, 200


def check_count(name: str, value: object, most: int = LARGEST_SIZE, least: int = 1) -> None:
    """Raise `InputError` where ``value`` is no whole number from ``least`` to ``most``."""
    if not is_integer(value) or value < least:  # type: ignore[operator]  # an integer here
        raise InputError(f"{name} must be a whole number of at least {least}, got {shown(value)}")
    if value > most:  # type: ignore[operator]
        raise InputError(f"{name} must be at most {most:,}, got {shown(value)}")


def check_seed(name: str, value: object) -> None:
    """Raise `InputError` where ``value`` is no whole number that all generators accept as seed."""
    if not is_integer(value) or not 0 <= value <= LARGEST_SEED:  # type: ignore[operator]
        raise InputError(f"{name} must be a whole number from 0 to {LARGEST_SEED:,}, got {shown(value)}")


def check_positive(name: str, value: object) -> None:
    """Raise `InputError` where ``value`` is no number above 0 that a float32 holds."""
    if not _is_number(value) or not value > 0:  # type: ignore[operator]
        raise InputError(f"{name} must be above 0, got {shown(value)}")
    if value > LARGEST_FLOAT32:  # type: ignore[operator]
        raise InputError(f"{name} must be finite, at most {LARGEST_FLOAT32:.3g}, got {shown(value)}")


def check_share(name: str, value: object, *, below: bool = False) -> None:
    """Raise `InputError` where ``value`` is no number from 0 to 1, or, ``below``, from 0 to below 1."""
    if _is_number(value) and 0 <= value <= 1 and not (below and value == 1):  # type: ignore[operator]
        return
    allowed = "at least 0 and below 1" if below else "between 0 and 1"
    raise InputError(f"{name} must be {allowed}, got {shown(value)}")


def check_at_least_zero(name: str, value: object) -> None:
    """Raise `InputError` where ``value`` is no finite number from 0."""
    if not _is_number(value) or not 0 <= value <= LARGEST_FLOAT32:  # type: ignore[operator]
        raise InputError(f"{name} must be at least 0 and finite, got {shown(value)}")


def is_integer(value: object) -> bool:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A wrong value as a message shows it: its repr, cut where that is long or deep."""
    try:
        text = _SHORT.repr(value)
    except (ValueError, RecursionError):  # digits beyond what Python writes
        return f"{'a number' if isinstance(value, int) else 'a value'} too large to be shown"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
