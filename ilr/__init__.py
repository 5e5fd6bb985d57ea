"""Recurrence inside a decoder language model: schedules, sharing, their cost and their evidence.

Names are loaded on first use (PEP 562), so that importing the package and the torch-free parts stays fast.
"""

import importlib
from typing import TYPE_CHECKING

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

_HOMES = {
    "Cost": "ilr.accounting",
    "cost": "ilr.accounting",
    "KVCache": "ilr.cache",
    "DecoderConfig": "ilr.config",
    "Decoder": "ilr.decoder",
    "load": "ilr.loading",
    "Plan": "ilr.plan",
    "Segment": "ilr.plan",
    "Sharing": "ilr.sharing",
    "Visit": "ilr.plan",
    "make_plan": "ilr.plan",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ilr' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
