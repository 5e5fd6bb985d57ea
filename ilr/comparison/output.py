"""Where a comparison goes: the terminal, and a directory of files."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ilr.comparison.analysis import Comparison
from ilr.comparison.plots import draw
from ilr.comparison.report import markdown, print_report, write_csv
from ilr.errors import InputError

# Width of what is piped or written to a file: wide enough for one table without folding.
_UNFOLDED = 400


def default_directory(runs: Sequence[Path]) -> Path:
    """Beside the runs if they are below one directory, else here."""
    alone = runs[0] if len(runs) == 1 and not (runs[0] / "summary.json").exists() else Path()
    return alone / "comparison"


def write(comparison: Comparison, directory: Path, tensorboard: bool) -> None:
    """Write table and plots, and if asked the TensorBoard run, into the directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: {directory} cannot be made: {error.strerror}") from None
    write_csv(comparison, directory / "comparison.csv")
    (directory / "comparison.md").write_text(markdown(comparison), encoding="utf-8")
    for name, figure in draw(comparison).items():
        figure.savefig(directory / f"{name}.png", dpi=150)
    if tensorboard:
        # Only now: TensorBoard is slow to load and most comparisons do without.
        from ilr.comparison.tensorboard import write_summary_run

        write_summary_run(comparison, directory)


def show(comparison: Comparison) -> None:
    """Print notes and table, folded to a terminal's width."""
    terminal = Console()
    print_report(comparison, terminal if terminal.is_terminal else Console(width=_UNFOLDED))
