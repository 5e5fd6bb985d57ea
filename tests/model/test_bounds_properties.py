"""Whatever numbers and trees are given, the outcome is a result or one line, in bounded time and memory."""

import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ilr.bounds import MOST_VISITS
from ilr.commands import anchors as anchors_command
from ilr.commands import plan as plan_command
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import Segment, make_plan
from ilr.sweep.generators import FAMILIES, LARGEST_FAMILY, generated

NUMBERS = (
    st.integers(-2, 40)
    | st.integers()
    | st.sampled_from([0, 1, 2**16, 2**31, 2**32, 2**63, 10**30, 10**4000])
    | st.floats()
    | st.booleans()
    | st.none()
)
WORDS = st.sampled_from(
    ["", "both", "ffn", "none", "all", "rope", "alibi", "x", "٣", "1e30", "\0"]
) | st.text(max_size=5)
TREES = st.recursive(
    NUMBERS | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["layers", "times", "sublayers", "attention", "ffn"]) | WORDS, inner, max_size=3
        )
    ),
    max_leaves=12,
)
SEGMENTS = st.fixed_dictionaries(
    {"layers": st.lists(st.integers(-1, 12) | NUMBERS, max_size=5)},
    optional={"times": st.integers(0, 5) | NUMBERS, "sublayers": WORDS},
)
SCHEDULES = st.lists(st.integers(0, 9) | NUMBERS, max_size=6) | st.lists(SEGMENTS, max_size=4) | TREES


def is_a_line(error: InputError) -> None:
    """A message is as short as a line of a terminal's scroll-back may be."""
    assert 0 < len(str(error)) < 4000


LIMITED = settings(max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.too_slow])


@LIMITED
@given(
    st.fixed_dictionaries(
        {"vocab_size": st.integers(1, 99) | NUMBERS},
        optional={
            name: NUMBERS | WORDS | TREES
            for name in DecoderConfig.__dataclass_fields__
            if name != "vocab_size"
        },
    )
)
def test_any_sizes_and_choices_make_a_config_or_one_line(fields: dict[str, Any]) -> None:
    """Bad input, point 21: and what is made can be counted, as whole numbers."""
    try:
        config = DecoderConfig(**fields)
    except InputError as error:
        is_a_line(error)
        return
    spent = cost(config, make_plan([1], config.num_layers) if config.num_layers == 1 else block(config))
    assert spent.parameters >= config.vocab_size * config.sizes.embedding


def block(config: DecoderConfig) -> Any:
    """The unrepeated plan of a config."""
    return make_plan([Segment(tuple(range(config.num_layers)))], config.num_layers)


@LIMITED
@given(SCHEDULES, NUMBERS, WORDS | TREES)
def test_any_schedule_and_sharing_make_a_plan_or_one_line(
    schedule: Any, num_layers: Any, sharing: Any
) -> None:
    """Bad input, point 21: a plan that is made reads its own schedule back."""
    for layers, shared in ((num_layers, sharing), (None, "none"), (None, sharing)):
        try:
            plan = make_plan(schedule, layers, shared)
        except InputError as error:
            is_a_line(error)
            continue
        assert 1 <= plan.depth <= MOST_VISITS
        assert make_plan(plan.schedule, plan.num_layers, plan.sharing) == plan
        assert sum(plan.times_per_layer) == plan.depth


@settings(LIMITED, max_examples=60)
@given(
    st.sampled_from(FAMILIES) | WORDS,
    st.integers(1, 20) | st.sampled_from([0, -1, 2**16, 10**30, True]),
    st.integers(1, 40) | st.none() | st.sampled_from([0, -1, 2**16, 10**30, True]),
)
def test_any_family_is_listed_or_refused(family: Any, num_layers: Any, depth: Any) -> None:
    """Bad input, point 21: `{generate: all, depth: 30}` with many layers, and every other."""
    try:
        found = list(generated(family, num_layers, depth, "both"))
    except InputError as error:
        is_a_line(error)
        return
    assert len(found) <= LARGEST_FAMILY
    assert all(sum(times) == (num_layers + 1 if depth is None else depth) for times in found)
    assert len({tuple(times) for times in found}) == len(found)


OPTIONS = {
    "model.width": NUMBERS,
    "model.num_heads": NUMBERS,
    "model.num_layers": NUMBERS,
    "model.ffn_width": NUMBERS,
    "model.dropout": NUMBERS,
    "model.init_std": NUMBERS,
    "model.positions": WORDS,
    "data.vocab_size": NUMBERS,
    "sharing": WORDS | TREES,
}
"""Options that `ilr plan` and `ilr anchors` have in common."""


def text(value: Any) -> str:
    """A value as an option's word; huge numbers as their digits would be."""
    try:
        word = value if isinstance(value, str) else json.dumps(value)
    except ValueError:
        return "9" * 5000
    return word.replace("\0", "")


@pytest.mark.parametrize("command", [plan_command, anchors_command], ids=["plan", "anchors"])
@settings(LIMITED, max_examples=40)
@given(schedule=SCHEDULES, options=st.fixed_dictionaries({}, optional=OPTIONS))
def test_any_command_line_ends_with_a_result_or_one_line(
    command: Any, schedule: Any, options: dict[str, Any]
) -> None:
    """Bad input, point 21: `ilr plan` and `ilr anchors`, with status 0 or 2."""
    words = [text(schedule), *(f"--{name}={text(value)}" for name, value in options.items())]
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            status = command.main(["--json", *words])
        except SystemExit as end:
            status = end.code
    assert status in (0, 2)
    if status == 0:
        json.loads(printed.getvalue())
    else:
        assert said.getvalue().startswith("error: ")
        assert not printed.getvalue()
