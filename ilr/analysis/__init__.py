"""What each visit does to the residual stream, and what other schedules would do with the same weights.

Reading order: `batches` (a stated number of scored tokens), `trace` (the states of one batch), then one
file per view of it: `movement`, `geometry`, `lens`, `attention`, `jacobian`; `measure` (all of them,
streaming), `record` (the result as plain data). Schedules at test time: `prefixes` (many plans in one
pass), `schedules` (their scores), `choice` (sensitivity, the best within a budget). Then `figures`,
`schedule_figures`, `output`, `callback` (during training) and `command` (`ilr analyse`).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilr.analysis.callback import VisitReport
    from ilr.analysis.measure import Extent, analyse
    from ilr.analysis.record import Analysis
    from ilr.analysis.schedules import evaluate_schedules

__all__ = ["Analysis", "Extent", "VisitReport", "analyse", "evaluate_schedules"]

_HOMES = {
    "Analysis": "record",
    "Extent": "measure",
    "VisitReport": "callback",
    "analyse": "measure",
    "evaluate_schedules": "schedules",
}


def __getattr__(name: str) -> object:
    # Loaded on first use (PEP 562): the command's help needs no torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'ilr.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ilr.analysis.{_HOMES[name]}"), name)
