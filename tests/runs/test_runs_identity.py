"""When two runs are the same: exactly where their numbers are, over every option of `fit`."""

from contextlib import ExitStack
from typing import Any

import pytest

from ilr.commands.train import TrainingCLI
from ilr.runs.identity import BY_CONTENT, NO_NUMBER, NORMALISED, SEEDS, differences, digest, identity
from ilr.runs.options import defaults_of

BASE: dict[str, Any] = {
    "model.schedule": [2, 1], "model.num_layers": 2, "model.width": 16, "model.num_heads": 2, "model.context": 16,
    "data.batch_size": 2, "trainer.max_epochs": -1, "trainer.max_steps": 10, "val_every": 4,
}  # fmt: skip
STOP = {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val/loss"}}
LOOK = {"class_path": "lightning.pytorch.callbacks.LearningRateMonitor"}
MIXED = {"class_path": "lightning.pytorch.plugins.MixedPrecision", "init_args": {"precision": "16-mixed"}}

CHANGES: list[tuple[str, Any]] = [
    ("model.schedule", [1, 1]), ("model.schedule", [1, 2]), ("model.sharing", "attention"), ("model.sharing", "all"),
    ("model.learning_rate", 1e-3), ("model.lr_schedule", "constant"), ("model.warmup_ratio", 0.2),
    ("model.warmup_steps", 3), ("model.min_lr_ratio", 0.0), ("model.extra_steps", 5), ("model.betas", [0.9, 0.99]),
    ("model.adam_eps", 1e-6), ("model.weight_decay", 0.0), ("model.repeated_weight_decay", 0.05),
    ("model.decay_norms", True), ("model.context", 8), ("model.width", 32), ("model.num_heads", 4),
    ("model.num_kv_heads", 1), ("model.ffn_width", 63), ("model.ffn", "gelu"), ("model.positions", "alibi"),
    ("model.rope_theta", 500.0), ("model.tie_embeddings", False), ("model.embedding_width", 8),
    ("model.injection", "add"), ("model.dropout", 0.1), ("model.norm_eps", 1e-3), ("model.init_std", 0.1),
    ("model.residual_init", "layers"), ("model.residual_init", "depth"), ("data.batch_size", 3),
    ("trainer.max_steps", 9), ("trainer.max_epochs", 2), ("trainer.max_time", "00:00:00:01"),
    ("trainer.limit_train_batches", 1), ("trainer.limit_train_batches", 0.5), ("trainer.limit_val_batches", 1),
    ("trainer.limit_test_batches", 0.5), ("trainer.overfit_batches", 1), ("trainer.accumulate_grad_batches", 2),
    ("trainer.gradient_clip_val", 0.1), ("trainer.gradient_clip_val", None), ("trainer.precision", "64-true"),
    ("trainer.precision", "bf16"), ("trainer.devices", 2), ("trainer.num_nodes", 2), ("trainer.callbacks", [STOP]),
    ("trainer.callbacks", ["mine.Callback"]), ("trainer.plugins", [MIXED]), ("val_every", 3),
]  # fmt: skip
"""Each changes a number of a run of BASE."""

SAME: list[tuple[str, Any]] = [
    ("model.schedule", [{"layers": [0, 0, 1]}]), ("model.schedule", [{"layers": [0], "times": 2}, {"layers": [1]}]),
    ("model.sharing", {"attention": [0, 1], "ffn": [0, 1]}), ("model.ffn_width", 64), ("model.num_kv_heads", 2),
    ("model.embedding_width", 16), ("model.betas", (0.9, 0.95)), ("model.learning_rate", "3e-3"),
    ("model.repeated_weight_decay", 0.1), ("model.val_precision", "32-true"), ("model.dropout", 0),
    ("trainer.precision", 32), ("trainer.precision", "32"), ("trainer.precision", None), ("trainer.devices", 1),
    ("trainer.limit_train_batches", 1.0), ("trainer.limit_val_batches", 1.0), ("trainer.limit_test_batches", 1.0),
    ("trainer.overfit_batches", 0), ("trainer.gradient_clip_val", 1), ("trainer.max_epochs", None),
    ("trainer.min_steps", 5), ("trainer.min_epochs", 1), ("trainer.callbacks", [LOOK]), ("trainer.callbacks", []),
    ("trainer.plugins", ["lightning.pytorch.plugins.AsyncCheckpointIO"]),
    ("model.warmup_steps", 0), ("model.warmup_ratio", 0.04),  # half a step, and less
    ("data.vocab_size", 4096), ("trainer.accumulate_grad_batches", 1),
]  # fmt: skip
"""Each is another word for what a run of BASE has, or touches nothing in it."""


def of(text: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    options = {**BASE, **{name.replace("__", "."): value for name, value in changes.items()}}
    return identity(options, text or {})


@pytest.fixture(scope="module")
def options_of_fit() -> dict[str, Any]:
    """Every option of the training command with its default, as its parser has them."""

    class Only(TrainingCLI):
        def parse_arguments(self, parser: Any, args: Any) -> None:
            command = parser._subcommands_action.choices["fit"]
            found.update(vars(command.get_defaults().as_flat()))
            raise InterruptedError

    found: dict[str, Any] = {}
    with pytest.raises(InterruptedError):
        Only(["fit"], ExitStack())
    return found


def test_every_option_of_fit_is_classified_once(options_of_fit: dict[str, Any]) -> None:
    """Right numbers, point 8: a new option fails here until it is said whether it changes a number."""
    tables = (NO_NUMBER, BY_CONTENT, NORMALISED, SEEDS)
    counts = {name: sum(name in table for table in tables) for name in options_of_fit}
    assert {name for name, count in counts.items() if count != 1} == set()
    assert set().union(*tables) == set(options_of_fit)


def test_every_option_that_counts_is_tried(options_of_fit: dict[str, Any]) -> None:
    """Right numbers, point 8."""
    tried = {name for name, _ in (*CHANGES, *SAME)}
    # A layer that no schedule names changes nothing; see below where it does.
    assert NORMALISED - tried == {"model.num_layers"}


@pytest.mark.parametrize(("name", "value"), CHANGES, ids=str)
def test_what_changes_a_number_changes_the_identity(name: str, value: Any) -> None:
    """Right numbers, point 8."""
    assert of(**{name: value}) != of()


@pytest.mark.parametrize(("name", "value"), SAME, ids=str)
def test_another_word_for_the_same_changes_nothing(name: str, value: Any) -> None:
    """Right numbers, point 8."""
    assert list(differences(of(**{name: value}), of())) == []


@pytest.mark.parametrize("name", sorted(NO_NUMBER | BY_CONTENT | SEEDS))
def test_seeds_paths_and_what_is_only_seen_change_nothing(name: str) -> None:
    """Right numbers, point 8: a text counts by its content, which is given beside the options."""
    assert of(**{name: 7 if name.endswith("vocab_size") else "anything else"}) == of()


def test_an_unknown_option_counts(options_of_fit: dict[str, Any]) -> None:
    """Right numbers, point 8: what nobody has classified is taken to change a number."""
    assert of(**{"trainer.of_tomorrow": 3}) != of()
    assert of(**{"trainer.of_tomorrow": None}) == of()


def test_the_defaults_of_the_parser_are_those_of_an_identity(options_of_fit: dict[str, Any]) -> None:
    """Right numbers, point 8: an option given with its default and one not given are one."""
    asked = {"model.schedule": [3, 2, 1, 1]}
    assert list(differences(identity(options_of_fit, {}), identity(asked, {}))) == []
    for section in ("model", "data"):
        for key, default in defaults_of(section).items():
            if f"{section}.{key}" in options_of_fit:
                assert options_of_fit[f"{section}.{key}"] == default, key


@pytest.mark.parametrize(
    ("needed", "name", "value"),
    [
        ({"model.positions": "alibi"}, "model.rope_theta", 500.0),
        ({"model.lr_schedule": "constant"}, "model.min_lr_ratio", 0.5),
        ({"model.lr_schedule": "constant"}, "model.extra_steps", 5),
        ({"model.warmup_steps": 2}, "model.warmup_ratio", 0.5),
        ({"model.weight_decay": 0.0}, "model.decay_norms", True),
        ({"model.schedule": [1, 1]}, "model.repeated_weight_decay", 0.5),
        ({"model.schedule": [1, 1]}, "model.injection", "add"),
        ({"val_every": 10}, "val_every", 1000),
        ({"model.warmup_ratio": 0.2}, "model.warmup_steps", 2),
        ({"model.lr_schedule": "constant"}, "model.warmup_steps", 1),
        ({"trainer.max_epochs": -1}, "trainer.max_epochs", None),
    ],
)
def test_an_option_without_effect_does_not_count(needed: dict[str, Any], name: str, value: Any) -> None:
    """Right numbers, point 8."""
    assert of(**needed) == of(**{**needed, name: value})


@pytest.mark.parametrize(
    ("needed", "name", "value"),
    [
        ({"trainer.callbacks": [STOP]}, "trainer.min_steps", 8),
        ({"trainer.max_epochs": 1}, "model.warmup_ratio", 0.04),
        ({"model.warmup_steps": 0}, "model.warmup_steps", 1),
        ({"trainer.max_time": "00:00:00:01"}, "trainer.min_epochs", 2),
        ({"trainer.precision": "bf16-true"}, "model.val_precision", "32-true"),
        ({"model.residual_init": "layers", "model.schedule": [{"layers": [0, 1]}]}, "model.num_layers", 3),
    ],
)
def test_an_option_with_effect_beside_another_counts(needed: dict[str, Any], name: str, value: Any) -> None:
    """Right numbers, point 8."""
    assert of(**needed) != of(**{**needed, name: value})


def test_the_digest_is_of_values_and_not_of_their_order() -> None:
    """Right numbers, point 8."""
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})
