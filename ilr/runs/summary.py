"""summary.json and documents.parquet: what a finished run leaves for comparisons."""

import math
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import lightning as L
import pyarrow as pa
import pyarrow.parquet as pq

from ilr.data import TextData
from ilr.files import plain_json
from ilr.model.cost import cost
from ilr.model.metrics import Scores
from ilr.runs.checkpoints import Record
from ilr.runs.directory import RunDirectory, atomic_write, read_history
from ilr.runs.identity import arm_hash, by_recipe, identity
from ilr.runs.options import flat
from ilr.runs.provenance import command_line, git_state, machine, versions
from ilr.training.module import SPLITS, LanguageModel


def run_label(module: LanguageModel) -> str:
    """The run's name: schedule, sharing, and what differs from the default."""
    return module.plan.label + module.config.label


def describe(module: LanguageModel, seed: int) -> dict[str, Any]:
    """What the run is, from (config, plan): the same keys and types for every run."""
    spent = cost(module.config, module.plan)
    return {
        "label": run_label(module),
        "schedule": module.plan.schedule,
        "operands": [list(operands) for operands in module.plan.operands],
        "depth": module.plan.depth,
        "sharing": module.plan.sharing.name,
        "positions": module.config.positions,
        "injection": module.config.injection,
        "seeds": {
            "global": seed,
            "init": module.init_seed,
            "data": module.data.seed,
            "dropout": module.dropout_seed,
        },
        "parameters": spent.parameters,
        "parameters_non_embedding": spent.parameters_non_embedding,
        "flops_per_token": spent.flops_per_token,
        "learning_rate": module.learning_rate,
    }


def hyperparameters(module: LanguageModel, seed: int) -> dict[str, str | int | float]:
    """The row of TensorBoard's hyper-parameter table: few, short, and the same keys in every run."""
    return {
        "learning_rate": module.learning_rate,
        "positions": module.config.positions,
        "schedule": module.plan.label.split("+")[0],
        "seed": seed,
        "sharing": module.plan.sharing.name,
    }


def summarise(
    directory: RunDirectory,
    trainer: L.Trainer,
    module: LanguageModel,
    status: str,
    seed: int,
    settings: dict[str, Any],
    held_equal: str,
    tests: dict[str, Scores],
) -> dict[str, Any]:
    """The summary as plain data. ``tests``: test scores of the "last" and the "best" weights."""
    data: TextData = module.data
    record = Record.read(directory)
    history = read_history(directory.history)
    tokens_per_step = tokens_of_a_step(trainer, data)
    steps = trainer.global_step
    flops = cost(module.config, module.plan).flops_per_token
    validations = {point["step"]: point for point in history if "val/loss" in point}
    best = validations.get(record.best.step) if record.best is not None else None
    return {
        "status": status,
        **describe(module, seed),
        "steps": steps,
        "tokens": steps * tokens_per_step,
        "tokens_per_step": tokens_per_step,
        "epochs": steps * tokens_per_step / data.tokens_per_epoch,
        "unique_train_tokens": data.manifest.splits["train"].tokens,
        "training_flops": steps * tokens_per_step * flops,
        "held_equal": held_equal,
        **_last_figures(validations),
        "best_val_loss": best and best["val/loss"],
        "best_val_perplexity": best and best["val/perplexity"],
        "best_val_bits_per_byte": best and best["val/bits_per_byte"],
        "best_step": record.best.step if record.best is not None else None,
        **_test_figures(data, tests),
        "scored_tokens": module.scores["val"].scored_tokens if "val" in module.scores else None,
        "share_of_split": {split: data.share_of(split) for split in SPLITS.values()},
        "train_loss": _last(history, "train/loss"),
        "train_val_gap": _gap(_last(history, "val/loss"), _last(history, "train/loss")),
        "tokens_per_second": _mean_speed(history),
        "context": module.config.context,
        "precision": str(trainer.precision),
        **machine(trainer.strategy.root_device),
        "world_size": trainer.world_size,
        "checkpoints": {
            "last": str(directory.checkpoints / record.last[-1].file) if record.last else None,
            "best": str(directory.checkpoints / record.best.file) if record.best else None,
        },
        "command": command_line(),
        **_identity(data, settings, trainer.world_size),
        "corpus_hash": data.manifest.corpus_hash,
        "split_hashes": {split: info.hash for split, info in data.manifest.splits.items()},
        "duplicates": {split: asdict(found) for split, found in data.manifest.duplicates.items()},
        "dropped_duplicates": data.manifest.dropped_duplicates,
        "tokenizer_hash": data.manifest.tokenizer_hash,
        "vocab_size": module.config.vocab_size,
        **git_state(),
        "versions": versions(),
    }


