"""`ilr bench`: speed and memory of training under schedules on this machine. No torch until all is read."""

import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

from ilr.bench.variant import Precision, Variant, check_choice, read_precision
from ilr.bounds import check_count
from ilr.commands.parser import CommandParser, fail
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.files.plain_yaml import parse
from ilr.model.config import Compile, DecoderConfig, PositionScheme, Recompute
from ilr.model.memory import check_memory
from ilr.model.plan import SCHEDULE_EXAMPLES, make_plan
from ilr.model.sharing import SHARING_EXAMPLES
from ilr.runs.options import Options, decoder_of, flat
from ilr.sweep.settings import BATCH_SIZE, read_base

SAMPLES = 10
"""Clean samples of each variant where no option says."""
MOST_VARIANTS = 64
"""Variants that one command measures: each has a process with all of its model."""
WIDTH = 150
"""Characters that the table has at least."""


@in_one_line
def main(argv: list[str]) -> int:
    """Run `ilr bench`; its exit status."""
    given = plain(_parser().parse_args(argv, defaults=False))
    try:
        return _run(given)
    except InputError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f'the package {error.name} is missing: pip install "ilr[compare]"')
    except KeyboardInterrupt:
        print("interrupted: nothing to show", file=sys.stderr)
        return 130


def _parser() -> CommandParser:
    parser = CommandParser(
        allow_abbrev=False,
        prog="ilr bench",
        description="Time, share of the machine's peak, and memory of a training step, for every combination of what "
        "is asked for. Steps are taken in turns, one process each; only samples during which other processes "
        "left the processors alone count.",
    )
    several = {
        "schedules": f"Each {SCHEDULE_EXAMPLES}. Default: the configuration's.",
        "sharing": f"Each {SHARING_EXAMPLES}. Default: the configuration's, else none.",
        "positions": f"Among {_words(PositionScheme)}. Default: the configuration's, else rope.",
        "precision": f"Among {_words(Precision)}. Default: the configuration's, else 32-true.",
        "compile": f"Among {_words(Compile)}. Default: the configuration's, else none.",
        "recompute": f"Among {_words(Recompute)}. Default: the configuration's, else none.",
        "batch_size": f"Blocks in a step. Default: the configuration's micro-batch, else {BATCH_SIZE}.",
    }
    for name, help in several.items():
        parser.add_argument(f"--{name}", nargs="+", type=str, help=help)
    parser.add_argument(
        "--config", action="append", help="A training configuration; several are laid over each other."
    )
    parser.add_argument("--samples", type=int, help=f"Clean samples of each. Default: {SAMPLES}.")
    parser.add_argument("--device", type=str, help="auto, cpu, cuda, … Default: auto, a GPU if there is one.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--data.vocab_size", type=int, help="Vocabulary as asked for.")
    parser.add_class_arguments(DecoderConfig, "model", skip={"vocab_size"})
    return parser


def _words(choices: Any) -> str:
    return ", ".join(get_args(choices))


def _run(given: dict[str, Any]) -> int:
    chosen = variants(given)
    samples = given.get("samples", SAMPLES)
    check_count("--samples", samples)
    # Only now: torch takes seconds to load, and a mistake should show at once.
    from rich.console import Console

    from ilr.bench.report import as_data, print_table
    from ilr.bench.run import find_device, measure

    device = find_device(given.get("device", "auto"))
    if device.type == "cpu":
        for variant in chosen:
            check_memory(variant.config, variant.plan, variant.use)
    result = measure(chosen, samples, device, lambda line: print(line, file=sys.stderr, flush=True))
    if given.get("json"):
        print(json.dumps(as_data(result), indent=1))
    else:
        # A narrower terminal wraps the table itself; cutting figures off would be worse.
        print_table(result, Console(width=max(Console().width, WIDTH)))
    return 0


def variants(given: dict[str, Any]) -> list[Variant]:
    """Every combination of what the options and the configuration ask for, each once, in their order."""
    files = [Path(file) for file in given.get("config") or []]
    own = flat({name: given[name] for name in ("model", "data") if name in given})
    options = {**read_base(files), **own}
    schedules = _several(given, "schedules", options.get("model.schedule"))
    if schedules == [None]:
        raise InputError(f"no schedule given (--schedules, or in --config): for example {SCHEDULE_EXAMPLES}")
    found: dict[Variant, None] = {}
    for schedule, sharing, positions, *choices in product(
        schedules,
        _several(given, "sharing", options.get("model.sharing", "none")),
        _choices(given, "positions", options.get("model.positions", "rope"), get_args(PositionScheme)),
        _choices(given, "precision", options.get("trainer.precision", "32-true"), get_args(Precision)),
        _choices(given, "compile", options.get("model.compile", "none"), get_args(Compile)),
        _choices(given, "recompute", options.get("model.recompute", "none"), get_args(Recompute)),
        _batch_sizes(given, options),
    ):
        model = {"model.schedule": schedule, "model.sharing": sharing, "model.positions": positions}
        config, plan = _decoder({**options, **model})
        found[Variant(config, plan, *choices)] = None
        if len(found) > MOST_VARIANTS:
            raise InputError(
                f"more than {MOST_VARIANTS} variants are asked for; each is a process of its own"
            )
    return list(found)


def _decoder(options: Options) -> Any:
    if "model.num_layers" not in options:
        options["model.num_layers"] = make_plan(options["model.schedule"]).num_layers
    return decoder_of(options)


def _several(given: dict[str, Any], name: str, default: Any) -> list[Any]:
    """The values of an option that takes several, read as YAML; else the configuration's one."""
    if name not in given:
        return [default]
    return [parse(text, f"--{name}") for text in given[name]]


def _choices(given: dict[str, Any], name: str, default: Any, allowed: tuple[str, ...]) -> Sequence[Any]:
    values = given.get(name, [default])
    if name == "precision":
        values = [read_precision(value) for value in values]
    for value in values:
        check_choice(f"--{name}", value, allowed)
    return values


def _batch_sizes(given: dict[str, Any], options: Options) -> list[int]:
    values = _several(given, "batch_size", options.get("data.batch_size", BATCH_SIZE))
    for value in values:
        check_count("--batch_size", value)
    return values
