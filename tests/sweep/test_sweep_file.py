"""What a sweep file may say, and which runs follow from it."""

import shlex
from collections import Counter
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import BASE, sweep_of, write_sweep

from ilr.errors import InputError
from ilr.model.cost import training_flops
from ilr.model.plan import make_plan
from ilr.sweep.file import ARM_KEYS, EXAMPLE, KEYS, Seeds, read_sweep
from ilr.sweep.generators import all_schedules, early, extra, late, sharings, uniform
from ilr.sweep.runs import make_sweep

SWEEPS = Path(__file__).parents[2] / "configs" / "sweeps"


def names(folder: Path, **keys: Any) -> list[str]:
    return [run.name for run in sweep_of(folder, **keys).runs]


def test_every_arm_runs_once_per_seed(tmp_path: Path) -> None:
    arms = [[1, 1], {"schedule": [2, 1], "positions": ["alibi", "none"]}]
    assert names(tmp_path, arms=arms, seeds=[0, 7]) == [
        f"{label}-{seed}" for label in ("1-1", "2-1+alibi", "2-1+nope") for seed in ("s0", "s7")
    ]


def test_init_and_data_seed_can_differ(tmp_path: Path) -> None:
    run = sweep_of(tmp_path, arms=[[1, 1]], seeds=[{"init": 3, "data": 5}]).runs[0]
    assert run.seeds == Seeds(init=3, data=5)
    assert run.name == "1-1-s3-d5"
    assert "--seed_everything 3 --data.seed 5" in shlex.join(run.command)


def test_the_command_gives_base_overrides_seed_and_directory(tmp_path: Path) -> None:
    arm = {"schedule": [2, 1], "sharing": "ffn", "set": {"model.dropout": 0.1, "data": {"batch_size": 4}}}
    run = sweep_of(tmp_path, arms=[arm], set={"val_every": 20}).runs[0]
    assert run.name == "2-1+ffn+batch_size4+dropout0.1-s0"
    assert run.command == (
        *("fit", "--config", str(tmp_path / "base.yaml"), "--val_every", "20"),
        *("--model.schedule", "[2, 1]", "--model.sharing", "ffn"),
        *("--data.batch_size", "4", "--model.dropout", "0.1", "--seed_everything", "0"),
        *("--held_equal", "tokens", "--run_dir", str(run.directory.path), "--resume", "auto"),
    )


@pytest.mark.parametrize(
    "arms",
    [
        [[3, 2], "again", [3, 2]],
        [[3, 2], [{"layers": [0], "times": 3}, {"layers": [1], "times": 2}]],
        [[1, 1], {"schedule": [1, 1], "sharing": "none", "set": {"model.ffn_width": 64}}],
        [[2, 2], [{"layers": [0]}, {"layers": [0]}, {"layers": [1], "times": 2}]],
        # One layer four times is four layers that share all.
        [
            {"schedule": [4], "set": {"model.num_layers": 1}},
            {"schedule": [1, 1, 1, 1], "sharing": "all", "set": {"model.num_layers": 4}},
        ],
    ],
    ids=["twice", "segments", "defaults", "unrolled", "shared"],
)
def test_arms_of_equal_effective_configuration_run_once(tmp_path: Path, arms: list[Any]) -> None:
    sweep = sweep_of(tmp_path, arms=[arm for arm in arms if arm != "again"], seeds=[0, 1])
    assert len(sweep.runs) == 2
    assert len(sweep.repeated) == 1


@pytest.mark.parametrize("change", [{"model.dropout": 0.1}, {"data.batch_size": 3}, {"trainer.max_steps": 9}])
def test_arms_that_differ_in_any_option_that_matters_both_run(tmp_path: Path, change: dict[str, Any]) -> None:
    assert len(names(tmp_path, arms=[[1, 1], {"schedule": [1, 1], "set": change}])) == 2


def test_equal_operands_differ_where_injection_sees_other_passes(tmp_path: Path) -> None:
    both = [[2, 1], [{"layers": [0]}, {"layers": [0]}, {"layers": [1]}]]
    assert len(names(tmp_path, arms=[{"schedules": both}])) == 1
    assert len(names(tmp_path, arms=[{"schedules": both, "injection": "add"}])) == 2


