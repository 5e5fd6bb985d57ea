"""What all tests share: one thread, and a small text."""

import os
from pathlib import Path

import pytest

# Before torch is imported, and for the processes that tests start: tensors in tests are tiny, so one
# thread is faster than two, above all on a machine with other work.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of sixty lines."""
    from data_cases import LINES

    path = tmp_path / "squares.txt"
    path.write_text("".join(LINES))
    return path
