"""Damaged notes, summaries and sweep files: a result, or one line; and what a sweep takes for the same run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from damage_cases import KINDS, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep_cases import BASE, finish, sweep_of, write_sweep

from ilr.commands import sweep as command
from ilr.errors import InputError
from ilr.sweep.file import ARM_KEYS, KEYS, read_sweep
from ilr.sweep.runs import make_sweep
from ilr.sweep.state import note_plan, record_of, settle, state_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_note_blocks_nothing(kind: str, tmp_path: Path) -> None:
    """Right numbers, point 20: the run's own directory is the truth."""
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]])
    for run in sweep.runs:
        finish(sweep, run)
    path = record_of(sweep, sweep.runs[0]).path
    path.write_bytes(damaged(kind, path.read_bytes()))
    assert [state_of(sweep, run) for run in settle(sweep).runs] == ["finished", "finished"]
    note_plan(sweep, sweep.runs)
    assert record_of(sweep, sweep.runs[0]).read()["identity"] == sweep.runs[0].identity


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_summary_is_one_run_less(kind: str, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]], learning_rates=[1e-3, 2e-3])
    for run in sweep.runs:
        finish(sweep, run)
    path = sweep.runs[1].directory.summary_path
    path.write_bytes(damaged(kind, path.read_bytes()))
    assert [state_of(sweep, run) for run in settle(sweep).runs] == [
        "finished",
        "damaged",
        "finished",
        "finished",
    ]


def test_a_sweep_ends_with_status_1_and_names_the_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 20."""
    sweep = sweep_of(tmp_path, arms=[[1, 1], [2, 1]])
    for run in sweep.runs:
        finish(sweep, run)
    sweep.runs[1].directory.summary_path.write_text('{"status": 3}')
    asked = [str(sweep.file.path), "--output", str(sweep.directory), "--engine", "local"]
    assert command.main(asked) == 1
    said = capsys.readouterr().out
    assert "2 runs, 1 done, 0 to do, 1 damaged" in said
    assert f"{sweep.runs[1].directory.summary_path}: status: got 3, allowed: 'finished'" in said
    assert command.main([*asked, "--dry-run"]) == 0


def test_other_words_for_a_run_are_one_run(tmp_path: Path) -> None:
    """Right numbers, point 8: nulls filled in, numbers as numbers, a text by its content."""
    (tmp_path / "one.txt").write_text("a few words.\n" * 99)
    (tmp_path / "two.txt").write_text("a few words.\n" * 99)
    same: list[dict[str, Any]] = [
        {}, {"model.ffn_width": 64}, {"model.num_kv_heads": 2}, {"trainer.precision": "32"},
        {"data.corpus": str(tmp_path / "two.txt")}, {"model.weight_decay": 0.1}, {"data.num_workers": 2},
        {"trainer.max_time": None}, {"save_every": 7}, {"model.dropout": 0},
    ]  # fmt: skip
    other: list[dict[str, Any]] = [
        {"trainer.max_time": "00:00:01:00"}, {"val_every": 5}, {"trainer.limit_train_batches": 2},
        {"trainer.callbacks": [{"class_path": "mine.Stop"}]}, {"data.document": "line"}, {"model.ffn_width": 63},
    ]  # fmt: skip
    base = {**BASE, "data": {**BASE["data"], "corpus": str(tmp_path / "one.txt")}}
    sweep = sweep_of(tmp_path, base, arms=[{"schedule": [1, 1], "set": each} for each in [*same, *other]])
    assert len(sweep.runs) == 1 + len(other)
    assert sweep.runs[0].name == "1-1-s0"


def test_a_corpus_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    """Right numbers, points 8 and 20."""
    with pytest.raises(InputError, match=r"nowhere\.txt"):
        sweep_of(tmp_path, arms=[{"schedule": [1, 1], "set": {"data.corpus": "nowhere.txt"}}])


WRONG = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([10**30, 1e300, float("nan"), float("inf"), "", "x", "every", "all", "none", "[1, 1]"])
    | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ARM_KEYS, "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
OPTIONS = [
    "model.width", "model.learning_rate", "model.betas", "model.sharing", "model.schedule", "model.dropout",
    "val_every",
    "data.batch_size", "data.corpus", "data.splits", "data.tokenizer", "data.vocab_size", "data.document",
    "trainer.max_steps", "trainer.max_epochs", "trainer.devices", "trainer.num_nodes", "trainer.precision",
    "trainer.accumulate_grad_batches", "trainer.callbacks", "trainer.max_time", "trainer.gradient_clip_val",
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    top=st.dictionaries(st.sampled_from(KEYS), WRONG, max_size=2),
    arm=st.dictionaries(st.sampled_from(ARM_KEYS), WRONG, max_size=2),
    options=st.dictionaries(st.sampled_from(OPTIONS), WRONG, max_size=2),
    held=st.sampled_from(["tokens", "flops"]),
)
def test_wrong_types_in_a_sweep_file_give_a_sweep_or_one_line(
    top: dict[str, Any], arm: dict[str, Any], options: dict[str, Any], held: str, tmp_path: Path
) -> None:
    """Right numbers, point 20."""
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    arms = [[1, 1], {"schedule": [2, 1], "set": options}, {"schedule": [1, 2], **arm}]
    tree = {"base": "base.yaml", "held_equal": held, "arms": arms, **top}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(tree))
    try:
        sweep = make_sweep(read_sweep(path), tmp_path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
        json.dumps([run.identity for run in sweep.runs])
    assert "\n" not in message


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40) | WRONG.map(lambda tree: yaml.safe_dump(tree).encode()))
def test_any_bytes_as_a_sweep_file_or_its_base_give_one_line(content: bytes, tmp_path: Path) -> None:
    """Right numbers, point 20."""
    path = write_sweep(tmp_path, arms=[[1, 1]])
    for place in (path, tmp_path / "base.yaml"):
        kept = place.read_bytes()
        place.write_bytes(content)
        try:
            make_sweep(read_sweep(path), tmp_path)
        except InputError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message
        place.write_bytes(kept)
