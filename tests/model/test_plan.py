"""Schedules and sharing compile into the visits they name."""

import re
import subprocess
import sys
from typing import Any

import pytest
from oracles import PLANS

from ilr.model.plan import Pass, Plan, Segment, Visit, make_plan
from ilr.model.sharing import Sharing

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)


def test_the_example_of_the_design_compiles_to_its_visits() -> None:
    plan = make_plan([3, 2, 1, 1])
    assert plan.visits == (
        Visit(layer=0, iteration=0, attention=0, ffn=0, slot=0),
        Visit(layer=0, iteration=1, attention=0, ffn=0, slot=1),
        Visit(layer=0, iteration=2, attention=0, ffn=0, slot=2),
        Visit(layer=1, iteration=0, attention=1, ffn=1, slot=3),
        Visit(layer=1, iteration=1, attention=1, ffn=1, slot=4),
        Visit(layer=2, iteration=0, attention=2, ffn=2, slot=5),
        Visit(layer=3, iteration=0, attention=3, ffn=3, slot=6),
    )
    assert plan.operands[4] == (1, 1, 4)
    assert (plan.depth, plan.num_layers, plan.num_slots) == (7, 4, 7)
    assert plan.times_per_layer == (3, 2, 1, 1)
    assert plan.short_form == (3, 2, 1, 1)


def test_iterations_count_the_visits_of_a_layer_over_all_segments() -> None:
    plan = make_plan([Segment((0, 1), 2), Segment((1,)), Segment((0,), 2)])
    assert [(visit.layer, visit.iteration) for visit in plan.visits] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 2), (0, 3),
    ]  # fmt: skip


def test_half_segments_skip_the_other_operand_and_only_attention_takes_a_slot() -> None:
    plan = make_plan([Segment((0,), 2, "ffn"), Segment((0, 1), 1, "attention"), Segment((1,))], sharing="ffn")
    assert plan.operands == ((None, 0, None), (None, 0, None), (0, None, 0), (1, None, 1), (1, 0, 2))
    assert plan.num_slots == 3
    assert plan.times_per_layer == (3, 2)
    assert plan.short_form is None


def test_passes_say_where_each_repetition_of_a_segment_begins_and_ends() -> None:
    plan = make_plan([Segment((0,)), Segment((1, 2), 2)])
    first, second, third = plan.passes()
    assert first == Pass(0, 0, (Visit(0, 0, 0, 0, 0),))
    assert second == Pass(1, 0, (Visit(1, 0, 1, 1, 1), Visit(2, 0, 2, 2, 2)))
    assert third == Pass(1, 1, (Visit(1, 1, 1, 1, 3), Visit(2, 1, 2, 2, 4)))


@every_plan
def test_visits_follow_the_segments_one_by_one(plan: Plan) -> None:
    written_out = [
        (number, repetition, layer)
        for number, segment in enumerate(plan.segments)
        for repetition in range(segment.times)
        for layer in segment.layers
    ]
    compiled = [(one.segment, one.repetition, visit.layer) for one in plan.passes() for visit in one.visits]
    assert compiled == written_out
    assert plan.visits == tuple(visit for one in plan.passes() for visit in one.visits)
    for (number, _, layer), visit, operands in zip(written_out, plan.visits, plan.operands, strict=True):
        half = plan.segments[number].sublayers
        assert visit.attention == (None if half == "ffn" else plan.sharing.attention[layer])
        assert visit.ffn == (None if half == "attention" else plan.sharing.ffn[layer])
        assert operands == (visit.attention, visit.ffn, visit.slot)
    slots = [visit.slot for visit in plan.visits if visit.attention is not None]
    assert slots == list(range(plan.num_slots))
    assert plan.depth == sum(plan.times_per_layer) == len(plan.visits)


@every_plan
def test_schedule_and_sharing_as_plain_data_make_the_same_plan_again(plan: Plan) -> None:
    sharing = {"attention": list(plan.sharing.attention), "ffn": list(plan.sharing.ffn)}
    assert make_plan(plan.schedule, plan.num_layers, sharing) == plan
    assert isinstance(plan.schedule, list)
    assert all(type(entry) in (int, dict) for entry in plan.schedule)


def test_labels_are_unique_and_safe_in_file_names() -> None:
    labels = [plan.label for plan in PLANS]
    assert len(set(labels)) == len(PLANS)
    assert all(re.fullmatch(r"[A-Za-z0-9_.()+-]+", label) for label in labels)


