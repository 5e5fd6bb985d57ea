"""A result as plain data, and as a table in the terminal."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ilr.bench.memory import MemoryKind
from ilr.bench.run import Result, Row, describe
from ilr.bench.sampling import TOLERATED, Spread
from ilr.bench.worker import Machine

_MEMORY: dict[MemoryKind, str] = {
    "resident growth": "peak resident memory over what the process held before the model was built",
    "allocated": "largest sum of tensors on the device",
}


def as_data(result: Result) -> dict[str, Any]:
    """Everything by name; times in seconds, memory in bytes."""
    return {
        "machine": vars(result.machine),
        "peak_shape": result.peak_shape,
        "peaks_flops_per_second": {name: vars(peak) for name, peak in result.peaks.items()},
        "rows": [_row_as_data(row) for row in result.rows],
        "failures": [{"variant": describe(variant), "reason": reason} for variant, reason in result.failures],
    }


def _row_as_data(row: Row) -> dict[str, Any]:
    variant = row.variant
    return {
        "label": variant.label,
        "schedule": variant.plan.schedule,
        "sharing": {"attention": list(variant.plan.sharing.attention), "ffn": list(variant.plan.sharing.ffn)},
        "positions": variant.config.positions,
        "precision": variant.precision,
        "compile": variant.compile,
        "recompute": variant.recompute,
        "batch_size": variant.batch_size,
        "context": variant.config.context,
        "tokens_per_step": variant.tokens,
        "seconds_per_step": vars(row.step),
        "tokens_per_second": row.tokens_per_second,
        "flops_per_token": row.cost.flops_per_token,
        "causal_flops_per_token": row.cost.causal_flops_per_token,
        "flops_per_second": row.flops_per_second,
        "peak_share": row.peak_share,
        "causal_peak_share": row.causal_peak_share,
        "time_ratio_to_first": vars(row.time_ratio),
        "flops_ratio_to_first": row.flops_ratio,
        "first_loss": row.first_loss,
        "peak_memory_bytes": row.peak_memory.bytes,
        "peak_memory_kind": row.peak_memory.kind,
        "compile_seconds": row.compile_seconds,
    }


Column = tuple[str, Callable[[Row], str]]

_CHOICES: tuple[Column, ...] = (
    ("precision", lambda row: row.variant.precision),
    ("compile", lambda row: row.variant.compile),
    ("recompute", lambda row: row.variant.recompute),
    ("batch_size", lambda row: str(row.variant.batch_size)),
)
_FIGURES: tuple[Column, ...] = (
    ("ms/step", lambda row: milliseconds(row.step)[0]),
    ("[q1, q3]", lambda row: milliseconds(row.step)[1]),
    ("clean", lambda row: f"{row.step.clean}/{row.step.taken}"),
    ("tokens/s", lambda row: f"{row.tokens_per_second:,.0f}"),
    ("GFLOP/s", lambda row: f"{row.flops_per_second / 1e9:,.0f}"),
    ("of peak", lambda row: f"{row.peak_share:.1%}"),
    ("causal", lambda row: f"{row.causal_peak_share:.1%}"),
    ("MiB", lambda row: f"{row.peak_memory.bytes / 2**20:,.0f}"),
)
_COMPARED: tuple[Column, ...] = (
    ("time ×", lambda row: f"{row.time_ratio.median:.3f}"),
    ("FLOPs ×", lambda row: f"{row.flops_ratio:.3f}"),
)
_COMPILED: Column = ("compile s", lambda row: f"{row.compile_seconds:.1f}")


def print_table(result: Result, console: Console) -> None:
    """The machine, a row per variant, and what the columns mean; choices that all rows share stand above."""
    rows = result.rows
    chosen = [column for column in _CHOICES if len({column[1](row) for row in rows}) > 1]
    figures = [*_FIGURES, *(_COMPARED if len(rows) > 1 else ())]
    figures += [_COMPILED] if any(row.variant.compile != "none" for row in rows) else []
    for line in _heading(result, [column for column in _CHOICES if column not in chosen]):
        console.print(Text(line))
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("schedule", *(title for title, _ in chosen)):
        table.add_column(Text(title), no_wrap=True)
    for title, _ in figures:
        table.add_column(Text(title), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(row.variant.label), *(Text(show(row)) for _, show in (*chosen, *figures)))
    console.print(table)
    for variant, reason in result.failures:
        console.print(Text(f"failed: {describe(variant)}: {reason}"), style="bold red")
    for line in _reading(result):
        console.print(Text(line), style="dim")


def milliseconds(step: Spread) -> tuple[str, str]:
    """Median, and quartiles in brackets; ``step`` in seconds."""
    places = 0 if step.median >= 0.1 else 1 if step.median >= 0.01 else 2
    median, q1, q3 = (f"{value * 1000:,.{places}f}" for value in (step.median, step.q1, step.q3))
    return median, f"[{q1}, {q3}]"


def machine_line(machine: Machine) -> str:
    """What the steps ran on."""
    return (
        f"{machine.device}, {machine.threads} threads on {machine.processors} processors, "
        f"torch {machine.torch}, allocator {machine.allocator}"
    )


def _heading(result: Result, common: Sequence[Column]) -> list[str]:
    first = result.rows[0]
    config = first.variant.config
    peaks = ", ".join(
        f"{name} {peak.median / 1e9:,.0f} GFLOP/s [{peak.q1 / 1e9:,.0f}, {peak.q3 / 1e9:,.0f}]"
        for name, peak in result.peaks.items()
    )
    return [
        machine_line(result.machine),
        f"width {config.width}, {config.num_layers} layers, {config.num_heads} heads, vocabulary "
        f"{config.vocab_size:,}, context {config.context}",
        *([", ".join(f"{title} {show(first)}" for title, show in common)] if common else []),
        f"peak: matrix product of {result.peak_shape}: {peaks}",
        "",
    ]


def _reading(result: Result) -> list[str]:
    """What the columns mean, as far as they are there."""
    lines = [
        "ms/step, [q1, q3]: median and quartiles of the clean samples (others used the processors for less than "
        f"{TOLERATED:.0%}); all samples where none is clean.",
        "of peak: FLOPs of `ilr plan` per second over the peak of the same precision; causal: counting visible "
        "keys only. Recomputation is not counted.",
        f"MiB: {_MEMORY[result.rows[0].peak_memory.kind]}, from the second step on.",
    ]
    if len(result.rows) > 1:
        lines.append("time ×, FLOPs ×: a step over that of the first row, time round by round.")
    if any(row.variant.compile != "none" for row in result.rows):
        lines.append("compile s: what the first step took longer, from an empty compilation cache.")
    return lines
