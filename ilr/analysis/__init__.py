"""What each visit does to the residual stream, and what other schedules would do with the same weights.

Reading order: `batches` (a stated number of scored tokens), `trace` (the states of one batch), then one
file per view of it: `movement`, `geometry`, `lens`, `attention`, `jacobian`; `measure` (all of them,
streaming), `record` (the result as plain data). Schedules at test time: `prefixes` (many plans in one
pass), `schedules` (their scores), `choice` (sensitivity, the best within a budget). Then
`requirement` (matplotlib, or how to get it), `figures`,
`schedule_figures`, `tables`, `output`, `callback` (during training).
"""

from typing import TYPE_CHECKING

from ilr.lazy import lazy_names

if TYPE_CHECKING:
    from ilr.analysis.callback import VisitReport
    from ilr.analysis.measure import Extent, analyse
    from ilr.analysis.record import Analysis
    from ilr.analysis.schedules import evaluate_schedules

__all__ = ["Analysis", "Extent", "VisitReport", "analyse", "evaluate_schedules"]

__getattr__ = lazy_names(
    "ilr.analysis",
    {
        "Analysis": "record",
        "Extent": "measure",
        "VisitReport": "callback",
        "analyse": "measure",
        "evaluate_schedules": "schedules",
    },
)