def test_runs_of_one_name_get_distinct_directories(tmp_path: Path) -> None:
    arms = [{"schedule": [1, 1], "set": {name: 8}} for name in ("data.context", "model.context")]
    found = names(tmp_path, arms=arms, seeds=[0, 1])
    assert len(set(found)) == 4
    assert all(name.startswith("1-1+context8+") for name in found)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"arms": [[1, 1]], "seedz": [1]}, r"sweep.yaml: unknown key 'seedz'; the keys are base, set, arms"),
        ({"arms": [{"shedule": [1, 1]}]}, r"sweep.yaml: arms\[0\]: unknown key 'shedule'"),
        ({"arms": [{"schedule": [1, 1], "set": {"widht": 3}}]}, r"arms\[0\]: set: unknown key 'widht'"),
        ({"arms": [[1, 1]], "set": {"model.widht": 3}}, "'model.widht'.*did you mean model.width"),
        ({"arms": [[1, 1], {"schedule": [1, 1], "set": {"data.seed": 3}}]}, r"arms\[1\].*data.seed is not"),
        ({"arms": [[1, 1, 1]]}, r"sweep.yaml: arms\[0\]: schedule must have one entry per layer: got 3"),
        ({"arms": [[1, 1]], "held_equal": "time"}, "held_equal is tokens or flops, got 'time'"),
        ({"arms": [[1, 1]], "seeds": [0.5]}, "seeds: a seed is a whole number"),
        ({"arms": [[1, 1]], "seeds": [2**32]}, "seeds: a seed is a whole number up to 4,294,967,295"),
        ({"arms": [[1, 1]], "learning_rates": [1e-3, 1e300]}, "learning_rates: a list of finite numbers"),
        (
            {"arms": [{"generate": "all", "depth": 30}], "set": {"model.num_layers": 16}},
            "16 layers and 30 visits",
        ),
        ({"arms": [{"generate": "all", "depth": 10**9}]}, "depth must be at most 65,536"),
        ({"arms": [[10**9, 1]]}, "1000000001 visits, at most 65,536"),
        ({"arms": [{"schedules": [[1, 2]] * 101, "sharing": ["none"] * 100}]}, "10,100 arms are asked for"),
        (
            {"arms": [[1, 1]], "seeds": list(range(4_001)), "learning_rates": [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]},
            "20,005 runs are asked for",
        ),
        ({"arms": [[1, 1]], "anchors": ["deep"]}, "an anchor is one of deeper, wider, parameters, widened"),
        ({"arms": [[1, 1]], "learning_rates": ["fast"]}, "learning_rates: a list of finite numbers above 0"),
        ({"arms": [{"generate": "some"}]}, "generate is one of all, early, late, uniform, extra"),
        ({"arms": [{"generate": "all"}]}, "generate: all needs a depth"),
        ({"arms": []}, "the key 'arms' is missing"),
        ({"arms": [[1, 1]], "held_equal": "flops", "baseline": "2-2"}, "no arm is called '2-2'"),
    ],
)
def test_a_wrong_sweep_file_is_refused_with_file_and_key(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_sweep(read_sweep(write_sweep(tmp_path, **keys)), tmp_path)


def test_equal_flops_give_each_arm_the_steps_that_spend_the_baselines(tmp_path: Path) -> None:
    base = {**BASE, "trainer": {**BASE["trainer"], "max_steps": 1000}}
    sweep = sweep_of(tmp_path, base, arms=[[2, 2], [1, 1], [4, 3]], held_equal="flops")
    target = next(run for run in sweep.runs if run.name == "1-1-s0").training_flops
    assert target == training_flops(sweep.runs[0].arm.config, make_plan([1, 1]), 1000 * 2 * 32)
    for run in sweep.runs:
        assert run.steps is not None
        assert run.training_flops is not None
        assert target is not None
        per_step = run.training_flops / run.steps
        assert abs(run.training_flops - target) <= per_step / 2
        assert run.mismatch == pytest.approx(run.training_flops / target - 1)
        command = shlex.join(run.command)
        assert f"--trainer.max_steps {run.steps}" in command
        assert "--held_equal flops" in command


def test_equal_tokens_leave_the_steps_alone(tmp_path: Path) -> None:
    assert {run.steps for run in sweep_of(tmp_path, arms=[[1, 1], [4, 3]]).runs} == {20}


def test_learning_rates_multiply_the_runs_and_name_them(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, arms=[[1, 1]], learning_rates=["3e-3", 0.001])
    assert [run.name for run in found.runs] == ["1-1+lr0.001-s0", "1-1+lr0.003-s0"]
    assert "--model.learning_rate 0.001" in shlex.join(found.runs[0].command)


def test_anchors_follow_their_arm_and_coincide_where_they_are_equal(tmp_path: Path) -> None:
    arms = [[1, 1], [2, 1], {"schedule": [1, 1], "sharing": "ffn", "anchors": ["widened"]}]
    sweep = sweep_of(tmp_path, arms=arms, anchors=["deeper", "parameters"])
    assert [run.name for run in sweep.runs] == [
        *("1-1-s0", "2-1-s0", "1-1-1-s0", "1-1+ffn-s0"),
        "1-1+ffn+ffn_width128-s0",
    ]
    assert "mismatch +0.00% training FLOPs" in sweep.runs[2].arm.note


@pytest.mark.parametrize(("num_layers", "depth"), [(1, 3), (2, 5), (4, 4), (4, 8), (3, 9)])
def test_all_schedules_of_a_depth_are_counted_by_a_binomial(num_layers: int, depth: int) -> None:
    found = all_schedules(num_layers, depth)
    assert len({tuple(times) for times in found}) == len(found) == comb(depth - 1, num_layers - 1)
    assert all(len(times) == num_layers and sum(times) == depth and min(times) >= 1 for times in found)


def test_early_late_and_uniform_are_the_monotone_schedules() -> None:
    every = all_schedules(4, 8)
    falling = [times for times in every if all(a >= b for a, b in pairwise(times))]
    assert sorted(early(4, 8) + uniform(4, 8)) == sorted(falling)
    assert [4, 2, 1, 1] in early(4, 8)
    assert sorted(late(4, 8)) == sorted(times[::-1] for times in early(4, 8))
    with pytest.raises(InputError, match="multiple of the 4 layers"):
        uniform(4, 7)


@pytest.mark.parametrize("half", ["both", "attention", "ffn"])
def test_one_extra_visit_is_of_one_layer_and_of_the_halves_asked(half: Any) -> None:
    once = Counter(make_plan([1, 1, 1]).operands)
    for layer, schedule in enumerate(extra(3, half)):
        plan = make_plan(schedule, 3)
        assert plan.depth == 4
        assert plan.times_per_layer[layer] == 2
        more = next(visit for visit in plan.visits if visit.iteration == 1)
        assert (more.attention is None) == (half == "ffn")
        assert (more.ffn is None) == (half == "attention")
    assert len(once) == 3


def test_every_sharing_has_another_name() -> None:
    found = [make_plan([1] * 6, 6, sharing).sharing.name for sharing in sharings(6)]
    assert found[:6] == ["none", "attention", "ffn", "all", "groups-of-2", "groups-of-3"]
    assert len(set(found)) == len(found) == 7


def test_generated_arms_take_the_other_keys_of_their_entry(tmp_path: Path) -> None:
    arms = [{"generate": "all", "depth": 4, "positions": "alibi"}, {"schedule": [1, 1], "sharing": "every"}]
    assert names(tmp_path, arms=arms) == [
        *("1-3+alibi-s0", "2-2+alibi-s0", "3-1+alibi-s0"),
        *("1-1-s0", "1-1+attention-s0", "1-1+ffn-s0", "1-1+all-s0"),
    ]


@pytest.mark.parametrize(
    ("name", "arms", "runs"), [("demo", 4, 8), ("paper-table", 48, 144), ("sharing", 9, 27)]
)
def test_the_sweeps_that_come_with_the_project_are_what_they_say(name: str, arms: int, runs: int) -> None:
    sweep = make_sweep(read_sweep(SWEEPS / f"{name}.yaml"), Path("runs"))
    assert (len(sweep.arms), len(sweep.runs), len(sweep.repeated)) == (arms, runs, 0)


def test_the_example_in_the_help_is_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(EXAMPLE.replace("../demo.yaml", str(SWEEPS.parent / "demo.yaml")))
    sweep = make_sweep(read_sweep(path), tmp_path)
    assert {key for key in KEYS if f"\n{key}:" in f"\n{EXAMPLE}"} == set(KEYS)
    assert all(f"{key}:" in EXAMPLE for key in ARM_KEYS)
    assert len(sweep.runs) == 2 * 3 * len(sweep.arms)
