"""Numbers beyond what is worked with are refused in a line, before anything is made of them."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import combinations, pairwise
from typing import Any

import pytest

from ilr.bounds import MOST_LAYERS, MOST_VISITS, check_seed, shown
from ilr.errors import InputError
from ilr.model.anchors import KINDS, anchor
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import Segment, make_plan
from ilr.model.schedules import block, cycle, prelude_core_coda, reversed_cycle
from ilr.model.sharing import Sharing
from ilr.sweep.generators import LARGEST_FAMILY, all_schedules, early, generated, late, sharings

HUGE = 10**5000
"""More digits than Python writes out."""


@contextmanager
def cheap(seconds: float = 2.0, megabytes: float = 20.0) -> Iterator[None]:
    """What is done in here takes neither long nor much memory."""
    tracemalloc.start()
    begun = time.process_time()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun < seconds
    assert peak < megabytes * 1e6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: make_plan([10**9, 1, 1, 1]), "schedule has 1000000003 visits, at most 65,536"),
        (lambda: make_plan([HUGE]), "schedule has a number too large to be shown visits"),
        (lambda: make_plan([{"layers": [0, 1], "times": 10**8}]), "200000000 visits, at most 65,536"),
        (lambda: make_plan([Segment((0,), MOST_VISITS), Segment((0,))]), "65537 visits, at most"),
        (lambda: make_plan([{"layers": [10**9]}]), "names layer 1000000000: a layer must be below 65,536"),
        (lambda: make_plan([{"layers": [HUGE]}]), "names layer a number too large"),
        (lambda: make_plan([{"layers": [HUGE]}], 4), "names layer a number too large"),
        (lambda: make_plan([{"layers": [0]}], 10**9), "num_layers must be at most 65,536, got 1000000000"),
        (lambda: make_plan([1], HUGE), "num_layers must be at most 65,536"),
        (lambda: Sharing.named("all", 10**10), "num_layers must be at most"),
        (lambda: Sharing.groups(10**10, 2), "num_layers must be at most"),
        (lambda: Sharing.sandwich(10**10), "num_layers must be at most"),
        (lambda: Sharing((0, HUGE), (0, 1)), "must use every bank index"),
        (lambda: block(10**10, 2), "num_layers must be at most"),
        (lambda: cycle(3, 10**10), "depth must be at most"),
        (lambda: reversed_cycle(3, 10**10), "depth must be at most"),
        (lambda: prelude_core_coda(1, 10**10, 1, 2), "core must be at most"),
        (lambda: all_schedules(16, 30), r"generate: all makes at least .* at most 10,000 can be"),
        (lambda: all_schedules(2, MOST_VISITS), "65,535 schedules of 2 layers"),
        (lambda: early(16, 80), "generate: early and late makes more than 10,000 schedules"),
        (lambda: late(40_000, MOST_VISITS), "generate: early and late makes more than 250 schedules"),
        (lambda: list(generated("extra", 50_000, None, "both")), "generate: extra makes 50,000 schedules"),
        (lambda: list(generated("uniform", 2, 10**12, "both")), "depth must be at most 65,536"),
        (lambda: sharings(10**12), "num_layers must be at most"),
        (lambda: DecoderConfig(vocab_size=2**31), "vocab_size must be at most 2,147,483,647, got 2147483648"),
        (lambda: DecoderConfig(vocab_size=9, num_layers=10**6), "num_layers must be at most 65,536"),
        (lambda: DecoderConfig(vocab_size=9, ffn_width=HUGE), "ffn_width must be at most"),
        (lambda: DecoderConfig(vocab_size=9, init_std=float("inf")), "init_std must be finite"),
        (lambda: DecoderConfig(vocab_size=9, norm_eps=1e300), "norm_eps must be finite"),
        (lambda: DecoderConfig(vocab_size=9, rope_theta=HUGE), "rope_theta must be finite"),
        (lambda: DecoderConfig(vocab_size=9, dropout="0.1"), "dropout must be at least 0 and below 1"),  # type: ignore[arg-type]
        (
            lambda: DecoderConfig(vocab_size=9, tie_embeddings=3),
            "tie_embeddings must be true or false, got 3",
        ),  # type: ignore[arg-type]
        (lambda: cost(DecoderConfig(vocab_size=9), make_plan([1] * 4), HUGE), "context must be at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_number_without_bounds_costs_a_line_and_no_memory(make: Callable[[], Any], words: str) -> None:
    """Bad input, point 21: refused by what is given, not by what it grows to."""
    with cheap(), pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("seed", [-1, 2**32, 1e3, True, None, HUGE, float("nan"), "0"], ids=shown)
def test_a_seed_that_some_generator_refuses_is_refused_before(seed: Any) -> None:
    """Bad input, point 21: seeds."""
    with pytest.raises(InputError, match="whole number from 0 to 4,294,967,295"):
        check_seed("seed", seed)


@pytest.mark.parametrize("num_layers", range(1, 6))
@pytest.mark.parametrize("depth", range(1, 12))
def test_monotone_schedules_are_those_that_filtering_all_would_find(num_layers: int, depth: int) -> None:
    """Bad input, point 21: families are made directly, in the order of the whole family."""
    if depth < num_layers:
        with pytest.raises(InputError, match=f"at least the {num_layers} layers, got {depth}"):
            early(num_layers, depth)
        return
    cuts = combinations(range(1, depth), num_layers - 1)
    every = [[after - before for before, after in pairwise((0, *cut, depth))] for cut in cuts]
    assert all_schedules(num_layers, depth) == every
    falling = [times for times in every if times == sorted(times, reverse=True) and times[0] > times[-1]]
    assert early(num_layers, depth) == falling
    assert late(num_layers, depth) == [times[::-1] for times in falling]


def test_families_below_the_limit_are_whole() -> None:
    """Bad input, point 21: the limit is on the family's size, not on depth. Partitions of 30: OEIS A000041."""
    assert len(all_schedules(4, 30)) == 3654  # C(29, 3)
    assert len(early(30, 60)) == 5604 - 1  # without the uniform one
    assert len(early(3, 303)) == 7651 - 1 < LARGEST_FAMILY  # round(303² / 12) of at most three parts, but one


