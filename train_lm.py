"""Train and evaluate: `python train_lm.py fit|validate|test` is `ilr fit|validate|test`."""

import sys

from ilr.startup import uncollected

with uncollected():
    from ilr.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
