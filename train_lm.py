"""Train and evaluate: `python train_lm.py fit|validate|test` is `ilr fit|validate|test`."""

import sys

from ilr.startup import uncollected

try:
    with uncollected():
        from ilr.commands.train import main
except KeyboardInterrupt:  # torch takes seconds to load
    print("interrupted before anything was begun", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