def test_a_plan_of_the_largest_size_is_made_measured_and_named_quickly() -> None:
    """Bad input, point 21: what is allowed is also feasible."""
    begun = time.process_time()
    plan = make_plan([1] * MOST_LAYERS, sharing={"attention": [0] * MOST_LAYERS, "ffn": [0] * MOST_LAYERS})
    assert plan.sharing.name == "all"
    assert plan.times_per_layer == (1,) * MOST_LAYERS
    config = DecoderConfig(vocab_size=9, num_layers=MOST_LAYERS)
    assert anchor("deeper", config, plan).mismatch == 0
    assert time.process_time() - begun < 10
    groups = Sharing.groups(MOST_LAYERS, 2**10)
    with cheap():
        assert groups.name == "groups-of-1024"


@pytest.mark.parametrize("num_layers", range(1, 13))
def test_every_group_size_is_found_by_the_sharing_of_its_banks(num_layers: int) -> None:
    """Bad input, point 21: names without trying every size."""
    for size in range(2, num_layers):
        assert Sharing.groups(num_layers, size).name == f"groups-of-{size}"


def test_a_model_of_seventy_billion_parameters_can_be_planned() -> None:
    """Bad input, point 21: planning costs nothing, so it is bounded only by what can be listed."""
    config = DecoderConfig(
        vocab_size=32_000,
        context=4096,
        width=8192,
        num_layers=80,
        num_heads=64,
        num_kv_heads=8,
        ffn_width=28_672,
        tie_embeddings=False,
    )
    plan = make_plan([1] * 80)
    assert cost(config, plan).parameters == 68_976_648_192  # LLaMA-2 70B, arXiv 2307.09288
    assert {kind: anchor(kind, config, plan).mismatch for kind in KINDS if kind != "widened"} == {
        "deeper": 0,
        "wider": 0,
        "parameters": 0,
    }


def test_wrong_values_are_shown_short() -> None:
    """Bad input, point 21: a message is a line, whatever was given."""
    tree: Any = "leaf"
    for _ in range(30):
        tree = [tree] * 10
    for value in (HUGE, "x" * 10**6, [1] * 10**6, tree, {str(n): n for n in range(10**5)}):
        assert len(shown(value)) < 1000
    assert shown([3, 0, 1]) == "[3, 0, 1]"
    assert shown("rotary") == "'rotary'"


@pytest.mark.parametrize(
    ("room", "words", "said"),
    [
        ("ilr.commands.sweep", ["s.yaml", "--dry-run", "--cpus=.nan"], "--cpus must be above 0"),
        ("ilr.commands.sweep", ["s.yaml", "--dry-run", "--gpus=.inf"], "--gpus must be at least 0"),
        ("ilr.commands.analyse", ["run", "--tokens=99999999999999999999999"], "--tokens must be at most"),
        ("ilr.commands.evaluate", ["run", "--window=99999999999999999999999"], "--window must be at most"),
        ("ilr.commands.evaluate", ["run", "--batch_size=9999999999999"], "--batch_size must be at most"),
        ("ilr.commands.generate", ["run", "--num_samples=1000000000"], "--num_samples must be at most"),
        ("ilr.commands.generate", ["run", "--seed=-1"], "--seed must be a whole number from 0"),
        ("ilr.commands.board", [".", "--port=-1"], "--port must be a whole number of at least 0"),
    ],
)
def test_numbers_of_every_command_are_bounded(
    room: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input, point 21: one line and status 2, before a run is even looked for."""
    try:
        status = import_module(room).main(words)
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err
