"""Stand-alone evaluation of a checkpoint (`ilr evaluate`): other windows, documents alone, finer tables.

Reading order: `windows` (which token is predicted from which), `sequences` (batches of a stream, or of
documents alone), `measure` (the sums of one pass), `breakdown` (by position and by frequency), `record`
(the result as data and as text), `subject` (weights, schedule, precision, text), `evaluate` (all of these
together), then `figures` and `output`.
"""
