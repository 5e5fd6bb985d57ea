"""A decoder that is copied, pickled, averaged or called with other weights runs the weights that it holds."""

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from oracles import TOKENS, tiny_config
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ilr.model.compilation import _compiled_whole, execute
from ilr.model.config import Compile, Recompute
from ilr.model.decoder import Decoder
from ilr.model.plan import make_plan
from ilr.training.module import LanguageModel

PLAN = make_plan([2, 1])
TARGETS = TOKENS.roll(-1, 1)
EXECUTIONS: list[tuple[Compile, Recompute]] = [
    ("none", "none"),
    ("none", "selective"),
    ("none", "full"),
    ("sublayers", "none"),
    ("sublayers", "full"),
    ("whole", "none"),
]
every_execution = pytest.mark.parametrize(("compile", "recompute"), EXECUTIONS)


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All graphs that are compiled, run as they were traced: building kernels takes long and is not asked here."""
    traced: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        traced.append(graph)
        return graph.forward

    torch._dynamo.reset()
    _compiled_whole.cache_clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return traced


def decoder_of(compile: Compile = "none", recompute: Recompute = "none", seed: int = 0) -> Decoder:
    decoder = Decoder(tiny_config(PLAN), PLAN, init_seed=seed)
    execute(decoder, compile, recompute)
    return decoder


def deep_copy(decoder: Decoder) -> Decoder:
    return copy.deepcopy(decoder)


def pickled(decoder: Decoder) -> Decoder:
    back: Decoder = pickle.loads(pickle.dumps(decoder))
    return back


def saved(decoder: Decoder) -> Decoder:
    file = io.BytesIO()
    torch.save(decoder, file)
    file.seek(0)
    back: Decoder = torch.load(file, weights_only=False)
    return back


def averaged(decoder: Decoder) -> Decoder:
    back: Decoder = AveragedModel(decoder).module
    return back


def loss_and_gradients(decoder: Decoder) -> dict[str, torch.Tensor]:
    decoder.zero_grad()
    loss = decoder.nll_sum(TOKENS, TARGETS)
    loss.backward()
    gradients = {name: p.grad for name, p in decoder.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **gradients}


@pytest.mark.parametrize(
    ("copied", "compile", "recompute"),
    [
        *((deep_copy, *execution) for execution in EXECUTIONS if execution != ("sublayers", "full")),
        (pickled, "none", "selective"),
        (pickled, "sublayers", "none"),
        *(
            pytest.param(copied, *execution, marks=pytest.mark.slow)
            for copied in (pickled, saved, averaged)
            for execution in (("sublayers", "full"), ("whole", "none"))
        ),
    ],
)
def test_a_copy_runs_its_own_weights_as_the_original_ran_its(
    copied: Callable[[Decoder], Decoder], compile: Compile, recompute: Recompute, graphs: list[Any]
) -> None:
    """Right numbers, point 12."""
    original, other = decoder_of(compile, recompute), decoder_of(seed=1)
    before = loss_and_gradients(original)
    twin = copied(original)
    twin.load_state_dict(other.state_dict())
    with torch.no_grad():
        assert not torch.equal(twin(TOKENS), original(TOKENS))
    torch._dynamo.reset()
    graphs.clear()
    torch.testing.assert_close(loss_and_gradients(twin), loss_and_gradients(other), rtol=1e-5, atol=1e-5)
    assert bool(graphs) == (compile != "none"), "a copy runs compiled where the original does"
    assert twin.execution == original.execution
    torch.testing.assert_close(loss_and_gradients(original), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("compile", "recompute"), [("sublayers", "none"), pytest.param("whole", "full", marks=pytest.mark.slow)]
)
def test_a_copy_of_a_copy_whose_original_is_gone_still_runs(compile: Compile, recompute: Recompute) -> None:
    """Right numbers, point 12."""
    expected = loss_and_gradients(decoder_of())
    original = decoder_of(compile, recompute)
    twin = copy.deepcopy(original)
    with torch.no_grad():
        for weight in original.parameters():
            weight.fill_(float("nan"))
    del original
    torch.testing.assert_close(loss_and_gradients(copy.deepcopy(twin)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("compile", "recompute"), [("sublayers", "none"), pytest.param("whole", "none", marks=pytest.mark.slow)]
)
def test_an_average_of_weights_predicts_what_a_decoder_of_these_weights_does(
    compile: Compile, recompute: Recompute
) -> None:
    """Right numbers, point 12: the average follows the trained decoder by its own weights."""
    decoder = decoder_of(compile, recompute)
    average = AveragedModel(decoder, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    optimizer = torch.optim.SGD(decoder.parameters(), lr=1e-2)
    expected = {name: weight.clone() for name, weight in decoder.state_dict().items()}
    for step in range(3):
        loss_and_gradients(decoder)
        optimizer.step()
        average.update_parameters(decoder)
        for name, weight in decoder.state_dict().items():
            expected[name] = weight.clone() if step == 0 else 0.5 * expected[name] + 0.5 * weight
    plain = decoder_of()
    plain.load_state_dict(expected)
    with torch.no_grad():
        torch.testing.assert_close(average(TOKENS), plain(TOKENS), rtol=1e-5, atol=1e-5)
        assert (average(TOKENS) - decoder(TOKENS)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("compile", "recompute"), [("none", "none"), ("sublayers", "none"), ("whole", "none")]
)
def test_a_call_with_other_weights_uses_them(compile: Compile, recompute: Recompute) -> None:
    """Right numbers, point 12: `torch.func.functional_call`, before and after a call with its own."""
    decoder, other = decoder_of(compile, recompute), decoder_of(seed=1)
    with torch.no_grad():
        own = decoder(TOKENS)
        theirs = torch.func.functional_call(decoder, dict(other.state_dict()), (TOKENS,))
        torch.testing.assert_close(theirs, other(TOKENS), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(decoder(TOKENS), own, rtol=1e-5, atol=1e-5)


@every_execution
def test_no_method_is_replaced_on_an_instance_and_no_key_of_the_state_changes(
    compile: Compile, recompute: Recompute
) -> None:
    """Right numbers, point 12."""
    decoder = decoder_of(compile, recompute)
    for name, module in decoder.named_modules():
        replaced = [key for key in vars(module) if callable(getattr(type(module), key, None))]
        assert not replaced, f"{name}: {replaced}"
    assert list(decoder.state_dict()) == list(decoder_of().state_dict())


def test_execution_can_be_changed_again(graphs: list[Any]) -> None:
    """Right numbers, point 12: what runs is what was asked for last."""
    decoder = decoder_of("sublayers", "full")
    execute(decoder)
    loss_and_gradients(decoder)
    assert graphs == []
    execute(decoder, "whole")
    loss_and_gradients(decoder)
    assert len(graphs) == 1
    execute(decoder, "sublayers")
    loss_and_gradients(decoder)
    assert len(graphs) == 3


@pytest.mark.parametrize("compile", ["sublayers", pytest.param("whole", marks=pytest.mark.slow)])
def test_a_copied_training_module_holds_a_decoder_of_its_own(compile: Compile) -> None:
    """Right numbers, point 12: weight averaging of the trainer copies the module, not the decoder."""
    model = LanguageModel(
        vocab_size=37, num_layers=2, schedule=[2, 1], width=32, num_heads=4, compile=compile
    )
    model.configure_model()
    average = AveragedModel(model).module
    with torch.no_grad():
        before = model.decoder(TOKENS)
        for weight in average.decoder.parameters():
            weight.mul_(0.5)
        plain = Decoder(model.config, PLAN)
        plain.load_state_dict(average.decoder.state_dict())
        torch.testing.assert_close(average.decoder(TOKENS), plain(TOKENS), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.decoder(TOKENS), before, rtol=1e-6, atol=1e-6)


def test_copies_share_their_graphs(graphs: list[Any]) -> None:
    """Right numbers, point 12: a copy costs no compilation, so averaging during training does not either."""
    for compile, number in (("sublayers", 2), ("whole", 1)):
        torch._dynamo.reset()
        graphs.clear()
        decoder = decoder_of(compile)
        for one in (decoder, copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
            loss_and_gradients(one)
        assert len(graphs) == number


def test_a_copy_s_positions_are_its_own() -> None:
    """Right numbers, point 12: the table of rotations moves with the copy, not with the original."""
    decoder = decoder_of()
    with torch.no_grad():
        expected = decoder(TOKENS)
        twin = copy.deepcopy(decoder).double()
        torch.testing.assert_close(twin(TOKENS).float(), expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(decoder(TOKENS), expected)
        assert isinstance(twin.positions, nn.Module)
        assert twin.positions is not decoder.positions
