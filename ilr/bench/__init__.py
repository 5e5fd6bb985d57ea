"""Speed and memory of training under a schedule on this machine.

`variant` (what is measured), `precision` (as torch has it), `step` (one bare training step), `products` (the
machine's peak, and the products of a step alone), `clock` and `memory` (what a process used), `worker` (a
process per variant), `sampling` (one step at a time in rotating order, and what the samples say), `run` (all of
these on a list of variants), `report` (the result as data and as a table).
"""
