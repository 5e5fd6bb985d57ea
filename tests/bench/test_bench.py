"""`ilr bench`: what counts as a sample, what a worker does, what the figures are made of."""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from oracles import tiny_config

from ilr.bench.clock import Reading, busy_seconds
from ilr.bench.products import KernelFloor, Linear, LinearShape, linear_shapes
from ilr.bench.run import take
from ilr.bench.sampling import Sample, WorkerFailed, ratio, rotated, sample_in_turns, seconds, spread
from ilr.bench.step import random_batch, training_step
from ilr.bench.variant import Variant
from ilr.bench.worker import Job
from ilr.cli import main
from ilr.model.config import Recompute
from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, make_plan
from ilr.training.optimiser import parameter_groups

CPU = torch.device("cpu")
SMALL = ["--model.width", "16", "--model.context", "8", "--data.vocab_size", "32", "--batch_size", "2"]
"""Options of a decoder whose step takes no time."""


def sample(number: int, elapsed: float, *, others: float | None, steps: int = 1) -> Sample:
    """On two processors, both used by the step for as long as it lasted."""
    busy = None if others is None else 2 * elapsed + others
    return Sample(number, steps, Reading(elapsed, 2 * elapsed, busy), processors=2)


# -- samples ---------------------------------------------------------------------------------------------


def test_a_sample_is_dirty_where_others_used_more_than_their_share_of_all_processors() -> None:
    allowed = 0.03 * 1.0 * 2 + 0.02
    assert sample(0, 1.0, others=allowed - 1e-6).clean
    assert not sample(0, 1.0, others=allowed + 1e-6).clean
    assert sample(0, 1.0, others=-0.05).clean  # the two clocks need not agree
    assert sample(0, 1.0, others=None).clean


def test_the_spread_is_that_of_the_clean_samples() -> None:
    times = [1.0, 2.0, 3.0, 4.0, 5.0]
    samples = [sample(n, time, others=0) for n, time in enumerate(times)]
    samples += [sample(5, 100.0, others=50), sample(6, 0.001, others=1)]
    found = seconds(samples)
    assert (found.median, found.q1, found.q3, found.clean, found.taken) == (3, 2, 4, 5, 7)


def test_where_no_sample_is_clean_all_count_and_it_shows() -> None:
    found = spread([(1.0, False), (3.0, False)])
    assert (found.median, found.clean, found.taken) == (2, 0, 2)
    assert (spread([(7.0, True)]).q1, spread([(7.0, True)]).q3) == (7, 7)


def test_a_sample_of_several_steps_counts_one() -> None:
    assert sample(0, 3.0, others=0, steps=4).seconds == 0.75


def test_a_ratio_is_taken_round_by_round_and_clean_where_both_are() -> None:
    upper = [sample(0, 2.0, others=0), sample(1, 30.0, others=0), sample(2, 8.0, others=0)]
    lower = [sample(2, 2.0, others=0), sample(0, 1.0, others=0), sample(1, 1.0, others=9)]
    found = ratio(upper, lower)
    assert (found.median, found.q1, found.q3) == (3.0, 2.5, 3.5)
    assert (found.clean, found.taken) == (2, 3)


def test_every_round_begins_one_further_on() -> None:
    assert [rotated("abc", n) for n in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_rounds_go_on_until_each_has_its_clean_samples() -> None:
    dirty = {("a", 0), ("b", 1), ("b", 2)}
    order: list[tuple[str, int]] = []

    def taker(name: str, number: int) -> Sample:
        order.append((name, number))
        return sample(number, 1.0, others=1.0 if (name, number) in dirty else 0.0)

    found, failures = sample_in_turns({n: partial(taker, n) for n in "ab"}, 2, lambda *_: None)
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 3)]
    assert {name: seconds(taken).clean for name, taken in found.items()} == {"a": 3, "b": 2}
    assert failures == {}


def test_a_machine_that_is_never_quiet_ends_after_three_times_as_many_rounds() -> None:
    found, _ = sample_in_turns({"a": lambda n: sample(n, 1.0, others=1.0)}, 4, lambda *_: None)
    assert len(found["a"]) == 12


def test_a_worker_that_fails_takes_no_further_part() -> None:
    def fails(number: int) -> Sample:
        if number == 1:
            raise WorkerFailed("gone")
        return sample(number, 1.0, others=0)

    takers = {"bad": fails, "good": lambda n: sample(n, 1.0, others=0)}
    found, failures = sample_in_turns(takers, 3, lambda *_: None)
    assert (list(found), len(found["good"]), failures) == (["good"], 3, {"bad": "gone"})


