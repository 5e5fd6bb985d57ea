"""`ilr anchors`: the models of equal cost to measure a schedule against, and what whole sizes leave. No torch."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ilr.commands.parser import CommandParser, fail
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.files.plain_yaml import parse
from ilr.model.anchors import KINDS, Anchor, anchor, can_be_widened, is_unrepeated
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import SCHEDULE_EXAMPLES, Plan, make_plan
from ilr.model.sharing import SHARING_EXAMPLES
from ilr.runs.options import Options, decoder_of, flat
from ilr.sweep.arms import changes
from ilr.sweep.report import text_table
from ilr.sweep.settings import read_base


@in_one_line
def main(argv: list[str]) -> int:
    """Run `ilr anchors`; its exit status."""
    given = plain(_parser().parse_args(argv, defaults=False))
    try:
        config, plan = decoder_of(_options(given))
        found = [anchor(kind, config, plan) for kind in KINDS if _applies(kind, plan)]
    except InputError as error:
        fail(str(error))
    print(_as_json(config, plan, found) if given.get("json") else _as_text(config, plan, found))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(prog="ilr anchors", description=__doc__, allow_abbrev=False)
    parser.add_argument("schedule", nargs="?", help=f"{SCHEDULE_EXAMPLES}. Default: the configuration's.")
    parser.add_argument("--sharing", help=f"{SHARING_EXAMPLES}. Default: the configuration's, else none.")
    parser.add_argument(
        "--config", action="append", help="A training configuration; several are laid over each other."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument("--data.vocab_size", type=int, help="Vocabulary as asked for.")
    parser.add_class_arguments(DecoderConfig, "model", skip={"vocab_size"})
    return parser


def _options(given: dict[str, Any]) -> Options:
    """The configuration's options, under those given on the command line."""
    files = [Path(file) for file in given.get("config") or []]
    own = flat({name: given[name] for name in ("model", "data") if name in given})
    options = {**read_base(files), **own}
    for name in ("schedule", "sharing"):
        if given.get(name) is not None:
            options[f"model.{name}"] = parse(given[name], f"the {name}")
    if "model.num_layers" not in options and "model.schedule" in options:
        options["model.num_layers"] = make_plan(options["model.schedule"]).num_layers
    return options


def _applies(kind: str, plan: Plan) -> bool:
    return kind != "widened" or can_be_widened(plan)


def _as_text(config: DecoderConfig, plan: Plan, found: list[Anchor]) -> str:
    header = ("", "label", "layers", "width", "ffn_width", "depth", "parameters", "FLOPs/token", "mismatch")
    rows = [_row("the arm", config, plan, "")]
    rows += [_row(one.kind, one.config, one.plan, f"{one.mismatch:+.2%}") for one in found]
    lines = [text_table(header, rows, left=2), ""]
    lines += [f"{one.kind:<10}  {KINDS[one.kind]}; mismatch in {one.quantity}" for one in found]
    if is_unrepeated(plan):
        lines.append("The arm runs no weight twice: it is its own unrepeated model.")
    lines += ["", "Options over the arm's configuration:", *_option_lines(config, found)]
    return "\n".join(lines)


def _row(what: str, config: DecoderConfig, plan: Plan, mismatch: str) -> list[str]:
    spent = cost(config, plan)
    sizes = (config.num_layers, config.width, config.sizes.ffn, plan.depth)
    counts = (spent.parameters_non_embedding, spent.flops_per_token)
    return [what, plan.label + config.label, *map(str, sizes), *(f"{n:,}" for n in counts), mismatch]


def _option_lines(config: DecoderConfig, found: list[Anchor]) -> Iterator[str]:
    for one in found:
        words = [
            word
            for name, value in changes(config, one).items()
            for word in (f"--{name}", value if isinstance(value, str) else json.dumps(value))
        ]
        yield f"  {one.kind:<10}  {shlex.join(words)}"


def _as_json(config: DecoderConfig, plan: Plan, found: list[Anchor]) -> str:
    return json.dumps(
        {
            "label": plan.label + config.label,
            "cost": cost(config, plan).as_dict(),
            "anchors": {
                one.kind: {
                    "options": changes(config, one),
                    "quantity": one.quantity,
                    "target": one.target,
                    "reached": one.reached,
                    "mismatch": one.mismatch,
                    "cost": cost(one.config, one.plan).as_dict(),
                }
                for one in found
            },
        },
        indent=1,
    )
