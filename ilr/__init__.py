"""Recurrence inside a decoder language model: schedules, sharing, their cost and their evidence."""

from typing import TYPE_CHECKING

from ilr.lazy import lazy_names

if TYPE_CHECKING:
    from ilr.accounting import Cost, cost
    from ilr.cache import KVCache
    from ilr.config import DecoderConfig
    from ilr.decoder import Decoder
    from ilr.loading import load
    from ilr.plan import Plan, Segment, Visit, make_plan
    from ilr.sharing import Sharing

__version__ = "0.1.0"
__all__ = [
    "Cost",
    "Decoder",
    "DecoderConfig",
    "KVCache",
    "Plan",
    "Segment",
    "Sharing",
    "Visit",
    "cost",
    "load",
    "make_plan",
]

__getattr__ = lazy_names(
    "ilr",
    {
        "Cost": "accounting",
        "cost": "accounting",
        "KVCache": "cache",
        "DecoderConfig": "config",
        "Decoder": "decoder",
        "load": "loading",
        "Plan": "plan",
        "Segment": "plan",
        "Sharing": "sharing",
        "Visit": "plan",
        "make_plan": "plan",
    },
)


def __dir__() -> list[str]:
    return __all__
