"""The `ilr` console script: one word, one room. Only the room that is asked for is opened."""

import sys
from collections.abc import Callable
from importlib import import_module

from ilr.ending import in_one_line
from ilr.startup import uncollected

COMMANDS = {
    "fit": ("ilr.commands.train", "train a decoder under a schedule"),
    "validate": (
        "ilr.commands.train",
        "score a checkpoint on the validation split, also under another schedule",
    ),
    "test": ("ilr.commands.train", "the same on the test split"),
    "evaluate": (
        "ilr.commands.evaluate",
        "score a checkpoint with other windows, per document, by position",
    ),
    "plan": ("ilr.commands.plan", "visits and cost of a schedule, without training it"),
    "bench": ("ilr.commands.bench", "speed and memory of training under schedules on this machine"),
    "sweep": ("ilr.commands.sweep", "many runs from one file, on this machine or a cluster"),
    "anchors": ("ilr.commands.anchors", "models of equal cost to measure a schedule against"),
    "compare": ("ilr.commands.compare", "finished runs in one table, with statistics and plots"),
    "board": ("ilr.commands.board", "TensorBoard on runs, opened at the right place"),
    "analyse": ("ilr.commands.analyse", "what each visit does in a checkpoint; other schedules at test time"),
    "generate": ("ilr.commands.generate", "text from a checkpoint"),
}
WHOLE_LINE = ("ilr.commands.train",)
"""Rooms that read the command word themselves."""


@in_one_line
def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    word, *rest = arguments
    if word not in COMMANDS:
        print(f"error: no command {word!r}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    room = COMMANDS[word][0]
    try:
        with uncollected():
            run: Callable[[list[str]], int] = import_module(room).main
        return run(arguments if room in WHOLE_LINE else rest)
    except KeyboardInterrupt:
        print(f"ilr {word}: interrupted", file=sys.stderr)
        return 130


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {word:<{width}}  {what}" for word, (_, what) in COMMANDS.items()]
    return "usage: ilr COMMAND [options]; ilr COMMAND --help lists a command's options\n\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
