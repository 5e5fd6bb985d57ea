"""Hugging Face's Llama with the same weights gives the same logits; weights go in and out under its names."""

from typing import Any

import pytest
import torch
from oracles import LENGTH, TOKENS, VOCAB, tiny_config, tiny_decoder, with_random_norms
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from ilr.model.decoder import Decoder
from ilr.model.llama import llama_names, llama_weights, load_llama_weights
from ilr.model.plan import make_plan

ONES = make_plan([1, 1, 1])
# Hugging Face computes norms and softmax in float32 in a float64 model too: no closer than float32.
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}


def hugging_face(kv_heads: int, tied: bool, theta: float = 10_000.0) -> LlamaForCausalLM:
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        max_position_embeddings=LENGTH,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).double().eval()
    with_random_norms(model)
    return model


def weights_of(model: LlamaForCausalLM) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("theta", [10_000.0, 100.0])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_logits_and_gradients_equal_hugging_face_llama(kv_heads: int, tied: bool, theta: float) -> None:
    theirs = hugging_face(kv_heads, tied, theta)
    config = tiny_config(ONES, num_kv_heads=kv_heads, tie_embeddings=tied, rope_theta=theta)
    decoder = Decoder(config, ONES).double()
    load_llama_weights(decoder, weights_of(theirs))
    expected, actual = theirs(TOKENS).logits, decoder(TOKENS)
    torch.testing.assert_close(actual, expected, **CLOSE)
    actual.logsumexp(-1).mean().backward()
    expected.logsumexp(-1).mean().backward()
    names = llama_names(decoder)
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(decoder.get_parameter(names[name]).grad, weight.grad, **CLOSE)


@pytest.mark.parametrize("tied", [True, False])
def test_hugging_face_loads_our_weights_and_gives_our_logits(tied: bool) -> None:
    decoder = tiny_decoder(ONES, tie_embeddings=tied)
    theirs = hugging_face(2, tied)
    missing, unexpected = theirs.load_state_dict(llama_weights(decoder), strict=False)
    assert unexpected == []
    assert missing == (["lm_head.weight"] if tied else [])
    torch.testing.assert_close(decoder(TOKENS), theirs(TOKENS).logits, **CLOSE)


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}, {"tie_embeddings": False}], ids=str)
def test_weights_go_out_and_in_unchanged(changes: dict[str, Any], sharing: str) -> None:
    plan = make_plan([2, 1, 1], sharing=sharing)
    source, target = (
        tiny_decoder(plan, **changes),
        Decoder(tiny_config(plan, **changes), plan, init_seed=1).double(),
    )
    load_llama_weights(target, llama_weights(source))
    for key, weight in source.state_dict().items():
        assert torch.equal(target.state_dict()[key], weight), key
    weights = llama_weights(source)
    ours = set(llama_names(source).values())
    assert ours == set(source.state_dict())
    layers = [name for name in weights if name.startswith("model.layers.")]
    assert len(layers) == 3 * 9


def test_names_are_those_of_hugging_face_and_learned_positions_stand_beside_them() -> None:
    tied, untied = hugging_face(2, True), hugging_face(2, False)
    assert set(llama_names(tiny_decoder(ONES))) == set(weights_of(tied))
    assert set(llama_names(tiny_decoder(ONES, tie_embeddings=False))) == set(weights_of(untied))
    learned = llama_names(tiny_decoder(ONES, positions="learned"))
    assert set(learned) - set(weights_of(tied)) == {"model.embed_positions.weight"}
    assert learned["model.embed_positions.weight"] == "positions.table.weight"


def refused(weights: dict[str, Tensor], words: str, **changes: Any) -> None:
    """Loading raises with these words and leaves the decoder as it was."""
    decoder = Decoder(
        tiny_config(ONES, **changes), make_plan([1, 1, 1], sharing=changes.pop("sharing", "none"))
    )
    before = {key: weight.clone() for key, weight in decoder.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        load_llama_weights(decoder, weights)
    assert all(torch.equal(weight, before[key]) for key, weight in decoder.state_dict().items())


def test_unknown_missing_and_misshapen_weights_are_refused_by_name() -> None:
    weights = weights_of(hugging_face(2, True))
    extra = weights | {"model.layers.3.mlp.up_proj.weight": torch.zeros(40, 32)}
    refused(extra, r"unknown \['model\.layers\.3\.mlp\.up_proj\.weight'\], missing \[\]")
    fewer = {
        name: weight for name, weight in weights.items() if name != "model.layers.1.self_attn.k_proj.weight"
    }
    refused(fewer, r"unknown \[\], missing \['model\.layers\.1\.self_attn\.k_proj\.weight'\]")
    reshaped = weights | {"model.norm.weight": torch.ones(31)}
    refused(reshaped, r"model\.norm\.weight has shape \(31,\), this decoder needs \(32,\)")
    refused(weights, r"missing \['lm_head\.weight'\]", tie_embeddings=False)
    refused(weights, r"missing \['model\.embed_positions\.weight'\]", positions="learned")
    untied = weights_of(hugging_face(2, False))
    refused(untied, r"unknown \['lm_head\.weight'\]")
    refused(
        weights,
        r"self_attn\.k_proj\.weight has shape \(16, 32\), this decoder needs \(32, 32\)",
        num_kv_heads=4,
    )


def test_layers_that_share_a_weight_must_agree_on_it() -> None:
    weights = weights_of(hugging_face(2, True))
    plan = make_plan([1, 1, 1], sharing="attention")
    decoder = Decoder(tiny_config(plan), plan)
    with pytest.raises(
        ValueError, match=r"model\.layers\.0\.input_layernorm\.weight and model\.layers\.1\.\S+ differ"
    ):
        load_llama_weights(decoder, weights)


@pytest.mark.parametrize("changes", [{"ffn": "gelu"}, {"embedding_width": 8}], ids=str)
def test_a_decoder_without_a_llama_counterpart_says_so(changes: dict[str, Any]) -> None:
    decoder = tiny_decoder(ONES, **changes)
    with pytest.raises(
        ValueError, match="LLaMA has SwiGLU feed-forwards and a token table as wide as the model"
    ):
        llama_weights(decoder)
