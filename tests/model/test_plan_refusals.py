"""Schedules and sharing that cannot be compiled are refused with what came and what is allowed."""

from typing import Any

import pytest

from ilr.model.plan import make_plan
from ilr.model.sharing import Sharing

BAD_SCHEDULES: list[tuple[Any, int | None, str]] = [
    ([], None, r"schedule is empty; it must be a list .* such as \[3,2,1,1\], or segments such as"),
    ([3, 0, 1], None, r"whole numbers of at least 1, got 0 in \[3, 0, 1\]"),
    ([3, -2, 1], None, r"whole numbers of at least 1, got -2 in \[3, -2, 1\]"),
    ([True, 1], None, r"whole numbers of at least 1, got True in \[True, 1\]"),
    ([2.0, 1], None, r"whole numbers of at least 1, got 2\.0 in"),
    (["3", 1], None, r"whole numbers of at least 1, got '3' in"),
    ([None], None, r"whole numbers of at least 1, got None"),
    ([[1, 2]], None, r"whole numbers of at least 1, got \[1, 2\]"),
    ([3, 2, 1], 4, r"one entry per layer: got 3 entries \[3, 2, 1\] for num_layers 4"),
    ([1] * 5, 4, r"one entry per layer: got 5 entries .* for num_layers 4"),
    ("3,2,1,1", None, r"schedule must be a list .* got '3,2,1,1'"),
    (b"31", None, r"schedule must be a list .* got b'31'"),
    (7, None, r"schedule must be a list .* got 7"),
    (None, None, r"schedule must be a list .* got None"),
    ({"layers": [0]}, None, r"schedule must be a list .* got \{'layers': \[0\]\}"),
    ({1, 2}, None, r"schedule must be a list .* got \{1, 2\}"),
    ([3, {"layers": [1]}], None, r"schedule mixes counts and segments: \[3, .*must be a list"),
    ([{"layers": [0]}, 2], None, r"schedule mixes counts and segments"),
    ([{"layers": [0, 4]}], 4, r"schedule names layer 4, but there are 4 layers \(0 to 3\)"),
    ([{"layers": [-1]}], 4, r"a layer must be a whole number from 0, got -1 in \[-1\]"),
    ([{"layers": [True]}], 4, r"a layer must be a whole number from 0, got True"),
    ([{"layers": [1.0]}], 4, r"a layer must be a whole number from 0, got 1\.0"),
    ([{"layers": ["1"]}], 4, r"a layer must be a whole number from 0, got '1'"),
    ([{"layers": []}], 4, r"layers of a segment must be a non-empty list such as \[1,2\], got \[\]"),
    ([{"layers": "12"}], 4, r"non-empty list such as \[1,2\], got '12'"),
    ([{"layers": b"12"}], 4, r"non-empty list such as \[1,2\], got b'12'"),
    ([{"layers": 1}], 4, r"non-empty list such as \[1,2\], got 1"),
    ([{"layers": [1], "times": 0}], 4, r"times must be a whole number of at least 1, got 0 for layers \[1\]"),
    ([{"layers": [1], "times": -1}], 4, r"at least 1, got -1 for layers"),
    ([{"layers": [1], "times": True}], 4, r"at least 1, got True for layers"),
    ([{"layers": [1], "times": 2.0}], 4, r"at least 1, got 2\.0 for layers"),
    ([{"layers": [1], "times": "2"}], 4, r"at least 1, got '2' for layers"),
    ([{"layers": [1], "sublayers": "mlp"}], 4, r"sublayers must be both, attention or ffn, got 'mlp'"),
    ([{"layers": [1], "sublayers": None}], 4, r"sublayers must be both, attention or ffn, got None"),
    ([{"layers": [1], "sublayers": ["ffn"]}], 4, r"sublayers must be both, attention or ffn, got \['ffn'\]"),
    ([{"layer": [1]}], 4, r"keys layers, times and sublayers; got unknown key 'layer' in"),
    ([{"layers": [1], "repeat": 2}], 4, r"keys layers, times and sublayers; got unknown key 'repeat'"),
    ([{"layers": [1], 5: 2, "x": 1}], 4, r"keys layers, times and sublayers; got unknown key"),
    ([{"times": 2}], 4, r"keys layers, times and sublayers; got no key 'layers' in"),
    ([1], 0, r"num_layers must be a whole number of at least 1, got 0"),
    ([1], True, r"num_layers must be a whole number of at least 1, got True"),
    ([1], "1", r"num_layers must be a whole number of at least 1, got '1'"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("schedule", "num_layers", "words"), BAD_SCHEDULES, ids=repr)
def test_a_bad_schedule_is_refused_in_words(schedule: Any, num_layers: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_plan(schedule, num_layers)


BAD_SHARINGS: list[tuple[Any, str]] = [
    ("both", r"sharing must be none, attention, ffn, all, or a bank index .* got 'both'"),
    ("", r"sharing must be none, attention, ffn, all, .* got ''"),
    (None, r"sharing must be none, .* got None"),
    (True, r"sharing must be none, .* got True"),
    ([0, 0, 0], r"sharing must be none, .* got \[0, 0, 0\]"),
    ({"attention": [0, 0, 0]}, r"sharing must be none, .* got \{'attention': \[0, 0, 0\]\}"),
    ({"attention": [0] * 3, "ffn": [0] * 3, "norm": [0]}, r"sharing must be none, .*'norm'"),
    ({"attention": [0, 1], "ffn": [0, 1]}, r"one bank index per layer: got 2 for num_layers 3"),
    ({"attention": [0] * 4, "ffn": [0] * 4}, r"one bank index per layer: got 4 for num_layers 3"),
    ({"attention": [0] * 3, "ffn": [0] * 2}, r"one attention and one ffn index per layer, got 3 and 2"),
    ({"attention": [0, 2, 0], "ffn": [0] * 3}, r"attention must use every bank index .* got \[0, 2, 0\]"),
    ({"attention": [1, 1, 1], "ffn": [0] * 3}, r"attention must use every bank index .* got \[1, 1, 1\]"),
    ({"attention": [0] * 3, "ffn": [0, -1, 0]}, r"ffn must be whole numbers from 0, got \[0, -1, 0\]"),
    ({"attention": [0] * 3, "ffn": [0, True, 0]}, r"ffn must be whole numbers from 0, got \[0, True, 0\]"),
    ({"attention": [0] * 3, "ffn": [0, 1.0, 0]}, r"ffn must be whole numbers from 0, got \[0, 1\.0, 0\]"),
    ({"attention": "000", "ffn": [0] * 3}, r"attention must be a list of bank indices, got '000'"),
    ({"attention": b"000", "ffn": [0] * 3}, r"attention must be a list of bank indices, got b'000'"),
    ({"attention": [], "ffn": []}, r"attention must be a list of bank indices, got \[\]"),
    ({"attention": 0, "ffn": 0}, r"attention must be a list of bank indices, got 0"),
]


@pytest.mark.parametrize(("sharing", "words"), BAD_SHARINGS, ids=repr)
def test_a_bad_sharing_is_refused_in_words(sharing: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_plan([1, 1, 1], sharing=sharing)


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_a_group_needs_at_least_one_layer(size: Any) -> None:
    with pytest.raises(ValueError, match=f"whole number of at least 1 layers, got {size}"):
        Sharing.groups(4, size)


def test_a_sandwich_needs_three_layers() -> None:
    with pytest.raises(ValueError, match="at least 3 layers, got 2"):
        Sharing.sandwich(2)
