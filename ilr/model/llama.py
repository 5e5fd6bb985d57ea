"""Hugging Face LLaMA names and weights, in and out."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.model.weights import without_tied_head

_ATTENTION = {
    "input_layernorm": "norm",
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "output",
}
_FFN = {
    "post_attention_layernorm": "norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}


def llama_names(decoder: Decoder) -> dict[str, str]:
    """Hugging Face LLaMA name → state-dict key, for every layer of this decoder.

    Learned positions stand under ``model.embed_positions.weight``. Layers that share weights name the same
    key. Raises `InputError` for a decoder without a LLaMA counterpart (GELU, factorised embedding).
    """
    config, sharing = decoder.config, decoder.plan.sharing
    if config.ffn != "swiglu" or config.sizes.embedding != config.width:
        raise InputError(
            "LLaMA has SwiGLU feed-forwards and a token table as wide as the model; this decoder has "
            f"ffn {config.ffn} and embedding_width {config.sizes.embedding} of width {config.width}"
        )
    names = {"model.embed_tokens.weight": "embedding.weight", "model.norm.weight": "norm.weight"}
    if config.positions == "learned":
        names["model.embed_positions.weight"] = "positions.table.weight"
    if not config.tie_embeddings:
        names["lm_head.weight"] = "head.weight"
    for layer in range(config.num_layers):
        for theirs, ours in _ATTENTION.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = (
                f"attention.{sharing.attention[layer]}.{ours}.weight"
            )
        for theirs, ours in _FFN.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"ffn.{sharing.ffn[layer]}.{ours}.weight"
    return names


@torch.no_grad()
def load_llama_weights(decoder: Decoder, weights: Mapping[str, Tensor]) -> None:
    """Copy weights under Hugging Face LLaMA names into the decoder.

    A ``lm_head.weight`` that equals the embedding is what tied embeddings look like when written out. Raises
    `InputError`, and changes nothing, for an unknown or missing name, another shape, or layers that this decoder
    shares but whose weights differ.
    """
    names = llama_names(decoder)
    weights = without_tied_head(weights, names)
    unknown, missing = sorted(set(weights) - set(names)), sorted(set(names) - set(weights))
    if unknown or missing:
        raise InputError(f"LLaMA weights do not fit this decoder: unknown {unknown}, missing {missing}")
    state = decoder.state_dict()
    chosen: dict[str, str] = {}
    for theirs, ours in names.items():
        if weights[theirs].shape != state[ours].shape:
            raise InputError(
                f"{theirs} has shape {tuple(weights[theirs].shape)}, this decoder needs {tuple(state[ours].shape)} "
                f"({ours})"
            )
        first = chosen.setdefault(ours, theirs)
        if not torch.equal(weights[first], weights[theirs]):
            raise InputError(
                f"{first} and {theirs} differ, but this decoder has one weight for both ({ours})"
            )
    for ours, theirs in chosen.items():
        state[ours].copy_(weights[theirs])


def llama_weights(decoder: Decoder) -> dict[str, Tensor]:
    """The decoder's weights under Hugging Face LLaMA names: the inverse of `load_llama_weights`."""
    state = decoder.state_dict()
    return {theirs: state[ours] for theirs, ours in llama_names(decoder).items()}
