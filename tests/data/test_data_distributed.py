"""Two real processes: one preparation, shared batches, every evaluation block once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from data_cases import squares

from ilr.data import NO_BLOCK, TextData

SCRIPT = """
import json, os, sys
import torch
from lightning.pytorch import LightningModule, Trainer
from ilr.data import TextData

class Recorder(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.train_blocks, self.val_blocks = [], []
    def training_step(self, batch, batch_idx):
        self.train_blocks.append(batch["blocks"].tolist())
        return self.weight * batch["inputs"].float().mean()
    def validation_step(self, batch, batch_idx):
        self.val_blocks.append(batch["blocks"].tolist())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)

if __name__ == "__main__":
    corpus, cache, out = sys.argv[1:]
    data = TextData(corpus, document="line", vocab_size=300, context=8, batch_size=3, seed=1, cache_dir=cache)
    model = Recorder()
    trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                      num_sanity_val_steps=0, accumulate_grad_batches=2)
    trainer.fit(model, data)
    record = {"train": model.train_blocks, "val": model.val_blocks, "key": data.manifest.key}
    with open(f"{out}/{trainer.global_rank}.json", "w") as file:
        json.dump(record, file)
"""


@pytest.mark.slow
def test_two_processes_share_the_epoch_of_one(tmp_path: Path) -> None:
    corpus = tmp_path / "squares.txt"
    corpus.write_text("".join(squares(61)))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(corpus), str(tmp_path / "cache"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training a tokenizer") == 1
    assert done.stderr.count("data: train:") == 2, "the split once, the epoch once"
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert ranks[0]["key"] == ranks[1]["key"]

    alone = TextData(
        str(corpus),
        document="line",
        vocab_size=300,
        context=8,
        batch_size=6,
        seed=1,
        cache_dir=str(tmp_path / "cache"),
    )
    alone.setup()
    loader = alone.train_dataloader()
    per_epoch = len(loader) // 2 * 2
    expected = [batch["blocks"].tolist() for _ in range(2) for batch in list(loader)[:per_epoch]]
    together = [first + second for first, second in zip(ranks[0]["train"], ranks[1]["train"], strict=True)]
    assert together == expected
    assert together[:per_epoch] != together[per_epoch:]

    blocks = len(alone.val_dataloader()[0].blocks)
    batches = len(ranks[0]["val"]) // 2
    assert len(ranks[1]["val"]) == len(ranks[0]["val"])
    first_epoch = [block for rank in ranks for batch in rank["val"][:batches] for block in batch]
    assert sorted(block for block in first_epoch if block != NO_BLOCK) == list(range(blocks))
