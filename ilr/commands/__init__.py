"""What parses a command line and prints: one file per command, and nothing decided here that others need.

Reading order: `parser` (errors in one message), `train` (`fit`, `validate`, `test`: LightningCLI and the run
directory around it), `plan`, `anchors`, `evaluate`, `analyse`, `generate`, `bench`, `sweep`, `compare`, `board`.
"""
