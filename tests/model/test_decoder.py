"""The decoder runs exactly the plan: unrolled twins, equal operands, injection, causality, refusals."""

from pathlib import Path

import pytest
import torch
from oracles import (
    PLANS,
    POSITIONS,
    TOKENS,
    VOCAB,
    PlainStack,
    assert_equal,
    tiny_config,
    tiny_decoder,
    unrolled_twin,
)
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor

from ilr.model.cost import cost
from ilr.model.decoder import Decoder
from ilr.model.metrics import token_nll
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.schedules import block, cycle, intra_layer
from ilr.model.sharing import Sharing

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
every_scheme = pytest.mark.parametrize("positions", POSITIONS)
WHOLE_PLANS = [plan for plan in PLANS if all(None not in operands for operands in plan.operands)]


def mean_loss(logits: Tensor) -> Tensor:
    return token_nll(logits[:, :-1], TOKENS[:, 1:]).mean()


@every_scheme
@every_plan
def test_logits_equal_a_plain_stack_with_a_copy_per_visit(plan: Plan, positions: str) -> None:
    decoder = tiny_decoder(plan, positions=positions)
    assert_equal(decoder(TOKENS), PlainStack.copied(decoder)(TOKENS))


@pytest.mark.parametrize(
    "changes",
    [
        {"ffn": "gelu"},
        {"tie_embeddings": False},
        {"embedding_width": 8},
        {"embedding_width": 8, "tie_embeddings": False},
        {"num_kv_heads": None, "ffn_width": None},
        {"num_kv_heads": 1},
        {"norm_eps": 1e-2, "rope_theta": 100.0},
    ],
    ids=str,
)
def test_every_choice_of_the_config_equals_the_plain_stack(changes: dict[str, object]) -> None:
    decoder = tiny_decoder(make_plan([2, 1, 1], sharing="attention"), **changes)
    assert_equal(decoder(TOKENS), PlainStack.copied(decoder)(TOKENS))


@every_plan
def test_gradients_of_shared_weights_are_the_sums_over_their_copies(plan: Plan) -> None:
    decoder = tiny_decoder(plan)
    stack = PlainStack.copied(decoder)
    mean_loss(decoder(TOKENS)).backward()
    mean_loss(stack(TOKENS)).backward()
    for kind, banks in (("attention", decoder.attention), ("ffn", decoder.ffn)):
        for number, bank in enumerate(banks):
            visits = [n for n, visit in enumerate(plan.visits) if getattr(visit, kind) == number]
            copies = [stack.layers[n][0 if kind == "attention" else 1] for n in visits]
            for key, weight in bank.named_parameters():
                if copies:
                    assert_equal(weight.grad, sum(copy[key].grad for copy in copies if copy is not None))
                else:
                    assert weight.grad is None
    for key, weight in decoder.named_parameters():
        if key in stack.ends:
            assert_equal(weight.grad, stack.ends[key].grad)


@pytest.mark.parametrize("plan", WHOLE_PLANS, ids=lambda plan: plan.label)
def test_a_plan_equals_the_unrolled_twin_and_its_gradients_sum_over_the_copies(plan: Plan) -> None:
    decoder = tiny_decoder(plan)
    twin = unrolled_twin(decoder, plan)
    expected, actual = twin(TOKENS), decoder(TOKENS)
    assert_equal(actual, expected)
    mean_loss(actual).backward()
    mean_loss(expected).backward()
    for kind in ("attention", "ffn"):
        sums: dict[str, Tensor] = {}
        for number, visit in enumerate(plan.visits):
            for key, weight in getattr(twin, kind)[number].named_parameters():
                name = f"{kind}.{getattr(visit, kind)}.{key}"
                sums[name] = sums.get(name, torch.zeros(())) + weight.grad
        for name, total in sums.items():
            assert_equal(decoder.get_parameter(name).grad, total)


@every_scheme
def test_all_ones_equals_the_plain_layers_in_a_row_bitwise(positions: str) -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1, 1]), positions=positions).float()
    seen = []
    decoder(TOKENS, observe=lambda visit, before, after: seen.append((before, after)))
    index = []
    hook = decoder.attention[0].register_forward_pre_hook(lambda _, inputs: index.append(inputs[1]))
    logits = decoder(TOKENS)
    hook.remove()
    x = seen[0][0]
    for attention, ffn in zip(decoder.attention, decoder.ffn, strict=True):
        x = x + attention(x, index[0])
        x = x + ffn(x)
    assert torch.equal(decoder.predict(x), logits)
    assert torch.equal(unrolled_twin(decoder, decoder.plan)(TOKENS), logits)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (make_plan(intra_layer([3, 2])), make_plan([3, 2])),
        (make_plan([Segment((0, 0, 1))]), make_plan([2, 1])),
        (make_plan(block(1, 3)), make_plan([3])),
        (make_plan(cycle(2, 4)), make_plan([Segment((0, 1, 0, 1))])),
        (make_plan([1, 1, 1], sharing="all"), make_plan([3, 1, 1], 3, "all")),
        (
            make_plan([Segment((0, 1)), Segment((0, 1))], sharing="all"),
            make_plan([Segment((1,), 4)], num_layers=2, sharing="all"),
        ),
        (
            make_plan([1, 2, 1, 1], sharing=Sharing.groups(4, 2)),
            make_plan([2, 1, 1, 1], sharing={"attention": [0, 0, 1, 1], "ffn": [0, 0, 1, 1]}),
        ),
    ],
    ids=lambda plan: plan.label,
)
def test_equal_operands_mean_equal_logits_and_different_ones_do_not(one: Plan, other: Plan) -> None:
    decoder = tiny_decoder(one)
    same = torch.equal(decoder(TOKENS, one), decoder(TOKENS, other))
    assert same == (one.operands == other.operands)


