"""`ilr compare`: the table, the plots and the statistics of finished runs."""

import sys
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser
from rich.console import Console

from ilr.comparison.analysis import SMALLEST_EFFECT, Comparison, compare
from ilr.comparison.plots import draw
from ilr.comparison.report import markdown, print_report, write_csv
from ilr.errors import InputError

# Width of what is piped or written to a file: wide enough for one table without folding.
_UNFOLDED = 400


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `ilr compare` takes."""
    parser.add_argument("runs", type=Path, nargs="+", help="run directories, or directories above them")
    parser.add_argument(
        "--baseline",
        type=str | None,
        default=None,
        help="label of the arm to compare with (default: the plain model)",
    )
    parser.add_argument(
        "--split",
        type=Literal["auto", "validation", "test"],
        default="auto",
        help="text to compare on; auto is test where every run was tested, else validation",
    )
    parser.add_argument(
        "--delta",
        type=float,
        default=SMALLEST_EFFECT,
        help="smallest difference of interest, in nats per token (bits per byte where tokenizers differ)",
    )
    parser.add_argument(
        "--output",
        type=Path | None,
        default=None,
        help="directory for the table and the plots (default: comparison, in RUNS if that is one directory)",
    )
    parser.add_argument(
        "--tensorboard", action="store_true", help="also write them as a TensorBoard run there"
    )


def main(argv: list[str]) -> int:
    """Compare, print and write; the exit code of the command."""
    parser = ArgumentParser(prog="ilr compare", description=__doc__, exit_on_error=False, allow_abbrev=False)
    add_arguments(parser)
    try:
        options = parser.parse_args(argv)
        comparison = compare(options.runs, options.baseline, options.split, options.delta)
        output = options.output or default_output(options.runs)
        write(comparison, output, options.tensorboard)
    except (InputError, ArgumentError) as error:
        print(f"ilr compare: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    terminal = Console()
    print_report(comparison, terminal if terminal.is_terminal else Console(width=_UNFOLDED))
    print(f"\nTable and plots: {output}")
    return 0


def default_output(runs: Sequence[Path]) -> Path:
    """Beside the runs if they are below one directory, else here."""
    alone = runs[0] if len(runs) == 1 and not (runs[0] / "summary.json").exists() else Path()
    return alone / "comparison"


def write(comparison: Comparison, output: Path, tensorboard: bool) -> None:
    """Write every file of the comparison."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: {output} cannot be made: {error.strerror}") from None
    write_csv(comparison, output / "comparison.csv")
    (output / "comparison.md").write_text(markdown(comparison), encoding="utf-8")
    for name, figure in draw(comparison).items():
        figure.savefig(output / f"{name}.png", dpi=150)
    if tensorboard:
        # Only now: TensorBoard is slow to load and most comparisons do without.
        from ilr.comparison.tensorboard import write_summary_run

        write_summary_run(comparison, output)
