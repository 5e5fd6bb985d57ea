"""Finished runs side by side: one table, its uncertainty, its plots.

Reads `summary.json`, `history.jsonl` and `documents.parquet` of run directories, never an event file
and never a checkpoint, and loads no torch. Reading order: `runs` (what a run left behind), `labels` and
`arms` (runs of one configuration), `evaluation` (one array of likelihoods), `statistics` and
`resampling` (what the differences are worth), `reach` and `table`, `analysis` (all of these in one
function), then the forms: `notes`, `report`, `styles`, `plots`, `tensorboard`, `output`.
"""

SMALLEST_EFFECT = 0.005
"""Difference in nats per token below which two arms count as alike, unless another is asked for."""
