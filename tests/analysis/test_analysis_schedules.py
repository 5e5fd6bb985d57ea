"""Schedules at test time: each as if run alone, paired by document, and the choice among them."""

from itertools import product

import numpy as np
import pytest
import torch
from analysis_cases import CPU, batches, tiny_decoder

from ilr.analysis.batches import first_tokens
from ilr.analysis.choice import Landscape, best_within, front
from ilr.analysis.prefixes import final_states
from ilr.analysis.schedules import (
    Row,
    evaluate_schedules,
    grid_plans,
    paired_difference,
)
from ilr.errors import InputError
from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.metrics import IGNORED, token_nll
from ilr.model.plan import Segment, make_plan

TRAINED = make_plan([2, 1, 1, 3])


def mixed_plans() -> list:
    short = [make_plan(list(times)) for times in product((1, 2), (1, 3), (2,), (1, 2))]
    segments = [
        [Segment((0, 1), 2), Segment((2, 3))],
        [Segment((0,)), Segment((1, 2), 3), Segment((3,))],
        [Segment((0,)), Segment((0,)), Segment((1, 2, 3))],
        [Segment((0,), 2), Segment((1, 2, 3))],
        [Segment((0, 1), 1, "attention"), Segment((1, 0, 3))],
    ]
    return [*short, *(make_plan(one, 4) for one in segments)]


@pytest.mark.parametrize("injection", ["none", "add"])
@pytest.mark.parametrize("positions", ["rope", "alibi", "learned"])
def test_plans_run_together_equal_plans_run_alone_bitwise(positions: str, injection: str) -> None:
    decoder = tiny_decoder(TRAINED, positions=positions, injection=injection)
    tokens, plans = batches()[0]["inputs"], mixed_plans()
    with torch.no_grad():
        together = dict(final_states(decoder, tokens, plans))
        assert sorted(together) == list(range(len(plans)))
        for number, plan in enumerate(plans):
            assert torch.equal(together[number], decoder.states(tokens, plan)), plan.label


def test_common_beginnings_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder(TRAINED)
    visits = []
    run = Decoder.run
    monkeypatch.setattr(
        Decoder, "run", lambda self, x, some, ctx: visits.extend(some) or run(self, x, some, ctx)
    )
    with torch.no_grad():
        assert len(list(final_states(decoder, batches()[0]["inputs"], grid_plans(decoder, "1..4")))) == 256
    assert len(visits) == 4 + 16 + 64 + 256


def test_losses_and_document_sums_equal_one_forward_pass_per_schedule() -> None:
    decoder = tiny_decoder(TRAINED)
    asked = [[1, 1, 1, 1], [2, 2, 2, 2], [2, 1, 1, 3], [{"layers": [0, 1, 2, 3], "times": 2}]]
    plans = [decoder.plan_for(one) for one in asked]
    result = evaluate_schedules(decoder, batches(), plans, tokens=50)
    assert [row.label for row in result.rows] == ["2-1-1-3", "1-1-1-1", "2-2-2-2", "(0-1-2-3)x2"]
    assert result.tokens == 50
    for i, plan in enumerate([TRAINED, plans[0], plans[1], plans[3]]):
        sums: dict[int, float] = {}
        counts: dict[int, int] = {}
        for batch in first_tokens(batches(), 50, CPU):
            with torch.no_grad():
                nll = token_nll(decoder(batch["inputs"], plan), batch["targets"])
            for row, t in (batch["targets"] != IGNORED).nonzero().tolist():
                document = int(batch["documents"][row, t])
                sums[document] = sums.get(document, 0.0) + float(nll[row, t])
                counts[document] = counts.get(document, 0) + 1
        assert result.documents.tolist() == sorted(sums)
        assert result.document_tokens.tolist() == [counts[d] for d in sorted(counts)]
        np.testing.assert_allclose(result.nll[i], [sums[d] for d in sorted(sums)], atol=1e-11)
        row = result.rows[i]
        assert row.loss == pytest.approx(sum(sums.values()) / 50, abs=1e-12)
        assert row.delta == pytest.approx(row.loss - result.rows[0].loss, abs=1e-12)
        assert row.forward_flops_per_token == cost(decoder.config, plan).forward_flops_per_token
    assert (result.rows[0].delta, result.rows[0].delta_se) == (0, 0)
    assert result.rows[1].delta_se > 0


def test_the_paired_error_is_that_of_a_bootstrap_over_documents() -> None:
    draw = np.random.default_rng(0)
    weights = draw.integers(20, 400, size=200).astype(float)
    baseline = weights * draw.normal(3.0, 0.4, size=200)
    other = baseline + weights * draw.normal(0.02, 0.05, size=200)
    delta, error = paired_difference(other, baseline, weights)
    samples = draw.integers(0, 200, size=(4000, 200))
    resampled = (other - baseline)[samples].sum(1) / weights[samples].sum(1)
    assert delta == pytest.approx((other - baseline).sum() / weights.sum())
    assert error == pytest.approx(resampled.std(), rel=0.05)
    assert paired_difference(other[:1], baseline[:1], weights[:1])[1] is None


