"""`ilr plan`: the visits and the cost of a schedule beside those of the unrepeated stack. No torch."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from ilr.bounds import shown
from ilr.commands.parser import CommandParser, fail
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.files.plain_yaml import parse, read_mapping
from ilr.model.config import DecoderConfig
from ilr.model.cost import Cost, cost
from ilr.model.plan import SCHEDULE_EXAMPLES, Plan, make_plan

VOCABULARY = 4096
"""Vocabulary where neither configuration nor option says one: the data module's default."""

NAMES = {
    "depth": "visits (depth)",
    "parameters": "parameters",
    "parameters_non_embedding": "  without embeddings",
    "parameters_once": "  in weights run once",
    "parameters_repeated": "  in weights run repeatedly",
    "macs_per_token": "MACs per token",
    "forward_flops_per_token": "forward FLOPs per token",
    "flops_per_token": "training FLOPs per token",
    "causal_flops_per_token": "  counting visible keys only",
    "cache_bytes_per_token": "cache bytes per token",
    "activation_bytes_per_token": "activation bytes per token",
}


@in_one_line
def main(argv: list[str]) -> int:
    """Run `ilr plan`; its exit status."""
    arguments = _parser().parse_args(argv, defaults=False)
    try:
        _run(plain(arguments))
    except InputError as error:
        fail(str(error))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        allow_abbrev=False,
        prog="ilr plan",
        description="Visits and cost of a schedule, and beside it the cost of the same layers run once each.",
    )
    parser.add_argument(
        "schedule", nargs="?", help=f"The schedule: {SCHEDULE_EXAMPLES}. Default: the configuration's."
    )
    parser.add_argument(
        "--sharing", help="none, attention, ffn, all, or bank indices per layer. Default: none."
    )
    parser.add_argument(
        "--config", action="append", help="A training configuration; several are laid over each other."
    )
    parser.add_argument(
        "--context", type=int, help="Context length of the count, in tokens. Default: the model's."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--data.vocab_size", type=int, help=f"Vocabulary as asked for. Default: {VOCABULARY}."
    )
    parser.add_class_arguments(DecoderConfig, "model", skip={"vocab_size"})
    return parser


def _run(given: dict[str, Any]) -> None:
    stored = _layered([Path(file) for file in given.get("config") or []])
    model = {**stored.get("model", {}), **given.get("model", {})}
    schedule = given.get("schedule")
    schedule = model.get("schedule") if schedule is None else parse(schedule, "the schedule")
    if schedule is None:
        raise InputError(f"no schedule given: it is {SCHEDULE_EXAMPLES}")
    sharing = given.get("sharing")
    sharing = model.get("sharing", "none") if sharing is None else parse(sharing, "--sharing")
    if "num_layers" not in model:
        model["num_layers"] = make_plan(schedule).num_layers
    asked = given.get("data", {}).get("vocab_size") or stored.get("data", {}).get("vocab_size") or VOCABULARY
    vocab_size = model.get("vocab_size") or asked
    sizes = {field.name: model[field.name] for field in fields(DecoderConfig) if field.name in model}
    config = DecoderConfig(**{**sizes, "vocab_size": vocab_size})
    plan = make_plan(schedule, config.num_layers, sharing)
    plain_stack = make_plan([1] * config.num_layers)
    costs = [cost(config, one, given.get("context")) for one in (plan, plain_stack)]
    if given.get("json"):
        print(json.dumps(_as_json(config, plan, costs), indent=1))
    else:
        print(_as_text(config, plan, plain_stack, costs))


def _layered(files: list[Path]) -> dict[str, Any]:
    """The model and data sections of configuration files, the later laid over the earlier key by key."""
    sections: dict[str, Any] = {"model": {}, "data": {}}
    for file in files:
        content = read_mapping(file, "configuration")
        for name, values in sections.items():
            section = content.get(name) or {}
            if not isinstance(section, dict):
                raise InputError(f"{file}: {name} is a mapping of options, got {shown(section)}")
            values.update(section)
    return sections


def _as_json(config: DecoderConfig, plan: Plan, costs: list[Cost]) -> dict[str, Any]:
    return {
        "label": plan.label + config.label,
        "schedule": plan.schedule,
        "sharing": {"attention": list(plan.sharing.attention), "ffn": list(plan.sharing.ffn)},
        "visits": [visit._asdict() for visit in plan.visits],
        "vocab_size": config.vocab_size,
        "vocab_size_is": "as asked",
        "cost": costs[0].as_dict(),
        "all_ones": costs[1].as_dict(),
    }


def _as_text(config: DecoderConfig, plan: Plan, plain_stack: Plan, costs: list[Cost]) -> str:
    label = plan.label + config.label
    lines = [
        f"schedule {label}: width {config.width}, {config.num_layers} layers, context {costs[0].context}, "
        f"vocabulary {config.vocab_size:,} (as asked; training uses what the tokenizer gets)",
        "",
        plan.table(),
        "",
        f"{'':30}{label:>20}{plain_stack.label:>20}{'ratio':>8}",
    ]
    ours, theirs = (one.as_dict() for one in costs)
    for name, title in NAMES.items():
        ratio = f"{ours[name] / theirs[name]:>8.3f}" if theirs[name] else ""
        lines.append(f"{title:30}{ours[name]:>20,}{theirs[name]:>20,}{ratio}")
    lines += ["", _reading(*costs)]
    return "\n".join(lines)


def _reading(ours: Cost, theirs: Cost) -> str:
    """What the two columns say, in words: parameters saved are not compute saved."""
    return (
        f"Parameters: {ours.parameters / theirs.parameters:.3f} of the unshared stack's. "
        f"Compute: {ours.flops_per_token / theirs.flops_per_token:.3f} of the unrepeated stack's. "
        "Sharing saves parameters and no compute; repeating costs compute and no parameters."
    )
