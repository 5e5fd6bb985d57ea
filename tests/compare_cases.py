"""Run directories as a comparison finds them, made without training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

BYTES_PER_TOKEN = 4


def operands(label: str) -> list[list[int]]:
    """What a schedule in short form visits, without sharing."""
    times = [int(part) for part in label.split("+")[0].split("-")]
    return [[layer, layer] for layer, repeats in enumerate(times) for _ in range(repeats)]


def summary_of(
    schedule: str, seed: tuple[int, int], loss: float, tokens: int = 1_000_000, **changes: Any
) -> dict[str, Any]:
    depth = len(operands(schedule))
    flops_per_token = 6 * (100_000 + 260_000 * depth)
    return {
        "status": "finished",
        "label": schedule,
        "schedule": schedule.split("+")[0].replace("-", ","),
        "operands": operands(schedule),
        "depth": depth,
        "sharing": "none",
        "positions": "rope",
        "injection": None,
        "seeds": {"init": seed[0], "data": seed[1], "global": seed[0]},
        "steps": 100,
        "tokens": tokens,
        "training_flops": tokens * flops_per_token,
        "parameters": 1_180_800,
        "flops_per_token": flops_per_token,
        "learning_rate": 0.003,
        "held_equal": "tokens",
        "val_loss": loss,
        "test_loss": loss,
        "tokens_per_second": 20_000 / depth,
        "precision": "32-true",
        "corpus_hash": "corpus",
        "split_hashes": {"train": "t", "validation": "v", "test": "e"},
        "tokenizer_hash": "bpe-4096",
        "an_extra_key": "is nothing to worry about",
    } | changes


def write_run(
    directory: Path,
    schedule: str = "1-1-1-1",
    seed: tuple[int, int] = (1, 1),
    nll: Sequence[float] = (3.0, 4.0),
    points: int = 5,
    documents: Sequence[int] | None = None,
    **changes: Any,
) -> Path:
    """A finished run whose document d has `documents[d]` tokens (1000) of mean NLL `nll[d]`."""
    directory.mkdir(parents=True)
    count = np.full(len(nll), 1000) if documents is None else np.asarray(documents)
    total = np.asarray(nll, dtype=float) * count
    table = pd.DataFrame({"document": np.arange(len(nll)), "tokens": count, "nll": total})
    table["bytes"] = count * BYTES_PER_TOKEN
    both = [table.assign(split=split) for split in ("validation", "test")]
    pd.concat(both).to_parquet(directory / "documents.parquet", index=False)
    summary = summary_of(schedule, seed, total.sum() / count.sum(), **changes)
    (directory / "config.yaml").write_text("{}")
    (directory / "history.jsonl").write_text(history(summary, points))
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def history(summary: dict[str, Any], points: int) -> str:
    """Training points, and validations whose loss falls exponentially to the final one."""
    lines = []
    for i in range(1, points + 1):
        share = i / points
        spent = {"step": i, "tokens": int(summary["tokens"] * share)}
        spent["training_flops"] = spent["tokens"] * summary["flops_per_token"]
        loss = (summary["val_loss"] or np.nan) + 4 * (np.exp(-6 * share) - np.exp(-6))
        lines.append(spent | {"train/loss": loss})
        bits = loss / np.log(2) / BYTES_PER_TOKEN
        lines.append(spent | {"val/loss": loss, "val/perplexity": np.exp(loss), "val/bits_per_byte": bits})
    return "".join(json.dumps(line) + "\n" for line in lines)
