"""`ilr compare`: the table, the plots and the statistics of finished runs."""

import sys
from argparse import ArgumentError
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from ilr.comparison import SMALLEST_EFFECT
from ilr.ending import in_one_line
from ilr.errors import InputError


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


@in_one_line
def main(argv: list[str]) -> int:
    """Compare, print and write; the exit code: 0 all compared, 1 a run was left out as its files are damaged, 2."""
    parser = ArgumentParser(prog="ilr compare", description=__doc__, exit_on_error=False, allow_abbrev=False)
    add_arguments(parser)
    try:
        options = parser.parse_args(argv)
        return _run(options)
    except (InputError, ArgumentError) as error:
        message = " ".join(str(error).split())
    except ModuleNotFoundError as error:
        message = f'the package {error.name} is missing: pip install "ilr[compare]"'
    print(f"ilr compare: error: {message}", file=sys.stderr)
    return 2


def _run(options: Namespace) -> int:
    # Here, not above: these need the extra `compare`, and a missing one is to be said in one line.
    from ilr.comparison.analysis import compare
    from ilr.comparison.output import default_directory, show, write

    comparison = compare(options.runs, options.baseline, options.split, options.delta)
    directory = options.output or default_directory(options.runs)
    write(comparison, directory, options.tensorboard)
    show(comparison)
    print(f"\nTable and plots: {directory}")
    for line in comparison.damaged:
        print(f"ilr compare: left out: {line}", file=sys.stderr)
    return 1 if comparison.damaged else 0