def test_a_decoder_built_for_other_operands_of_equal_value_computes_the_same() -> None:
    one, other = make_plan([1, 2], sharing="all"), make_plan([2, 1], sharing="all")
    assert one.operands == other.operands
    assert torch.equal(tiny_decoder(one)(TOKENS), tiny_decoder(other)(TOKENS))


def test_uniform_repetition_differs_from_a_repeated_block_for_two_layers_but_not_for_one() -> None:
    uniform, repeated = make_plan([2, 2]), make_plan(block(2, 2))
    decoder = tiny_decoder(uniform)
    assert (decoder(TOKENS, uniform) - decoder(TOKENS, repeated)).abs().max() > 0.1
    single = tiny_decoder(make_plan([2]))
    assert torch.equal(single(TOKENS), single(TOKENS, make_plan(block(1, 2))))


@every_plan
def test_another_plan_over_the_same_weights_equals_a_decoder_built_for_it(plan: Plan) -> None:
    other = make_plan(block(plan.num_layers, 2), sharing=plan.sharing)
    decoder, built = tiny_decoder(plan), tiny_decoder(other)
    assert torch.equal(decoder(TOKENS, plan=other), built(TOKENS))
    assert torch.equal(decoder(TOKENS), built(TOKENS, plan=plan))
    assert decoder.plan is plan


def test_plan_for_keeps_the_sharing_under_another_schedule() -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1], sharing="ffn"))
    assert decoder.plan_for([2, 1, 3]) == make_plan([2, 1, 3], sharing="ffn")


def test_a_plan_whose_operands_the_banks_lack_is_refused_with_the_counts() -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1], sharing="attention"))
    wrong = make_plan([2, 1, 1])
    with pytest.raises(ValueError, match=r"2-1-1 needs 3 attention and 3 feed-forward .* has 1 and 3"):
        decoder(TOKENS, plan=wrong)
    with pytest.raises(ValueError, match="the plan is for 2 layers, this decoder has 3"):
        decoder(TOKENS, plan=make_plan([1, 1]))
    with pytest.raises(ValueError, match="the plan is for 2 layers, the config has 3"):
        Decoder(decoder.config, make_plan([1, 1]))


@every_scheme
@every_plan
def test_no_logit_depends_on_a_later_token(plan: Plan, positions: str) -> None:
    decoder = tiny_decoder(plan, positions=positions)
    changed = TOKENS.clone()
    at = 7
    changed[:, at] = (changed[:, at] + 1) % VOCAB
    difference = (decoder(changed) - decoder(TOKENS)).abs().amax((0, 2))
    assert difference[:at].max() <= 1e-12
    assert difference[at:].min() > 1e-6


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
def test_weights_saved_once_load_to_the_same_logits(sharing: str, tied: bool, tmp_path: Path) -> None:
    plan = make_plan([3, 2, 1, 1], sharing=sharing)
    decoder = tiny_decoder(plan, tie_embeddings=tied).float()
    save_model(decoder, str(tmp_path / "weights.safetensors"))
    other = Decoder(decoder.config, plan, init_seed=1).eval()
    assert load_model(other, tmp_path / "weights.safetensors") == (set(), [])
    assert torch.equal(other(TOKENS), decoder(TOKENS))
    saved = load_file(tmp_path / "weights.safetensors")
    assert sum(weight.numel() for weight in saved.values()) == cost(decoder.config, plan).parameters


def test_a_shared_sublayer_shares_its_norm_and_every_tensor_has_one_key() -> None:
    decoder = Decoder(tiny_config(make_plan([3, 2, 1, 1])), make_plan([3, 2, 1, 1], sharing="attention"))
    state = decoder.state_dict()
    assert [key for key in state if key.startswith("attention.") and key.endswith("norm.weight")] == [
        "attention.0.norm.weight"
    ]
    assert sum(key.startswith("ffn.") and key.endswith("norm.weight") for key in state) == 4
    assert len({weight.data_ptr() for weight in state.values()}) == len(state)
    assert set(state) == {key for key, _ in decoder.named_parameters()}
