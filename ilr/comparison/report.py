"""The table in words and signs: in the terminal, as Markdown, as CSV."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.ticker import EngFormatter
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ilr.comparison.analysis import Comparison
from ilr.comparison.notes import notes

Row = Mapping[Any, Any]
_NOTHING = "–"


def csv(comparison: Comparison) -> str:
    """All figures in full, one row per arm, the diverged ones last."""
    return _all_rows(comparison).to_csv(index=False)


def markdown(comparison: Comparison, width: int | None = None) -> str:
    """Notes and table for a page or a paper; below a width in characters, in blocks of columns."""
    header, rows = displayed(comparison)
    lines = ["# Comparison", "", *(f"- {_escape(note)}" for note in notes(comparison))]
    for block in _blocks(header, rows, width) if width else [range(len(header))]:
        lines += ["", _markdown_row(header, block), "|---" + "|---:" * (len(block) - 1) + "|"]
        lines += [_markdown_row(row, block) for row in rows]
    return "\n".join(lines) + "\n"


def print_report(comparison: Comparison, console: Console) -> None:
    """Notes, then the table, folded into blocks where the terminal is too narrow for it."""
    for note in notes(comparison):
        console.print(Text(note), style="bold yellow" if note.startswith("Warning") else "")
    header, rows = displayed(comparison)
    for block in _blocks(header, rows, console.width):
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for column in block:
            table.add_column(Text(header[column]), justify="right" if column else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(row[column]) for column in block), style=_style(row))
        console.print(table)


def displayed(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headers and cells as people read them."""
    rows = _all_rows(comparison).to_dict("records")
    return [name for name, _ in COLUMNS], [[show(row) for _, show in COLUMNS] for row in rows]


def _all_rows(comparison: Comparison) -> pd.DataFrame:
    diverged = comparison.diverged.reindex(columns=comparison.table.columns)
    return pd.concat([comparison.table, diverged], ignore_index=True) if len(diverged) else comparison.table


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns that fit side by side; each block starts with the label."""
    widths = [
        2 + max(cell_len(cell) for cell in (name, *(row[i] for row in rows))) for i, name in enumerate(header)
    ]
    blocks = [[0]]
    for column in range(1, len(header)):
        if len(blocks[-1]) > 1 and sum(widths[i] for i in blocks[-1]) + widths[column] > width:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks


def _style(row: Sequence[str]) -> str:
    styles = {"better": "green", "worse": "red", "baseline": "bold", "diverged": "dim"}
    return next((styles[cell] for cell in row if cell in styles), "")


def _markdown_row(cells: Sequence[str], block: Iterable[int]) -> str:
    return "| " + " | ".join(_escape(cells[i]) for i in block) + " |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(key: str, pattern: str = "{}", infinite: str = "infinite") -> Callable[[Row], str]:
    return lambda row: _special(row[key], infinite) or pattern.format(row[key])


def _scaled(key: str, infinite: str = "infinite") -> Callable[[Row], str]:
    scale = EngFormatter(places=2)
    return lambda row: _special(row[key], infinite) or scale(row[key])


def _special(value: object, infinite: str) -> str:
    """What stands for a value that is no plain number or text, else nothing."""
    if value in (None, "", math.inf):
        return infinite if value == math.inf else _NOTHING
    return _NOTHING if isinstance(value, float) and math.isnan(value) else ""


def _score(row: Row) -> str:
    if math.isnan(row["nll_mean"]):
        return _NOTHING
    return f"{row['nll_mean']:.4f}" + ("" if math.isnan(row["nll_sd"]) else f" ± {row['nll_sd']:.4f}")


def _interval(low: str, high: str) -> Callable[[Row], str]:
    return lambda row: _NOTHING if math.isnan(row[low]) else f"[{row[low]:+.4f}, {row[high]:+.4f}]"


# Answers first, then what the arm is, then what it costs.
COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("label", _cell("label")),
    ("verdict", _cell("verdict")),
    ("NLL ± sd", _score),
    ("perplexity", _cell("perplexity", "{:.3f}")),
    ("bits/byte", _cell("bits_per_byte", "{:.4f}")),
    ("Δ", _cell("delta", "{:+.4f}")),
    ("95 % interval", _interval("delta_low", "delta_high")),
    ("covers", _cell("interval_covers")),
    ("bootstrap", _interval("bootstrap_low", "bootstrap_high")),
    ("adjusted p", _cell("p_adjusted", "{:.2g}")),
    ("sharing", _cell("sharing")),
    ("positions", _cell("positions")),
    ("depth", _cell("depth")),
    ("seeds", _cell("seeds")),
    ("parameters", _scaled("parameters")),
    ("FLOPs/token", _scaled("flops_per_token")),
    ("tokens", _scaled("tokens")),
    ("training FLOPs", _scaled("training_flops")),
    ("FLOPs to baseline", _scaled("flops_to_baseline", "not reached")),
    ("seconds to baseline", _cell("seconds_to_baseline", "{:.1f}", "not reached")),
    ("tokens/s", _scaled("tokens_per_second")),
    ("held equal", _cell("held_equal")),
)
