"""Recurrence inside a decoder language model: schedules, sharing, their cost and their evidence."""

from typing import TYPE_CHECKING

from ilr.lazy import lazy_names

if TYPE_CHECKING:
    from ilr.model.cache import KVCache
    from ilr.model.config import DecoderConfig
    from ilr.model.cost import Cost, cost
    from ilr.model.decoder import Decoder
    from ilr.model.plan import Plan, Segment, Visit, make_plan
    from ilr.model.sharing import Sharing
    from ilr.runs.loading import load

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
        "Cost": "model.cost",
        "cost": "model.cost",
        "KVCache": "model.cache",
        "DecoderConfig": "model.config",
        "Decoder": "model.decoder",
        "load": "runs.loading",
        "Plan": "model.plan",
        "Segment": "model.plan",
        "Sharing": "model.sharing",
        "Visit": "model.plan",
        "make_plan": "model.plan",
    },
)


def __dir__() -> list[str]:
    return __all__