def _identity(data: TextData, settings: dict[str, Any], processes: int) -> dict[str, Any]:
    """What makes two runs one arm: the effective configuration without seeds, paths and names, and its digest."""
    options, manifest = flat(settings), data.manifest
    given = manifest.tokenizer_hash if options["data.tokenizer"] is not None else None
    same = identity(options, by_recipe(options, manifest.corpus_hash, given), processes)
    hashes = {split: info.hash for split, info in manifest.splits.items()}
    return {"identity": same, "config_hash": arm_hash(same, hashes, manifest.tokenizer_hash)}


def tokens_of_a_step(trainer: L.Trainer, data: TextData) -> int:
    """Targets of one optimiser step, over all micro-batches and processes."""
    return data.batch_size * data.context * trainer.accumulate_grad_batches * trainer.world_size


def write_summary(directory: RunDirectory, summary: dict[str, Any]) -> None:
    """Put summary.json in place, whole."""
    with atomic_write(directory.summary_path) as file:
        file.write(plain_json.dumps(summary, indent=1))


def write_documents(directory: RunDirectory, data: TextData, scores: dict[str, Scores]) -> None:
    """Put documents.parquet in place: split, document, tokens scored, bytes, NLL in nats."""
    parts = []
    for stage, found in scores.items():
        split = SPLITS[stage]
        count = len(found.nll)
        parts.append(
            pa.table(
                {
                    "split": pa.array([split] * count),
                    "document": pa.array(range(count), pa.int64()),
                    "tokens": pa.array(found.tokens, pa.int64()),
                    "bytes": pa.array(data.documents(split).bytes, pa.int64()),
                    "nll": pa.array(found.nll, pa.float64()),
                }
            )
        )
    if not parts:
        return
    with atomic_write(directory.documents, "wb") as file:
        pq.write_table(pa.concat_tables(parts), file)


def gzip_bits_per_byte(texts: Iterable[str]) -> float:
    """Bits per byte that gzip -9 needs for these texts one after another: a yardstick for perplexity."""
    compressor = zlib.compressobj(9, wbits=31)
    read = written = 0
    for text in texts:
        raw = text.encode()
        read += len(raw)
        written += len(compressor.compress(raw))
    return 8 * (written + len(compressor.flush())) / max(read, 1)


def _last_figures(validations: dict[int, dict[str, Any]]) -> dict[str, Any]:
    last = validations[max(validations)] if validations else {}
    names = ("loss", "perplexity", "bits_per_byte", "perplexity_sequence_mean")
    return {f"val_{name}": last.get(f"val/{name}") for name in names}


def _test_figures(data: TextData, tests: dict[str, Scores]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for which, prefix in (("last", "test_"), ("best", "best_test_")):
        scores = tests.get(which)
        found = {} if scores is None else scores.figures(data.bytes_scored("test"))
        for name in ("loss", "perplexity", "bits_per_byte"):
            figures[f"{prefix}{name}"] = found.get(name)
    return figures


def _last(history: list[dict[str, Any]], tag: str) -> float | None:
    values = [point[tag] for point in history if tag in point]
    return values[-1] if values else None


def _gap(val_loss: float | None, train_loss: float | None) -> float | None:
    """By how many nats per token validation lies above training at the end."""
    return None if val_loss is None or train_loss is None else val_loss - train_loss


def _mean_speed(history: list[dict[str, Any]]) -> float | None:
    """Tokens per second over the run: total tokens over total time, so the harmonic mean of the points."""
    speeds = [p["train/tokens_per_second"] for p in history if p.get("train/tokens_per_second", 0) > 0]
    return len(speeds) / sum(1 / s for s in speeds) if speeds and all(map(math.isfinite, speeds)) else None
