"""Tensors in tests are tiny: one thread is faster than two, above all on a machine with other work."""

import os

# Before torch is imported, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
