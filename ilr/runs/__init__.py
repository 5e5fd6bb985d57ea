"""What a run leaves, read back as typed data, and what makes two runs the same.

Reading order. Without torch: `schema` and `option_schema` (what our files and options hold), `directory` (what lies
where), `tables` (documents.parquet), `options` (of `ilr fit`, as flat names), `normal_form` and `identity` (when two
runs are the same), `provenance` (where a number comes from), `trust` (what a run directory may bring along). With
torch, what a training run writes: `logger` (history and TensorBoard), `checkpoints`, `interruption` (save, then
leave), `summary`, `record` (the callback that leaves it). And how it comes back: `text` (which one it was trained
on), `resume` (what a training takes over), `adoption` (what an evaluation takes over), `loading` (the decoder of a
checkpoint), `trained_run` (with tokenizer and text).
"""
