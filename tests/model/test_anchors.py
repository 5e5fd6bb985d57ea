"""Anchors against an exhaustive search over every size, and `ilr anchors` as it is called."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from ilr.commands.anchors import main
from ilr.errors import InputError
from ilr.model.anchors import anchor, can_be_widened, is_unrepeated
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.sharing import Sharing

CONFIGS = {
    "rope": DecoderConfig(vocab_size=512, context=64, width=48, num_layers=4, num_heads=4),
    "ffn-given": DecoderConfig(
        vocab_size=300, context=32, width=48, num_layers=4, num_heads=3, ffn_width=100, positions="alibi"
    ),
    "grouped": DecoderConfig(
        vocab_size=300, context=32, width=64, num_layers=4, num_heads=4, num_kv_heads=2, injection="add"
    ),
}
PLANS = {
    "intra": make_plan([3, 2, 1, 1]),
    "block": make_plan([Segment((0, 1, 2, 3), 2)]),
    "attention-half": make_plan([Segment((0, 1, 2, 3)), Segment((1,), 2, "attention")]),
    "attention": make_plan([1] * 4, sharing="attention"),
    "ffn": make_plan([2, 1, 1, 1], sharing="ffn"),
    "all": make_plan([1] * 4, sharing="all"),
    "groups": make_plan([1] * 4, sharing=Sharing.groups(4, 2)),
}
CASES = [
    pytest.param(config, plan, id=f"{size}-{kind}")
    for size, config in CONFIGS.items()
    for kind, plan in PLANS.items()
]


def flops(config: DecoderConfig, plan: Plan) -> int:
    return cost(config, plan).flops_per_token


def weights(config: DecoderConfig, plan: Plan) -> int:
    return cost(config, plan).parameters_non_embedding


def possible_widths(config: DecoderConfig) -> list[DecoderConfig]:
    """Every legal width to 600 with the feed-forward in its old ratio."""
    found = []
    for width in range(1, 600):
        ratio = None if config.ffn_width is None else round(width * config.ffn_width / config.width)
        try:
            found.append(replace(config, width=width, ffn_width=ratio, injection="none"))
        except InputError:
            continue
    return found


@pytest.mark.parametrize(("config", "plan"), CASES)
def test_no_number_of_layers_is_nearer_in_flops_than_the_deeper_anchor(
    config: DecoderConfig, plan: Plan
) -> None:
    found = anchor("deeper", config, plan)
    target = flops(config, plan)
    others = [flops(replace(config, num_layers=n), make_plan([1] * n)) for n in range(1, 40)]
    assert abs(flops(found.config, found.plan) - target) == min(abs(one - target) for one in others)
    assert found.mismatch == flops(found.config, found.plan) / target - 1
    assert is_unrepeated(found.plan)


@pytest.mark.parametrize(("config", "plan"), CASES)
def test_no_legal_width_is_nearer_in_flops_than_the_wider_anchor(config: DecoderConfig, plan: Plan) -> None:
    found = anchor("wider", config, plan)
    target, ones = flops(config, plan), make_plan([1] * 4)
    best = min(abs(flops(other, ones) - target) for other in possible_widths(config))
    assert abs(flops(found.config, found.plan) - target) == best
    assert found.plan == ones
    assert found.config.width % config.num_heads == 0


@pytest.mark.parametrize(("config", "plan"), CASES)
def test_no_legal_width_is_nearer_in_parameters_than_the_parameters_anchor(
    config: DecoderConfig, plan: Plan
) -> None:
    found = anchor("parameters", config, plan)
    target, ones = weights(config, plan), make_plan([1] * 4)
    best = min(abs(weights(other, ones) - target) for other in possible_widths(config))
    assert abs(weights(found.config, found.plan) - target) == best


@pytest.mark.parametrize(("config", "plan"), [case for case in CASES if can_be_widened(case.values[1])])
def test_widening_back_gives_the_nearest_parameters_to_the_unshared_model(
    config: DecoderConfig, plan: Plan
) -> None:
    found = anchor("widened", config, plan)
    target = weights(config, make_plan(plan.segments, 4))
    if plan.sharing.name == "ffn":
        others = [replace(config, ffn_width=size) for size in range(1, 3000)]
        assert found.config == replace(config, ffn_width=found.config.ffn_width)
    else:
        others = [replace(one, injection=config.injection) for one in possible_widths(config)]
    best = min(abs(weights(other, plan) - target) for other in others)
    assert abs(weights(found.config, found.plan) - target) == best
    assert found.plan == plan


def test_an_unrepeated_unshared_model_is_its_own_anchor() -> None:
    config, plan = CONFIGS["rope"], make_plan([1] * 4)
    for kind in ("deeper", "wider", "parameters"):
        found = anchor(kind, config, plan)
        assert (found.config, found.plan, found.mismatch) == (config, plan, 0)
    with pytest.raises(InputError, match="shares no weights"):
        anchor("widened", config, plan)


@pytest.mark.parametrize(
    ("plan", "unrepeated"),
    [
        (make_plan([1, 1]), True),
        (make_plan([Segment((1, 0))]), True),
        (make_plan([2, 1]), False),
        (make_plan([1, 1], sharing="attention"), False),
        (make_plan([Segment((0, 1)), Segment((0,), 1, "ffn")]), False),
    ],
    ids=lambda value: value.label if isinstance(value, Plan) else str(value),
)
def test_unrepeated_means_that_no_bank_entry_runs_twice(plan: Plan, unrepeated: bool) -> None:
    assert is_unrepeated(plan) == unrepeated


def test_the_command_prints_every_anchor_with_its_mismatch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["[3,2,1,1]", "--config", "configs/demo.yaml"]) == 0
    printed = capsys.readouterr().out
    assert "1-1-1-1-1-1-1" in printed
    assert "-2.40%" in printed
    assert "--model.num_layers 7" in printed


def test_the_options_that_the_command_gives_make_the_anchor(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["[2,1,1,1]", "--sharing", "ffn", "--model.width", "48", "--json"]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    for found in printed["anchors"].values():
        model = {name.removeprefix("model."): value for name, value in found["options"].items()}
        schedule, sharing = model.pop("schedule"), model.pop("sharing")
        config = DecoderConfig(**{"vocab_size": 4096, "width": 48, **model})
        spent = cost(config, make_plan(schedule, config.num_layers, sharing))
        assert spent.as_dict() == found["cost"]


def test_a_wrong_schedule_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["[3,0]"])
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines()[0].startswith("error: schedule entries must be whole numbers")


def test_the_command_loads_no_torch() -> None:
    program = (
        "import sys; from ilr.commands.anchors import main; main(['[2,1]']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
