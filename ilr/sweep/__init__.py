"""`ilr sweep`: one file describes many runs, one command carries them out, again and again until all are done.

No torch in this process. Reading order: `settings` (options laid over each other), `generators` and `file` (what
a user wrote), `arms` (which configurations that is), `text` (trained on what), `runs` (a directory and a command each),
`state` (how far they are), `child` and `execute` (one run in its own process), `engines`, `display`, `conduct`,
then what is told: `detectable`, `speed` and `dry_run` before, `learning_rates` and `report` after.
"""
