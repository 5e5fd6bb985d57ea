"""Training: the LightningModule, its optimiser, the sums of a step, and what watches over them.

Reading order: `accumulation` (sums over micro-batches and logged intervals), `scaling` (gradients that float16 keeps
scaled up), `optimiser` (parameter groups, learning rate, clipping), `bounds` and `trainer_checks` (what is refused by
name), `module` (the LightningModule), `step_callback` (callbacks on optimiser steps), `health` (what a run shows
while it goes), `settled` (values configured, held against those trained with), `options` (those of the commands).
"""
