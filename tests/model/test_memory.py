"""What no memory of the machine could hold is refused before anything is allocated; planning it stays free."""

import tracemalloc
from typing import Any

import pytest
import torch
from jsonargparse import Namespace

import ilr.model.memory
from ilr.bench.variant import Variant
from ilr.commands.plan import main as plan_main
from ilr.data.module import TextData
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.memory import Use, check_memory, needed_bytes, training_use
from ilr.model.plan import make_plan
from ilr.training.bounds import check_planned_memory, check_seeds, check_trainer_numbers
from ilr.training.module import LanguageModel
from ilr.training.optimiser import check_optimisation

CONFIG = DecoderConfig(vocab_size=100, context=16, width=8, num_layers=2, num_heads=2)
PLAN = make_plan([2, 1])


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a million bytes."""
    monkeypatch.setattr(ilr.model.memory, "machine_bytes", lambda: 10**6)


def test_training_needs_four_numbers_a_weight_and_what_the_backward_pass_reads() -> None:
    """Bad input, point 21: by the closed-form cost, equal to the weights of the built model."""
    parameters = sum(weight.numel() for weight in Decoder(CONFIG, PLAN).parameters())
    weights, activations = needed_bytes(CONFIG, PLAN, training_use(3, 16, "32-true", "none", "none"))
    assert weights == 4 * 4 * parameters
    assert activations == 3 * 16 * (cost(CONFIG, PLAN).activation_bytes_per_token + 16)
    assert needed_bytes(CONFIG, PLAN, Use())[0] == 4 * parameters
    streams = needed_bytes(CONFIG, PLAN, training_use(3, 16, "bf16-true", "full", "none", processes=2))
    assert streams == (2 * 2 * 4 * parameters, 2 * 3 * 16 * (3 * 8 * 2 + 16))


@pytest.mark.parametrize(
    ("changes", "rows", "named"),
    [
        ({"width": 2**20}, 8, "--model.width 1048576"),
        ({"ffn_width": 2**30}, 8, "--model.ffn_width 1073741824"),
        ({"vocab_size": 2**31 - 1}, 8, "the vocabulary 2147483647"),
        ({"context": 2**31 - 1}, 8, "--model.context 2147483647"),
        ({"context": 2**20, "positions": "alibi"}, 1, "--model.context 1048576"),
        ({"context": 2**31 - 1, "positions": "learned"}, 1, "--model.context 2147483647"),
        ({}, 10**9, "--data.batch_size 1000000000"),
    ],
    ids=str,
)
def test_what_cannot_be_held_is_refused_with_the_number_that_makes_it_so(
    changes: dict[str, Any], rows: int, named: str
) -> None:
    """Bad input, point 21: the message names the option furthest above its default."""
    config = DecoderConfig(**{**vars(CONFIG), **changes})
    use = training_use(rows, config.context, "32-true", "none", "none")
    with pytest.raises(InputError, match=r"does not fit.*64 GB of memory") as caught:
        check_memory(config, PLAN, use, 64 * 10**9)
    assert str(caught.value).endswith(named)


def test_only_what_could_be_held_by_no_means_is_refused() -> None:
    """Bad input, point 21: exactly up to the memory that there is."""
    use = training_use(3, 16, "32-true", "full", "none")
    needed = sum(needed_bytes(CONFIG, PLAN, use))
    check_memory(CONFIG, PLAN, use, needed)
    with pytest.raises(InputError, match="does not fit"):
        check_memory(CONFIG, PLAN, use, needed - 1)


def test_a_decoder_that_no_memory_holds_is_refused_before_it_is_allocated() -> None:
    """Bad input, point 21: on the meta device, where nothing is allocated, it is made."""
    huge = DecoderConfig(**{**vars(CONFIG), "width": 2**20})
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"does not fit: .*--model\.width 1048576"):
            Decoder(huge, PLAN)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    with torch.device("meta"):
        assert Decoder(huge, PLAN).embedding.weight.shape == (100, 2**20)


@pytest.mark.usefixtures("small_machine")
def test_training_is_refused_before_data_are_prepared() -> None:
    """Bad input, point 21: with the least vocabulary that a tokenizer has, as a small text gives a small one."""
    cfg = Namespace(
        data=Namespace(batch_size=4, vocab_size=2**22),
        model=Namespace(vocab_size=None, recompute="none", compile="none"),
        trainer=Namespace(accelerator="cpu", precision="32-true"),
    )
    check_planned_memory(cfg, CONFIG, PLAN)
    cfg.data.batch_size = 10**6
    with pytest.raises(InputError, match=r"--data\.batch_size 1000000"):
        check_planned_memory(cfg, CONFIG, PLAN)
    cfg.trainer.accelerator = "gpu"  # its memory is another's
    check_planned_memory(cfg, CONFIG, PLAN)


@pytest.mark.usefixtures("small_machine")
def test_evaluation_batches_that_cannot_be_held_are_refused() -> None:
    """Bad input, point 21: their ids alone."""
    TextData("pydoc", context=16, eval_batch_size=100)
    for options in ({"eval_batch_size": 10**5}, {"eval_contexts": [10**6]}):
        with pytest.raises(InputError, match="evaluation batches of"):
            TextData("pydoc", context=16, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_workers": 10**6}, r"--data\.num_workers must be at most"),
        ({"vocab_size": 10**9}, r"--data\.vocab_size must be at most 4,194,304"),
        ({"vocab_size": 10**30}, r"--data\.vocab_size must be at most"),
        ({"seed": 2**32}, r"--data\.seed must be at most 4,294,967,295"),
        ({"split_seed": 10**30}, r"--data\.split_seed must be at most"),
        ({"batch_size": 10**30}, r"--data\.batch_size must be at most"),
        ({"max_train_tokens": 10**30}, r"--data\.max_train_tokens must be at most"),
        ({"max_documents": True}, r"--data\.max_documents must be an integer of at least 1, got True"),
        ({"eval_contexts": [10**12]}, r"--data\.eval_contexts must be at most"),
    ],
    ids=str,
)
def test_counts_of_the_data_are_bounded(options: dict[str, Any], words: str) -> None:
    """Bad input, point 21: before any process is started or memory reserved."""
    with pytest.raises(InputError, match=words):
        TextData("pydoc", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": float("inf")}, "learning_rate must be finite"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
        ({"learning_rate": 1e39}, "learning_rate must be finite"),
        ({"warmup_ratio": float("nan")}, "warmup_ratio must be between 0 and 1"),
        ({"warmup_steps": 10**30}, "warmup_steps must be at most"),
        ({"extra_steps": 10**30}, "extra_steps must be at most"),
        ({"weight_decay": float("inf")}, "weight_decay must be at least 0 and finite"),
        ({"repeated_weight_decay": -0.1}, "repeated_weight_decay must be at least 0"),
        ({"adam_eps": float("nan")}, "adam_eps must be at least 0"),
        ({"betas": (1.0, 1.0)}, r"betas must be at least 0 and below 1, got 1\.0"),
        ({"betas": (0.9, -0.1)}, "betas must be at least 0 and below 1"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"init_seed": -1}, "init_seed must be a whole number from 0 to 4,294,967,295"),
        ({"dropout_seed": 2**32}, "dropout_seed must be a whole number from 0 to"),
    ],
    ids=str,
)
def test_the_optimisers_numbers_are_bounded(options: dict[str, Any], words: str) -> None:
    """Bad input, point 21: what no generator or optimiser takes, and what is infinite in float32."""
    with pytest.raises(InputError, match=words):
        LanguageModel(schedule=[1] * 4, **options)


def test_the_optimisers_numbers_at_the_edge_are_taken() -> None:
    """Bad input, point 21: nothing that torch can use is refused."""
    check_optimisation(3e38, 0.0, 0, 1.0, 0, 0.0, 0.0, (0.0, 0.0), 0.0)
    module = LanguageModel(schedule=[1] * 4, init_seed=2**32 - 1, dropout_seed=0)
    assert (module.init_seed, module.dropout_seed) == (2**32 - 1, 0)


TRAINER = {
    "accumulate_grad_batches": 1,
    "num_nodes": 1,
    "max_steps": -1,
    "max_epochs": None,
    "min_steps": None,
    "min_epochs": None,
    "gradient_clip_val": 1.0,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accumulate_grad_batches", 0),
        ("accumulate_grad_batches", -1),
        ("num_nodes", 0),
        ("max_steps", 0),
        ("max_steps", -2),
        ("max_steps", 10**30),
        ("max_epochs", 0),
        ("min_steps", -1),
        ("gradient_clip_val", float("nan")),
        ("gradient_clip_val", -1.0),
        ("gradient_clip_val", float("inf")),
    ],
)
def test_the_trainers_numbers_are_bounded(name: str, value: Any) -> None:
    """Bad input, point 21: zero accumulation and the like, by the option's name."""
    check_trainer_numbers(Namespace(**TRAINER))
    with pytest.raises(InputError, match=f"--trainer.{name}"):
        check_trainer_numbers(Namespace(**TRAINER | {name: value}))


