"""What is measured: a decoder under a plan, in one precision, compiled and recomputed in one way. No torch."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ilr.bounds import check_count
from ilr.errors import InputError
from ilr.model.config import Compile, DecoderConfig, Recompute
from ilr.model.memory import Use, training_use
from ilr.model.plan import Plan

Precision = Literal["32-true", "bf16-mixed"]

_SHORT = {"32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class Variant:
    """One row of the table: ``batch_size`` blocks of the config's context in a training step."""

    config: DecoderConfig
    plan: Plan
    precision: Precision = "32-true"
    compile: Compile = "none"
    recompute: Recompute = "none"
    batch_size: int = 8

    def __post_init__(self) -> None:
        check_choice("--precision", self.precision, get_args(Precision))
        check_choice("--compile", self.compile, get_args(Compile))
        check_choice("--recompute", self.recompute, get_args(Recompute))
        check_count("--batch_size", self.batch_size)

    @property
    def use(self) -> Use:
        """What a step of it needs."""
        return training_use(
            self.batch_size, self.config.context, self.precision, self.recompute, self.compile
        )

    @property
    def label(self) -> str:
        """The plan's label, with what of the config decides the function."""
        return self.plan.label + self.config.label

    @property
    def tokens(self) -> int:
        """Targets of one step."""
        return self.batch_size * self.config.context


def read_precision(value: Any) -> Any:
    """The long name of a precision as options and configurations give it: ``32``, ``bf16``, or long already."""
    return _SHORT.get(str(value), value)


def check_choice(option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `InputError` for a value that is none of those allowed."""
    if value not in allowed:
        raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")
