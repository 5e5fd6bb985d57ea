"""Finished runs side by side: one table, its uncertainty, its plots.

Reads `summary.json`, `history.jsonl` and `documents.parquet` of run directories, never an event file
and never a checkpoint, and loads no torch. Reading order: `runs` (what a run left behind), `arms`
(runs of one configuration), `evaluation` (one array of likelihoods), `statistics` and `resampling`
(what the differences are worth), `table`, `report`, `plots`, `tensorboard`, `board`, `command`.
"""