@pytest.mark.parametrize("name", ["seed_everything", "model.init_seed", "model.dropout_seed", "data.seed"])
@pytest.mark.parametrize("value", [-1, 2**32, 10**30])
def test_every_seed_of_a_training_is_bounded(name: str, value: int) -> None:
    """Bad input, point 21: seeds −1 and 1e30."""
    cfg = Namespace(
        seed_everything=True,
        model=Namespace(init_seed=None, dropout_seed=7),
        data=Namespace(seed=2**32 - 1),
    )
    check_seeds(cfg)
    cfg[name] = value
    with pytest.raises(InputError, match=f"--{name} must be a whole number from 0 to"):
        check_seeds(cfg)


def test_a_bench_variant_knows_what_it_needs() -> None:
    """Bad input, point 21: the measurement's processes ask the same question."""
    variant = Variant(CONFIG, PLAN, "bf16-mixed", "none", "full", 5)
    assert variant.use == training_use(5, 16, "bf16-mixed", "full", "none")
    with pytest.raises(InputError, match="--batch_size must be a whole number of at least 1"):
        Variant(CONFIG, PLAN, batch_size=0)


def test_planning_what_no_machine_holds_is_free(capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input, point 21: `ilr plan` of a model of a quadrillion parameters prints its cost."""
    assert plan_main(["[1,1,1,1]", "--model.width", "16777216"]) == 0
    width = 2**24
    parameters = 4 * (4 * width**2 + 12 * width**2 + 2 * width) + width + 4096 * width
    assert f"{parameters:,}" in capsys.readouterr().out
