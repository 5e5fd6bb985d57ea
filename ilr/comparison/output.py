"""Where a comparison goes: the terminal, and a directory of files."""

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from ilr.comparison.analysis import Comparison
from ilr.comparison.plots import draw
from ilr.comparison.report import csv, markdown, print_report
from ilr.files.places import naming, output_directory
from ilr.runs.directory import atomic_write

# Width of what is piped or written to a file: wide enough for one table without folding.
_UNFOLDED = 400


def default_directory(runs: Sequence[Path]) -> Path:
    """Beside the runs if they are below one directory, else here."""
    alone = runs[0] if len(runs) == 1 and not (runs[0] / "summary.json").exists() else Path()
    return alone / "comparison"


def write(comparison: Comparison, directory: Path, tensorboard: bool) -> None:
    """Write table and plots, and if asked the TensorBoard run, into the directory."""
    table, text = csv(comparison), markdown(comparison)
    pictures = {name: _png(figure) for name, figure in draw(comparison).items()}
    with output_directory(directory, "--output"):
        for name, content in {"comparison.csv": table, "comparison.md": text}.items():
            with atomic_write(directory / name) as file:
                file.write(content)
        for name, picture in pictures.items():
            with atomic_write(directory / f"{name}.png", "wb") as file:
                file.write(picture)
        if tensorboard:
            # Only now: TensorBoard is slow to load and most comparisons do without.
            from ilr.comparison.tensorboard import write_summary_run

            with naming(directory):
                write_summary_run(comparison, directory)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    return content.getvalue()


def show(comparison: Comparison) -> None:
    """Print notes and table, folded to a terminal's width."""
    terminal = Console()
    print_report(comparison, terminal if terminal.is_terminal else Console(width=_UNFOLDED))
