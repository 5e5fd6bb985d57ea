"""The analysis as a whole: any batching, a stated number of tokens, no trace left, any precision."""

from dataclasses import replace

import pytest
import torch
from analysis_cases import CPU, PLANS, batches, tiny_decoder

from ilr.analysis.batches import first_tokens
from ilr.analysis.measure import Extent, analyse
from ilr.analysis.record import Analysis
from ilr.analysis.tables import refinement
from ilr.errors import InputError
from ilr.model.metrics import IGNORED
from ilr.model.plan import make_plan


def close(actual: list[float | None], expected: list[float | None]) -> None:
    assert [value is None for value in actual] == [value is None for value in expected]
    assert [v for v in actual if v is not None] == pytest.approx(
        [v for v in expected if v is not None], abs=1e-9
    )


def test_the_figures_do_not_depend_on_how_tokens_are_batched() -> None:
    decoder = tiny_decoder(PLANS[0], injection="add")
    everything = {
        name: torch.cat([batch[name] for batch in batches()]) for name in ("inputs", "targets", "documents")
    }
    split = [{name: tensor[i : i + 1] for name, tensor in everything.items()} for i in range(5)]
    one, many = (analyse(decoder, source, Extent(jacobian_positions=0)) for source in ([everything], split))
    for name, values in one.figures.items():
        close(many.figures[name], values)
    torch.testing.assert_close(torch.tensor(many.cka), torch.tensor(one.cka))


def test_a_stated_number_of_tokens_is_analysed_exactly() -> None:
    taken = list(first_tokens(batches(), 30, CPU))
    assert [int((batch["targets"] != IGNORED).sum()) for batch in taken] == [30]
    whole = list(first_tokens(batches(), 10_000, CPU))
    assert sum(int((batch["targets"] != IGNORED).sum()) for batch in whole) == 53
    cut = list(first_tokens(batches(), 37, CPU))
    assert [tuple(batch["inputs"].shape) for batch in cut] == [(3, 12), (1, 12)]
    assert analyse(tiny_decoder(PLANS[0]), batches(), Extent(tokens=37)).tokens == 37
    empty = {
        "inputs": torch.zeros(1, 3).long(),
        "targets": torch.full((1, 3), IGNORED),
        "documents": torch.zeros(1, 3),
    }
    with pytest.raises(InputError, match="no token to score"):
        list(first_tokens([empty], 5, CPU))


def test_analysing_leaves_no_trace_and_is_repeatable() -> None:
    decoder = tiny_decoder(PLANS[0], dropout=0.3)
    decoder.train()
    state, weights = torch.get_rng_state(), {k: v.clone() for k, v in decoder.state_dict().items()}
    extent = Extent(jacobian_positions=12)
    first = analyse(decoder, batches(), extent)
    assert first == analyse(decoder, batches(), extent)
    assert decoder.training
    assert all(part.training for part in decoder.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, weights[k]) for k, v in decoder.state_dict().items())
    assert all(parameter.grad is None for parameter in decoder.parameters())


def test_float32_agrees_with_float64() -> None:
    decoder = tiny_decoder(PLANS[0])
    wide = analyse(decoder, batches(), Extent(jacobian_positions=12))
    narrow = analyse(decoder.float(), batches(), Extent(jacobian_positions=12))
    for name, values in wide.figures.items():
        for one, other in zip(narrow.figures[name], values, strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                assert one == pytest.approx(
                    other, rel=2e-3 if name.startswith("jacobian") else 1e-4, abs=1e-5
                )


def test_an_analysis_is_written_and_read_back_and_names_its_scalars(tmp_path) -> None:
    result = analyse(
        tiny_decoder(PLANS[0]), batches(), Extent(lens=False, attention_tokens=0, jacobian_positions=0)
    )
    result.write(tmp_path / "analysis.json")
    assert Analysis.read(tmp_path / "analysis.json") == result
    assert result.loss is None
    scalars = result.scalars()
    assert scalars["by_visit/change/0.2"] == result.figures["change"][2]
    assert "by_visit/second_difference/0.0" not in scalars
    assert not any("lens" in name for name in scalars)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"other\.json: lacks the key 'label'"):
        Analysis.read(tmp_path / "other.json")


def test_an_iteration_of_the_zero_update_changes_nothing() -> None:
    decoder = tiny_decoder(make_plan([3, 1, 1, 1]))
    with torch.no_grad():
        decoder.attention[0].output.weight.zero_()
        decoder.ffn[0].down.weight.zero_()
    result = analyse(decoder, batches(), Extent(jacobian_positions=12))
    assert result.figures["change"][:3] == [0, 0, 0]
    assert result.figures["second_difference"][1:3] == [0, 0]
    assert result.figures["attention_change"][1:3] == [0, 0]
    assert result.figures["jacobian_norm"][:3] == pytest.approx([1, 1, 1], abs=1e-9)
    assert result.cka[0][3] == pytest.approx(1)


def test_refinement_is_told_per_weights_also_where_layers_share_them() -> None:
    few = Extent(lens=False, attention_tokens=0, jacobian_positions=0)
    apart = analyse(tiny_decoder(make_plan([2, 1, 1, 3])), batches(), few)
    assert apart.weights == [0, 0, 1, 2, 3, 3, 3]
    assert [line.split(":")[0] for line in refinement(apart)] == ["layer 0", "layer 3"]
    shared = analyse(tiny_decoder(make_plan([1, 1, 1, 1], sharing="all")), batches(), few)
    (line,) = refinement(shared)
    assert line.startswith("layers 0, 1, 2, 3 (shared): relative update ")
    assert line.count("→") == 3
    ffn = analyse(tiny_decoder(make_plan([1, 1, 1, 1], sharing="ffn")), batches(), few)
    assert refinement(ffn) == []
    told = replace(apart, figures={"relative_update": [0.5, 0.25, 1.0, 1.0, 0.1, 0.3, 0.2]})
    assert refinement(told) == [
        "layer 0: relative update 0.500 → 0.250: falling",
        "layer 3: relative update 0.100 → 0.300 → 0.200: neither falling nor rising",
    ]
