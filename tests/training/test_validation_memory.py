"""Validation needs no more memory for many batches than for few (field case M6)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ilr.data import TextData

SIZES = {"vocab_size": 2000, "context": 32, "batch_size": 8}
SCRIPT = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
import lightning as L
from ilr.data import TextData
from ilr.training.module import LanguageModel

sizes = json.loads(sys.argv[3])
data = TextData("pydoc", cache_dir=sys.argv[1], max_eval_tokens=int(sys.argv[2]), **sizes)
model = LanguageModel([2, 1], context=32, width=16, num_layers=2, num_heads=2)
trainer = L.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
trainer.validate(model, datamodule=data, verbose=False)
print(sum(len(loader) for loader in data.val_dataloader()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_ten_times_the_batches_take_the_same_memory(tmp_path: Path) -> None:
    """A batch's logits are 2 MB in float32: kept, they would add over 100 MB."""

    def measure(tokens: int) -> tuple[int, int]:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(tokens), json.dumps(SIZES)]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-2:]
        return int(words[0]), int(words[1])

    TextData("pydoc", cache_dir=str(tmp_path), **SIZES).setup()  # preparing takes memory of its own
    few_batches, few = measure(2000)
    many_batches, many = measure(10**9)
    assert many_batches >= 6 * few_batches
    assert many <= 1.05 * few
