"""`ilr evaluate`: the loss of a checkpoint, by other windows, documents alone, by position, by frequency."""

import sys
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from ilr.bounds import check_count
from ilr.commands.parser import CommandParser, fail
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.model.memory import Use, check_memory


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `ilr evaluate` takes."""
    parser.add_argument("checkpoint", type=Path, help="checkpoint file or run directory")
    parser.add_argument(
        "--weights", choices=("best", "last"), default="best", help="which checkpoint of a run directory"
    )
    parser.add_argument(
        "--split",
        choices=("validation", "test"),
        help="part of the text (default: validation; of --corpus: everything)",
    )
    parser.add_argument(
        "--schedule",
        type=list[Any],
        help='run the same weights under another schedule, such as "[2,2,1,1]"',
    )
    parser.add_argument(
        "--corpus",
        type=str,
        nargs="+",
        default=None,
        help="other text to score, as --data.corpus of training takes it, through the run's tokenizer",
    )
    parser.add_argument(
        "--document",
        type=str,
        help="what a document of --corpus is: file, line, paragraph, or a regular expression (default: the "
        "run's)",
    )
    parser.add_argument("--column", type=str, help="column with the text of --corpus (default: the run's)")
    parser.add_argument(
        "--format",
        type=str,
        help="how files of --corpus are read, as --data.format of training (default: auto)",
    )
    _number(parser, "context", "score disjoint blocks of so many tokens (default: the model's context)")
    _number(parser, "window", "most tokens that a prediction sees (default: the model's context)")
    _number(parser, "stride", "tokens by which windows advance, at most the window (default: the window)")
    _flag(parser, "documents_alone", "score each document by itself, from the separator as start token")
    _flag(parser, "by_position", "loss by the number of tokens that the prediction saw")
    _flag(parser, "by_frequency", "loss by deciles of the training stream, frequent tokens to rare ones")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--tensorboard", action="store_true", help="also as a TensorBoard run below the run directory"
    )
    _number(parser, "batch_size", "windows in a batch (default: the run's, fewer where they are longer)")
    parser.add_argument(
        "--precision",
        type=str,
        help="such as 32-true or bf16-mixed (default: that in which the run was validated)",
    )
    parser.add_argument("--device", type=str, default="cpu", help="device to run on, such as cuda")


@in_one_line
def main(argv: list[str]) -> int:
    """Evaluate, print and keep; the exit code of the command."""
    parser = CommandParser(prog="ilr evaluate", description=__doc__, allow_abbrev=False)
    add_arguments(parser)
    options = parser.parse_args(argv)
    try:
        _run(options)
    except InputError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f'the package {error.name} is missing: pip install "ilr[compare]"')
    return 0


def _spellings(name: str) -> dict[str, None]:
    return dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))


def _number(parser: ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(*_spellings(name), type=int, help=text)


def _flag(parser: ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(*_spellings(name), action="store_true", help=text)


def _run(options: Namespace) -> None:
    if options.context is not None and options.window is not None:
        raise InputError("give --context or --window, not both")
    for name in ("context", "window", "stride", "batch_size"):
        value = getattr(options, name)
        if value is not None:
            check_count(f"--{name}", value)
    reading = {"document": options.document, "column": options.column, "format": options.format}
    if options.corpus is None and (given := [name for name, value in reading.items() if value is not None]):
        raise InputError(f"--{given[0]} belongs to --corpus; a run's own text is read and cut as in training")
    reading["format"] = options.format or "auto"
    # Only now: torch is slow to load, and the help does without.
    from ilr.evaluation.evaluate import Manner, evaluate
    from ilr.evaluation.output import name_of, write_board, write_json
    from ilr.evaluation.subject import (
        evaluation_precision,
        other_text,
        own_text,
        warnings_of,
        weights_name,
    )
    from ilr.runs.trained_run import TrainedRun

    run = TrainedRun.load(options.checkpoint, options.weights, options.device)
    plan = run.decoder.plan if options.schedule is None else run.decoder.plan_for(options.schedule)
    if options.corpus is None:
        text = own_text(run, options.split or "validation")
    else:
        text = other_text(run, options.corpus, options.split, reading)
    window = options.window or options.context or run.decoder.config.context
    check_memory(run.decoder.config, plan, Use(rows=options.batch_size or 1, context=window))
    manner = Manner(
        window=window,
        stride=options.stride or window,
        precision=evaluation_precision(run, options.precision),
        documents_alone=options.documents_alone,
        by_position=options.by_position,
        by_frequency=options.by_frequency,
        batch_size=options.batch_size,
        device=options.device,
    )
    record = evaluate(run, plan, text, manner)
    for warning in warnings_of(run, text):
        print(f"warning: {warning}", file=sys.stderr)
    print(record.as_json() if options.json else record.as_text())
    name = name_of(record, text.name, weights_name(options.checkpoint, options.weights))
    try:
        kept = [write_json(record, run.directory.path, name)]
        if options.tensorboard:
            kept.append(write_board(record, run.directory.path, name))
    except OSError as error:
        raise InputError(f"cannot write to {run.directory.path}: {error.strerror}") from None
    print(f"kept in {' and '.join(map(str, kept))}", file=sys.stderr)