def test_busy_time_leaves_out_idle_and_waiting_and_counts_guests_once() -> None:
    assert busy_seconds("cpu  100 20 30 9999 500 4 5 6 70 8", ticks=100) == 1.65


# -- the step --------------------------------------------------------------------------------------------


def written_out_losses(variant: Variant, steps: int) -> list[float]:
    """Losses of plain AdamW steps, clipped at 1."""
    decoder = Decoder(variant.config, variant.plan)
    config = variant.config
    inputs, targets = random_batch(config.vocab_size, variant.batch_size, config.context, CPU)
    optimizer = torch.optim.AdamW(parameter_groups(decoder, 0.1, None, False), lr=1e-3, betas=(0.9, 0.95))
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(decoder(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        gradients = [one.grad for one in decoder.parameters() if one.grad is not None]
        norm = torch.stack([one.square().sum() for one in gradients]).sum().sqrt()
        for one in gradients:
            one.mul_(min(1.0, 1.0 / float(norm + 1e-6)))
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "plan", [make_plan([3, 1]), make_plan([1, 2], sharing="attention")], ids=lambda plan: plan.label
)
def test_a_step_is_forward_backward_clip_and_adamw(plan: Plan) -> None:
    variant = Variant(tiny_config(plan), plan, batch_size=3)
    step = training_step(variant, CPU)
    assert [step().item() for _ in range(4)] == pytest.approx(written_out_losses(variant, 4), rel=1e-5)


def test_mixed_precision_multiplies_in_bfloat16_and_keeps_weights_in_float32() -> None:
    plan = make_plan([2, 1])
    step = training_step(Variant(tiny_config(plan), plan, "bf16-mixed"), CPU)
    exact = training_step(Variant(tiny_config(plan), plan), CPU)
    assert step().item() != exact().item()
    assert step().item() == pytest.approx(exact().item(), rel=0.02)
    assert {one.dtype for one in step.parameters} == {torch.float32}


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_trains_the_same(recompute: Recompute) -> None:
    plan = make_plan([2, 1])
    both = [Variant(tiny_config(plan), plan, recompute=one) for one in ("none", recompute)]
    kept, recomputed = (training_step(one, CPU) for one in both)
    assert [kept().item() for _ in range(3)] == pytest.approx(
        [recomputed().item() for _ in range(3)], rel=1e-6
    )


# -- the kernels alone -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"ffn": "gelu"}, {"embedding_width": 8}, {"embedding_width": 8, "tie_embeddings": False}],
    ids=str,
)
def test_the_floor_multiplies_what_the_cost_counts(changes: dict[str, object]) -> None:
    plan = make_plan([{"layers": [0], "times": 2, "sublayers": "attention"}, {"layers": [0, 1]}])
    variant = Variant(tiny_config(plan, **changes), plan, batch_size=3)
    attention = 2 * 4 * variant.config.context * variant.config.width  # four visits attend
    counted = cost(variant.config, plan).macs_per_token - attention
    shapes = linear_shapes(variant)
    assert sum(shape.flops * times for shape, times in shapes.items()) == 6 * counted * variant.tokens


def test_the_products_of_a_linear_layer_are_its_forward_and_its_gradients() -> None:
    linear = Linear(LinearShape(5, 3, 4), torch.float32, CPU)
    linear()
    inputs, weight = linear.inputs.requires_grad_(), linear.weight.requires_grad_()
    outputs = F.linear(inputs, weight)
    gradients = torch.autograd.grad(outputs, (inputs, weight), linear.upstream)
    torch.testing.assert_close((linear.outputs, linear.to_inputs, linear.to_weight), (outputs, *gradients))


