"""`ilr board`: TensorBoard on some runs, on this machine only, opened at the view that compares them."""

import sys
from argparse import ArgumentError
from contextlib import suppress
from pathlib import Path
from threading import Event
from urllib.parse import quote

from jsonargparse import ArgumentParser
from tensorboard import program

from ilr.bounds import check_count
from ilr.ending import in_one_line
from ilr.errors import InputError

_SCALARS = "perplexity|comparison"


def link(url: str, tab: str = "timeseries") -> str:
    """Address of a tab of a running TensorBoard, filtered to what compares runs.

    Unsmoothed, since the usual smoothing of 0.6 hides differences between schedules.
    """
    return f"{url.rstrip('/')}/?smoothing=0&tagFilter={quote(_SCALARS, safe='')}#{tab}"


def start(runs: Path, port: int | None = None) -> str:
    """Serve the event files at and below `runs` to this machine alone; returns the address."""
    if not runs.is_dir():
        raise InputError(f"{runs} is not a directory")
    if port is not None:
        check_count("--port", port, 65_535, least=0)
    board = program.TensorBoard()
    options = ["--logdir", str(runs), "--host", "localhost"]
    board.configure(["ilr board", *options, *(["--port", str(port)] if port is not None else [])])
    try:
        return str(board.launch())
    except program.TensorBoardServerException as error:
        raise InputError(" ".join(str(error).split())) from None


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `ilr board` takes."""
    parser.add_argument("runs", type=Path, help="directory above the runs")
    parser.add_argument(
        "--port", type=int | None, default=None, help="port; by default the first free one from 6006"
    )


@in_one_line
def main(argv: list[str]) -> int:
    """Serve until interrupted; the exit code of the command."""
    parser = ArgumentParser(prog="ilr board", description=__doc__, exit_on_error=False, allow_abbrev=False)
    add_arguments(parser)
    try:
        options = parser.parse_args(argv)
        url = start(options.runs, options.port)
    except (InputError, ArgumentError) as error:
        print(f"ilr board: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"Curves:         {link(url)}")
    print(f"Table of runs:  {link(url, 'hparams')}")
    print(f"Overlays:       {link(url, 'custom_scalars')}")
    print(f"Comparison:     {link(url, 'text')}")
    print("Ctrl-C ends it.", flush=True)
    with suppress(KeyboardInterrupt):
        Event().wait()
    return 0