@pytest.mark.parametrize(
    ("plan", "label"),
    [
        (make_plan([3, 2, 1, 1]), "3-2-1-1"),
        (make_plan([Segment((0,)), Segment((1, 2), 4), Segment((3,))]), "0_(1-2)x4_3"),
        (make_plan([3, 2, 1, 1], sharing="attention"), "3-2-1-1+attention"),
        (
            make_plan([Segment((0,)), Segment((1,), 3, "attention"), Segment((0, 1), 1, "ffn")]),
            "0_1ax3_(0-1)f",
        ),
        (make_plan([1] * 4, sharing=Sharing.groups(4, 2)), "1-1-1-1+groups-of-2"),
        (make_plan([1] * 4, sharing=Sharing.sandwich(4)), "1-1-1-1+a0.1.1.2f0.1.1.2"),
        (make_plan([1, 1], sharing={"attention": [1, 0], "ffn": [0, 0]}), "1-1+a1.0f0.0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_name_only_what_differs_from_the_default(plan: Plan, label: str) -> None:
    assert plan.label == label


@pytest.mark.parametrize(
    ("name", "attention", "ffn"),
    [
        ("none", (0, 1, 2), (0, 1, 2)),
        ("attention", (0, 0, 0), (0, 1, 2)),
        ("ffn", (0, 1, 2), (0, 0, 0)),
        ("all", (0, 0, 0), (0, 0, 0)),
    ],
)
def test_named_sharing_is_what_the_layers_have_in_common(name: str, attention: Any, ffn: Any) -> None:
    sharing = make_plan([1, 1, 1], sharing=name).sharing
    assert (sharing.attention, sharing.ffn, sharing.name) == (attention, ffn, name)
    assert (sharing.num_attention, sharing.num_ffn) == (max(attention) + 1, max(ffn) + 1)
    assert make_plan([1, 1, 1], sharing={"attention": list(attention), "ffn": list(ffn)}).sharing == sharing


def test_groups_and_sandwich_are_the_lists_of_their_papers() -> None:
    assert Sharing.groups(5, 2).attention == Sharing.groups(5, 2).ffn == (0, 0, 1, 1, 2)
    assert Sharing.groups(3, 1) == Sharing.named("none", 3)
    assert Sharing.groups(3, 3) == Sharing.named("all", 3)
    assert Sharing.sandwich(5).attention == Sharing.sandwich(5).ffn == (0, 1, 1, 1, 2)


def test_with_injection_equal_operands_are_one_computation_only_where_the_same_states_are_added() -> None:
    twice, flat = make_plan([2, 1]), make_plan([Segment((0, 0, 1))])
    assert twice.operands == flat.operands
    assert twice.computation("none") == flat.computation("none")
    assert twice.computation("add") != flat.computation("add")
    assert (twice.injections, flat.injections) == (((1, 0),), ())
    apart = make_plan([Segment((0,), 2), Segment((1,))])
    joined = make_plan([Segment((0,), 2), Segment((1,)), Segment((0,), 1)])
    assert apart.computation("add") == twice.computation("add")
    assert make_plan([Segment((0, 1), 3), Segment((1,), 2)]).injections == ((2, 0), (4, 0), (7, 6))
    assert joined.injections == twice.injections


def test_the_table_shows_one_line_per_visit_with_its_operands() -> None:
    plan = make_plan([Segment((1,), 2), Segment((0,), 1, "ffn")], sharing="all")
    lines = [line.split() for line in plan.table().splitlines()]
    assert lines == [
        ["visit", "layer", "iteration", "attention", "ffn", "slot"],
        ["0", "1", "0", "0", "0", "0"],
        ["1", "1", "1", "0", "0", "1"],
        ["2", "0", "0", "-", "0", "-"],
    ]
    assert len({len(line) for line in plan.table().splitlines()}) == 1


def test_num_layers_follows_from_the_schedule_or_leaves_layers_unvisited() -> None:
    assert make_plan([{"layers": [2, 0]}]).num_layers == 3
    plan = make_plan([{"layers": [2, 0]}], num_layers=4)
    assert (plan.num_layers, plan.times_per_layer) == (4, (1, 0, 1, 0))


def test_the_short_form_names_every_layer_or_is_not_used() -> None:
    plan = make_plan([Segment((0,), 2), Segment((1,))], num_layers=3)
    assert plan.short_form is None
    assert plan.label == "0x2_1"
    assert make_plan(plan.schedule, 3) == plan


def test_equal_schedules_written_differently_are_equal_plans() -> None:
    written = [{"layers": [0], "times": 3}, {"layers": (1,), "times": 1, "sublayers": "both"}]
    assert make_plan(written) == make_plan((3, 1)) == make_plan([Segment((0,), 3), Segment((1,))])
    assert hash(make_plan(written)) == hash(make_plan([3, 1]))


def test_plans_and_costs_are_made_without_loading_torch() -> None:
    program = (
        "import sys, ilr; plan = ilr.make_plan([3, 2, 1, 1], sharing='attention'); plan.table(); "
        "ilr.cost(ilr.DecoderConfig(vocab_size=10), plan).as_dict(); "
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_package_offers_its_public_names_and_no_others() -> None:
    import ilr

    assert {"Decoder", "DecoderConfig", "Plan", "Segment", "Sharing", "make_plan", "cost", "load"} <= set(
        dir(ilr)
    )
    assert ilr.make_plan is make_plan
    with pytest.raises(AttributeError, match="no attribute 'make_plam'"):
        ilr.make_plam  # noqa: B018
