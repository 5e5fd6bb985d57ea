"""Position schemes against written-out formulas, Hugging Face's rotation and plain softmax attention."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import LENGTH, POSITIONS, TOKENS, published_slopes, tiny_config, tiny_decoder
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from x_transformers.x_transformers import AlibiPositionalBias

from ilr.model.decoder import Decoder
from ilr.model.layers import Attention
from ilr.model.plan import make_plan
from ilr.model.positions import SLOPES, ALiBi, Index, Learned, Rotary, Span, make_positions
from ilr.runs.loading import decoder_of
from ilr.training.module import LanguageModel

every_scheme = pytest.mark.parametrize("positions", POSITIONS)
CPU = torch.device("cpu")


def span(
    length: int, past: int = 0, padding: list[int] | None = None, dtype: torch.dtype = torch.float64
) -> Span:
    return Span(past, length, None if padding is None else torch.tensor(padding), CPU, dtype)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("padding", [None, [0, 1]])
@pytest.mark.parametrize("length", [1, 7, LENGTH])
@every_scheme
def test_the_fused_kernel_equals_plain_softmax_attention(
    positions: str, length: int, padding: list[int] | None, kv_heads: int
) -> None:
    config = tiny_config(make_plan([1]), positions=positions, num_kv_heads=kv_heads)
    decoder = Decoder(config, make_plan([1])).eval()
    attention = decoder.attention[0]
    assert isinstance(attention, Attention)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        attention.to(dtype)
        index = decoder.positions.index(span(length, 0, padding, dtype))
        x = torch.randn(2, length, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
        probabilities = attention.probabilities(x, index)
        values = attention.value(attention.norm(x)).unflatten(-1, (kv_heads, 8)).transpose(1, 2)
        mixed = probabilities @ values.repeat_interleave(4 // kv_heads, dim=1)
        expected = attention.output(mixed.transpose(1, 2).flatten(2))
        torch.testing.assert_close(attention(x, index), expected, rtol=0, atol=tolerance)
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 4, length).to(dtype))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        assert (probabilities[..., later] == 0).all()


@pytest.mark.parametrize("num_heads", range(1, 17))
def test_alibi_slopes_are_the_published_ones_for_any_number_of_heads(num_heads: int) -> None:
    """Right numbers, point 10: against Hugging Face's Bloom and x-transformers."""
    slopes = ALiBi(num_heads).slopes(CPU)
    assert slopes.dtype == torch.float64
    bloom = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    theirs = AlibiPositionalBias(num_heads).slopes.flatten()
    torch.testing.assert_close(slopes.float(), bloom, rtol=1e-6, atol=0)
    torch.testing.assert_close(slopes.float(), theirs, rtol=1e-6, atol=0)
    expected = torch.tensor(published_slopes(num_heads), dtype=torch.float64)
    torch.testing.assert_close(slopes, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (3, [4, 8, 2]),
        (5, [2, 4, 6, 8, 1]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [*range(1, 9), 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_in_powers_of_two(num_heads: int, exponents: list[float]) -> None:
    """Right numbers, point 10: the rule written out."""
    expected = torch.tensor([2.0**-exponent for exponent in exponents], dtype=torch.float64)
    assert torch.equal(ALiBi(num_heads).slopes(CPU), expected)


def test_the_alibi_bias_is_slope_times_key_minus_query_with_later_keys_hidden() -> None:
    mask = ALiBi(6).index(span(5, past=3)).mask
    assert mask is not None
    assert mask.shape == (1, 6, 5, 8)
    for head, exponent in enumerate((2, 4, 6, 8, 1, 3)):
        for query in range(5):
            for key in range(8):
                offset = key - (3 + query)
                expected = float("-inf") if offset > 0 else 2.0**-exponent * offset
                assert mask[0, head, query, key].item() == expected


@pytest.mark.parametrize("theta", [10_000.0, 500.0])
def test_rotation_equals_hugging_face(theta: float) -> None:
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    heads = torch.randn(2, 4, 40, 8, generator=torch.Generator().manual_seed(1))
    cos, sin = LlamaRotaryEmbedding(config)(heads, torch.arange(40)[None])
    expected, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    scheme = Rotary(8, theta)
    heads, expected = heads.transpose(1, 2), expected.transpose(1, 2)  # ours turn before the heads lead
    turned = scheme.index(span(40, dtype=torch.float32)).rotate(heads)
    torch.testing.assert_close(turned, expected, rtol=0, atol=2.5e-7)  # a fused multiply-add rounds once less
    later = scheme.index(span(10, past=30, dtype=torch.float32)).rotate(heads[:, 30:])
    assert torch.equal(later, turned[:, 30:])


def test_a_longer_text_than_any_before_turns_as_one_run_at_once() -> None:
    heads = torch.randn(1, 40, 1, 8, generator=torch.Generator().manual_seed(1))
    grown, at_once = Rotary(8, 10_000.0), Rotary(8, 10_000.0)
    for length in (3, 5, 40):
        grown.index(span(length, dtype=torch.float32))
    where = span(40, dtype=torch.float32)
    assert torch.equal(grown.index(where).rotate(heads), at_once.index(where).rotate(heads))


def test_gradients_flow_through_positions_that_were_first_seen_in_inference_mode() -> None:
    scheme = Rotary(8, 10_000.0)
    with torch.inference_mode():
        scheme.index(span(5, dtype=torch.float32))
    heads = torch.ones(1, 5, 1, 8, requires_grad=True)
    scheme.index(span(5, dtype=torch.float32)).rotate(heads).sum().backward()
    assert heads.grad is not None


def test_rotated_scores_depend_on_the_distance_alone() -> None:
    scheme = Rotary(8, 10_000.0)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def score(at: int, other: int) -> torch.Tensor:
        return (
            scheme.index(span(1, past=at)).rotate(query) * scheme.index(span(1, past=other)).rotate(key)
        ).sum()

    torch.testing.assert_close(score(9, 4), score(25, 20), rtol=0, atol=1e-6)
    assert (score(9, 4) - score(9, 5)).abs() > 1e-3


@every_scheme
def test_positions_are_indexed_once_per_forward_and_shared_by_all_visits(
    positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = tiny_decoder(make_plan([3, 2, 1, 1]), positions=positions)
    calls: list[Index] = []
    original = decoder.positions.index

    def counted(where: Span) -> Index:
        calls.append(original(where))
        return calls[-1]

    monkeypatch.setattr(decoder.positions, "index", counted)
    received: list[Index] = []
    for attention in decoder.attention:
        attention.register_forward_pre_hook(lambda _, inputs: received.append(inputs[1]))
    decoder(TOKENS)
    assert len(calls) == 1
    assert len(received) == 7
    assert all(index is calls[0] for index in received)


def test_no_mask_is_built_where_the_kernel_can_hide_later_keys_itself() -> None:
    for name in ("rope", "learned", "none"):
        scheme = make_positions(tiny_config(make_plan([1]), positions=name))
        whole, one, chunk = (
            scheme.index(span(7)),
            scheme.index(span(1, past=6)),
            scheme.index(span(3, past=4)),
        )
        assert (whole.mask, whole.causal) == (None, True)
        assert (one.mask, one.causal) == (None, False)
        assert chunk.mask is not None
        assert not chunk.causal


@every_scheme
def test_padding_shifts_positions_and_hides_its_keys(positions: str) -> None:
    where = span(4, padding=[2, 0])
    assert where.positions().tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    index = make_positions(tiny_config(make_plan([1]), positions=positions)).index(where)
    assert index.mask is not None
    hidden = (index.mask == float("-inf"))[:, 0]
    # A padding query sees itself, so that no softmax is over nothing.
    assert (~hidden).int().tolist() == [
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
    ]


def test_learned_positions_are_added_once_and_not_at_later_visits() -> None:
    decoder = tiny_decoder(make_plan([3, 1]), positions="learned")
    assert isinstance(decoder.positions, Learned)
    calls: list[int] = []
    decoder.positions.table.register_forward_hook(lambda *_: calls.append(1))
    seen: list[torch.Tensor] = []
    decoder(TOKENS, observe=lambda visit, before, after: seen.append(before))
    assert len(calls) == 1
    assert torch.equal(seen[0], decoder.embedding(TOKENS) + decoder.positions.table.weight[:LENGTH])


def test_learned_positions_refuse_longer_texts_and_the_others_run_them() -> None:
    longer = torch.cat((TOKENS, TOKENS), 1)
    plan = make_plan([2, 1])
    with pytest.raises(
        ValueError, match=rf"context of {LENGTH} tokens, got a text of {2 * LENGTH}; use rope, alibi"
    ):
        tiny_decoder(plan, positions="learned")(longer)
    for positions in ("rope", "alibi", "none"):
        decoder = tiny_decoder(plan, positions=positions)
        torch.testing.assert_close(decoder(longer)[:, :LENGTH], decoder(TOKENS), rtol=0, atol=1e-12)


def test_order_matters_under_every_scheme_but_only_through_the_mask_under_none() -> None:
    swapped = TOKENS[:, [1, 0, *range(2, LENGTH)]]
    for positions in POSITIONS:
        # With one visit, the last logit under no positions sees the others as a set.
        decoder = tiny_decoder(make_plan([1]), positions=positions)
        difference = (decoder(swapped) - decoder(TOKENS))[:, -1].abs().max()
        assert (difference < 1e-12) == (positions == "none"), positions


@pytest.mark.parametrize(
    ("num_heads", "positions", "kept", "warned"),
    [
        (5, "alibi", {}, True),
        (5, "alibi", {"alibi_slopes": SLOPES}, False),
        (4, "alibi", {}, False),
        (5, "none", {}, False),
    ],
)
def test_loading_weights_trained_with_other_slopes_warns(
    num_heads: int, positions: str, kept: dict[str, str], warned: bool
) -> None:
    """Right numbers, point 10: checkpoints from before the slopes were the published ones."""
    model = LanguageModel(
        vocab_size=7, schedule=[1], num_layers=1, width=20, num_heads=num_heads, positions=positions
    )
    model.configure_model()
    checkpoint = {"hyper_parameters": dict(model.hparams), "state_dict": model.state_dict(), "ilr": kept}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoder = decoder_of(Path("old.ckpt"), checkpoint)
    assert ("other ALiBi slopes for 5 heads" in " ".join(str(one.message) for one in caught)) == warned
    assert torch.equal(decoder.embedding.weight, model.decoder.embedding.weight)


def test_a_checkpoint_says_its_slopes() -> None:
    """Right numbers, point 10."""
    checkpoint: dict[str, Any] = {}
    LanguageModel(vocab_size=7).on_save_checkpoint(checkpoint)
    assert checkpoint["ilr"]["alibi_slopes"] == SLOPES