def test_the_floor_attends_once_for_each_visit_with_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan([{"layers": [0], "times": 2, "sublayers": "attention"}, {"layers": [0, 1]}])
    calls: Counter[tuple[int, ...]] = Counter()
    kernel = F.scaled_dot_product_attention

    def counting(*heads: torch.Tensor, **options: bool) -> torch.Tensor:
        calls[tuple(heads[0].shape)] += 1
        assert options["is_causal"]
        return kernel(*heads, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    KernelFloor(Variant(tiny_config(plan), plan, batch_size=3), CPU)()
    assert calls == {(3, 4, 20, 8): 4}


# -- processes -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_worker_fails_of_is_said_and_the_others_go_on() -> None:
    plan = make_plan([2, 1])
    jobs = {
        "bad": Job("bad", os.strerror),  # not a function of a device
        "good": Job("good", partial(training_step, Variant(tiny_config(plan), plan))),
        "gone": Job("gone", sys.exit),
    }
    said: list[str] = []
    taken, failures = take(jobs, 1, CPU, said.append)
    assert failures["bad"].startswith("TypeError: ")
    assert failures["gone"] == "its process ended with status 1"
    assert list(taken) == ["good"]
    assert f"1/3 bad: {failures['bad']}" in said


def test_the_command_s_figures_follow_from_time_and_cost(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--schedules", "[2,1]", *SMALL, "--samples", "1", "--json"]) == 0
    out, err = capfd.readouterr()
    printed = json.loads(out)
    assert "of 1 clean samples" in err
    (row,) = printed["rows"]
    plan = make_plan([2, 1])
    config = tiny_config(
        plan, vocab_size=32, context=8, width=16, num_kv_heads=None, ffn_width=None, init_std=0.02
    )
    spent = cost(config, plan)
    speed = row["tokens_per_step"] / row["seconds_per_step"]["median"]
    assert (row["label"], row["tokens_per_step"], row["batch_size"]) == ("2-1", 16, 2)
    assert (row["precision"], row["compile"], row["recompute"]) == ("32-true", "none", "none")
    assert row["tokens_per_second"] == pytest.approx(speed)
    assert row["flops_per_second"] == pytest.approx(speed * spent.flops_per_token)
    peak = printed["peaks_flops_per_second"]["32-true"]["median"]
    assert row["peak_share"] == pytest.approx(row["flops_per_second"] / peak)
    assert row["causal_peak_share"] == pytest.approx(speed * spent.causal_flops_per_token / peak)
    assert (row["time_ratio_to_first"]["median"], row["flops_ratio_to_first"]) == (1, 1)
    assert row["compile_seconds"] == 0
    assert row["first_loss"] == pytest.approx(written_out_losses(Variant(config, plan, batch_size=2), 1)[0])
    assert row["peak_memory_kind"] == "resident growth"
    assert 0 < row["peak_memory_bytes"] < 2**28
    assert printed["failures"] == []


# -- wrong use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "no schedule given (--schedules"),
        (["--schedules", "[0,1]"], "got 0 in [0, 1]"),
        (["--schedules", "[1,1", "[1,1]"], "--schedules is not YAML"),
        (["--schedules", "[1,1]", "--sharing", "some"], "none, attention, ffn, all"),
        (["--schedules", "[1,1]", "--precision", "fp8"], "--precision must be one of 32-true, bf16-mixed"),
        (["--schedules", "[1,1]", "--compile", "all"], "--compile must be one of none, sublayers, whole"),
        (["--schedules", "[1,1]", "--recompute", "x"], "--recompute must be one of none, selective, full"),
        (["--schedules", "[1,1]", "--positions", "x"], "--positions must be one of rope, alibi"),
        (["--schedules", "[1,1]", "--batch_size", "8", "0"], "--batch_size must be a whole number"),
        (["--schedules", "[1,1]", "--samples", "0"], "--samples must be a whole number of at least 1, got 0"),
        (["--schedules", "[1,1]", "--samples", "x"], "samples"),
        (["--schedules", "[1,1]", "--device", "abacus"], "--device 'abacus' cannot be used"),
        (["--schedules", "[1,1]", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--schedules", "[1,1]", "--fast"], "--fast"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_gets_one_message(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert named in error
    assert len(error.splitlines()) == 1


def test_every_combination_is_measured_once_in_the_order_asked_for() -> None:
    from ilr.commands.bench import variants

    given = {
        "config": ["configs/paper-small.yaml"],
        "schedules": ["[1,1,1,1]", "[2,1,1,1]", "[1,1,1,1]"],
        "sharing": ["none", "all"],
        "batch_size": ["2"],
        "positions": ["rope", "alibi"],
    }
    found = variants(given)
    assert [one.label for one in found] == [
        f"{schedule}{sharing}{positions}"
        for schedule in ("1-1-1-1", "2-1-1-1")
        for sharing in ("", "+all")
        for positions in ("", "+alibi")
    ]
    assert {(one.precision, one.tokens, one.config.vocab_size) for one in found} == {
        ("bf16-mixed", 2048, 1024)
    }


def test_a_mistake_shows_before_torch_is_loaded() -> None:
    program = (
        "import sys; from ilr.commands.bench import variants\n"
        "variants({'schedules': ['[2,1]']}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
