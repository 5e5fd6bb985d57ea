"""x-transformers' custom layers and execution order give the logits of a plan, with the same weights."""

from typing import Any

import pytest
import torch
from oracles import LENGTH, TOKENS, VOCAB, tiny_decoder
from torch import Tensor
from x_transformers import Decoder as TheirLayers
from x_transformers import TransformerWrapper

from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.schedules import block
from ilr.model.sharing import Sharing


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix for rotation of neighbours, 2i and 2i + 1, instead of halves."""
    halves = weight.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def regrouped(weight: Tensor, kv_heads: int, heads: int) -> Tensor:
    """Rows of query heads that share keys by turns (head modulo kv_heads) instead of as neighbours."""
    return weight.unflatten(0, (kv_heads, heads // kv_heads, -1)).transpose(0, 1).flatten(0, 2)


@torch.no_grad()
def their_model(
    decoder: Decoder, kinds: tuple[str, ...], banks: list[int], order: list[int]
) -> TransformerWrapper:
    """x-transformers with these sublayers in this execution order, holding copies of the decoder's banks.

    What had to be matched: pre-norm with their RMSNorm, which has no epsilon (ours is set to 1e-24), its
    weights not counted from 1; a rotation over the whole head, of neighbouring features; query heads that
    share keys by turns; SwiGLU as one matrix whose first half is the linear part, its bias zero; a tied
    head without their scale of 1/√D.
    """
    config, rotary = decoder.config, decoder.config.positions == "rope"
    layers = TheirLayers(
        dim=config.width,
        heads=config.num_heads,
        attn_dim_head=config.sizes.head,
        attn_kv_heads=config.sizes.kv_heads,
        custom_layers=kinds,
        layers_execute_order=tuple(order),
        use_rmsnorm=True,
        norm_add_unit_offset=False,
        ff_mult=config.sizes.ffn / config.width,
        ff_glu=config.ffn == "swiglu",
        ff_swish=config.ffn == "swiglu",
        ff_no_bias=True,
        rotary_pos_emb=rotary,
        rotary_emb_dim=config.sizes.head if rotary else None,
        verbose=False,
    )
    model = TransformerWrapper(
        num_tokens=VOCAB,
        max_seq_len=LENGTH,
        attn_layers=layers,
        use_abs_pos_emb=False,
        tie_embedding=True,
        tie_embedding_scale=1.0,
    ).double()
    model.token_emb.emb.weight.copy_(decoder.embedding.weight)
    layers.final_norm.g.copy_(decoder.norm.weight)
    for (norms, sublayer, _), kind, number in zip(layers.layers, kinds, banks, strict=True):
        if kind == "a":
            ours: Any = decoder.attention[number]
            query, key = ours.query.weight, ours.key.weight
            if rotary:
                query, key = interleaved(query, config.num_heads), interleaved(key, config.sizes.kv_heads)
            sublayer.to_q.weight.copy_(regrouped(query, config.sizes.kv_heads, config.num_heads))
            sublayer.to_k.weight.copy_(key)
            sublayer.to_v.weight.copy_(ours.value.weight)
            sublayer.to_out.weight.copy_(
                regrouped(ours.output.weight.T, config.sizes.kv_heads, config.num_heads).T
            )
        else:
            ours, (first, _, last) = decoder.ffn[number], (part for part in sublayer.ff if part is not None)
            if config.ffn == "swiglu":
                first.proj.weight.copy_(torch.cat((ours.up.weight, ours.gate.weight)))
                first.proj.bias.zero_()
            else:
                first[0].weight.copy_(ours.up.weight)
            last.weight.copy_(ours.down.weight)
        norms[0].g.copy_(ours.norm.weight)
    return model.eval()


EXECUTION_ORDERS: dict[str, tuple[Plan, str, list[int], list[int]]] = {
    # plan, their sublayers, the bank entry that each holds, the order in which they run
    "repeated layers": (make_plan([3, 1, 2]), "afafaf", [0, 0, 1, 1, 2, 2], [0, 1] * 3 + [2, 3] + [4, 5] * 2),
    "repeated block": (make_plan(block(2, 2)), "afaf", [0, 0, 1, 1], [0, 1, 2, 3] * 2),
    "attention shared": (
        make_plan([1, 2, 1], sharing="attention"),
        "afff",
        [0, 0, 1, 2],
        [0, 1, 0, 2, 0, 2, 0, 3],
    ),
    "feed-forward shared": (
        make_plan([1, 2, 1], sharing="ffn"),
        "afaa",
        [0, 0, 1, 2],
        [0, 1, 2, 1, 2, 1, 3, 1],
    ),
    "all shared": (make_plan([2, 1], sharing="all"), "af", [0, 0], [0, 1] * 3),
    "groups": (
        make_plan([1, 1, 1, 2], sharing=Sharing.groups(4, 2)),
        "afaf",
        [0, 0, 1, 1],
        [0, 1, 0, 1] + [2, 3] * 3,
    ),
    "attention loop": (
        make_plan([Segment((0,)), Segment((1,), 3, "attention"), Segment((1,), 1, "ffn")]),
        "afaf",
        [0, 0, 1, 1],
        [0, 1, 2, 2, 2, 3],
    ),
    "feed-forward loop": (
        make_plan([Segment((0,)), Segment((0, 1), 2, "ffn"), Segment((1,))]),
        "afaf",
        [0, 0, 1, 1],
        [0, 1, 1, 3, 1, 3, 2, 3],
    ),
}


@pytest.mark.parametrize("changes", [{}, {"num_kv_heads": None}, {"ffn": "gelu"}], ids=str)
@pytest.mark.parametrize("positions", ["none", "rope"])
@pytest.mark.parametrize("case", EXECUTION_ORDERS)
def test_x_transformers_gives_equal_logits_for_this_execution_order(
    case: str, positions: str, changes: dict[str, Any]
) -> None:
    plan, kinds, banks, order = EXECUTION_ORDERS[case]
    decoder = tiny_decoder(plan, positions=positions, norm_eps=1e-24, **changes)
    theirs = their_model(decoder, tuple(kinds), banks, order)
    # Their softmax is in float32 in a float64 model too.
    torch.testing.assert_close(decoder(TOKENS), theirs(TOKENS), rtol=0, atol=1e-5)