def test_a_grid_varies_every_layer_and_bad_ones_are_refused() -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1, 1], sharing="all"))
    plans = grid_plans(decoder, "1..2")
    assert [list(plan.times_per_layer) for plan in plans] == [list(t) for t in product((1, 2), repeat=4)]
    assert all(plan.sharing == decoder.plan.sharing for plan in plans)
    for grid in ("4", "2..1", "0..2", "1-3", ""):
        with pytest.raises(InputError, match=r"--grid must be FIRST\.\.LAST"):
            grid_plans(decoder, grid)
    with pytest.raises(InputError, match="is 10000 schedules, at most 4096"):
        grid_plans(decoder, "1..10")


def test_what_the_decoder_cannot_run_is_refused_before_anything_runs() -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1, 1], sharing="all"))
    with pytest.raises(InputError, match="one entry per layer"):
        decoder.plan_for([1, 1])
    with pytest.raises(InputError, match="needs 4 attention"):
        evaluate_schedules(decoder, [], [make_plan([1, 1, 1, 1])], 10)


def row(schedule: list[int], loss: float) -> Row:
    return Row("-".join(map(str, schedule)), schedule, sum(schedule), 100 * sum(schedule), loss, 0.0, None)


def test_sensitivity_and_pair_maps_hold_the_other_layers_at_the_trained_times() -> None:
    def loss(a: int, b: int, c: int) -> float:
        return (a - 2) ** 2 + 10 * (b - 1) ** 2 + 0.1 * c + 0.01 * a * b * c

    rows = [row([a, b, c], loss(a, b, c)) for a, b, c in product((1, 2, 3), (1, 2), (1, 2, 3))]
    seen = Landscape(rows, [2, 1, 7])
    assert seen.held == (2, 1, 3)
    curves = {curve.layer: curve for curve in seen.curves()}
    assert curves[0].times == (1, 2, 3)
    assert curves[0].losses == tuple(loss(a, 1, 3) for a in (1, 2, 3))
    assert curves[2].losses == tuple(loss(2, 1, c) for c in (1, 2, 3))
    pairs = {pair.layers: pair for pair in seen.pairs()}
    assert set(pairs) == {(0, 1), (0, 2), (1, 2)}
    np.testing.assert_allclose(pairs[1, 2].losses, [[loss(2, b, c) for c in (1, 2, 3)] for b in (1, 2)])


def test_a_list_of_segments_has_no_landscape() -> None:
    rows = [Row("x", [{"layers": [0], "times": 2, "sublayers": "both"}], 2, 200, 1.0, 0.0, None)]
    assert Landscape(rows, [2]).curves() == []
    assert Landscape(rows, [2]).pairs() == []


def test_the_front_and_the_best_within_a_budget() -> None:
    trained = row([2, 1], 2.0)
    rows = [
        trained,
        row([1, 1], 2.5),
        row([1, 2], 1.9),
        row([3, 1], 1.8),
        row([2, 2], 1.95),
        row([4, 4], 1.0),
    ]
    assert [one.label for one in front(rows)] == ["1-1", "1-2", "3-1", "4-4"]
    assert best_within(rows, trained, 1.0).label == "1-2"
    assert best_within(rows, trained, 1.4).label == "3-1"
    assert best_within(rows, trained, 5.0).label == "4-4"
    assert best_within(rows, trained, 0.1) is None


def test_with_injection_equal_operands_of_other_passes_are_both_scored() -> None:
    decoder = tiny_decoder(make_plan([2, 1, 1, 1]), injection="add").eval()
    other = make_plan([Segment((0, 0, 1, 2, 3))], 4)
    found = evaluate_schedules(decoder, batches(), [other], 1000).rows
    assert [row.label for row in found] == ["2-1-1-1", "(0-0-1-2-3)"]
    for row, plan in zip(found, (decoder.plan, other), strict=True):
        nll = [token_nll(decoder(one["inputs"], plan), one["targets"]) for one in batches()]
        scored = sum(int((one["targets"] != IGNORED).sum()) for one in batches())
        assert row.loss == pytest.approx(float(sum(part.sum() for part in nll)) / scored, rel=1e-12)


def test_another_spelling_of_the_trained_schedule_is_not_scored_again_and_the_trained_one_keeps_its_name() -> (
    None
):
    decoder = tiny_decoder(make_plan([2, 1, 1, 1]))
    found = evaluate_schedules(decoder, batches(), [make_plan([Segment((0, 0, 1, 2, 3))], 4)], 1000)
    assert [row.label for row in found.rows] == ["2-1-1-1"]
