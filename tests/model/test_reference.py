"""The published code of the ILR paper gives the same logits, loss and gradients from the same weights."""

import hashlib
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.llama import llama_names, load_llama_weights
from ilr.model.metrics import token_nll
from ilr.model.plan import make_plan
from ilr.model.schedules import block

CASES = [
    *(
        f"{scheme}_{schedule}"
        for scheme in ("nope", "rope", "ape", "alibi")
        for schedule in ("1111", "3211", "1124")
    ),
    "rope_block2",
    "rope_block2_inject",
]
SCHEMES = {"nope": "none", "rope": "rope", "ape": "learned", "alibi": "alibi"}


@cache
def golden() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "golden" / "ilr_paper.npz") as arrays:
        return dict(arrays)


class Draws:
    """Normal draws as torch's CPU generator makes them: uniforms of MT19937, Box-Muller in blocks of 16.

    A tensor whose size is no multiple of 16 draws its last 16 values again. Written in float64, so that it
    gives the same on every machine; `weight_bits` holds what float32 arithmetic made of the last bits.
    """

    def __init__(self, seed: int, skip: int) -> None:
        words = np.frombuffer(np.random.RandomState(seed).bytes(4 * (skip + 50_000)), dtype="<u4")
        self.uniforms, self.at = (words & 0xFFFFFF) / 2.0**24, skip

    def normal(self, shape: tuple[int, ...], mean: float, deviation: float) -> np.ndarray:
        size = math.prod(shape)
        drawn = self._normal(size)
        if size % 16:
            drawn = np.concatenate((drawn[: size - 16], self._normal(16)))
        return (mean + deviation * drawn).astype(np.float32).reshape(shape)

    def _normal(self, size: int) -> np.ndarray:
        blocks = self.uniforms[self.at : self.at + -(-size // 16) * 16].reshape(-1, 2, 8)
        self.at += size
        radius, angle = np.sqrt(-2 * np.log(1 - blocks[:, 0])), 2 * np.pi * blocks[:, 1]
        return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).ravel()[:size]


def paper_decoder(case: str) -> Decoder:
    """A decoder without weights of its own yet, of the case's config and plan."""
    theirs = json.loads(str(golden()[f"{case}/config"]))
    config = DecoderConfig(
        vocab_size=theirs["vocab_size"],
        context=theirs["max_position_embeddings"],
        width=theirs["hidden_size"],
        num_layers=theirs["num_hidden_layers"],
        num_heads=theirs["num_attention_heads"],
        ffn_width=theirs["intermediate_size"],
        positions=SCHEMES[theirs["positional_encoding"]],  # type: ignore[arg-type]
        rope_theta=theirs["rope_theta"],
        norm_eps=theirs["rms_norm_eps"],
        injection="add" if theirs.get("use_recurrent_embeds") else "none",
    )
    schedule = theirs["loop_map"] or block(config.num_layers, theirs["num_loops"])
    return Decoder(config, make_plan(schedule, config.num_layers))


def paper_weights(case: str, decoder: Decoder) -> dict[str, Tensor]:
    """The case's weights, drawn again in the order of their model: each layer's matrices before its norms."""
    theirs = json.loads(str(golden()[f"{case}/config"]))
    draws = Draws(theirs["seed"], theirs["draws_before_weights"])
    names, state = llama_names(decoder), decoder.state_dict()
    ends = ["model.norm.weight", "model.embed_positions.weight"]
    layers = [name for name in names if name.startswith("model.layers.")]
    layers.sort(key=lambda name: (int(name.split(".")[2]), "layernorm" in name))
    bits, digest, weights = golden()[f"{case}/weight_bits"], hashlib.sha256(), {}
    for name in ["model.embed_tokens.weight", *layers, *(end for end in ends if end in names)]:
        mean, deviation = (1.0, 0.2) if "norm" in name else (0.0, 0.08)
        drawn = draws.normal(tuple(state[names[name]].shape), mean, deviation)
        correction, bits = bits[: drawn.size].reshape(drawn.shape), bits[drawn.size :]
        exact = (drawn.view(np.int32) + correction).view(np.float32)
        digest.update(exact.tobytes())
        weights[name] = torch.from_numpy(exact)
    assert digest.hexdigest() == str(golden()[f"{case}/weight_sha256"]), (
        "the weights are not those of the case"
    )
    return weights


@pytest.mark.parametrize("case", CASES)
def test_the_papers_code_gives_these_logits_loss_and_gradients(case: str) -> None:
    decoder = paper_decoder(case)
    load_llama_weights(decoder, paper_weights(case, decoder))
    tokens = torch.from_numpy(golden()[f"{case}/input_ids"]).long()
    logits = decoder(tokens)
    loss = token_nll(logits[:, :-1], tokens[:, 1:]).mean()
    loss.backward()
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(logits, torch.from_numpy(golden()[f"{case}/logits"]), **close)
    torch.testing.assert_close(loss[None], torch.from_numpy(golden()[f"{case}/loss"]), **close)
    gradients = [key.removeprefix(f"{case}/grad.") for key in golden() if key.startswith(f"{case}/grad.")]
    assert len(gradients) == 3
    for name in gradients:
        actual = decoder.get_parameter(llama_names(decoder)[name]).grad
        assert actual is not None
        torch.testing.assert_close(actual, torch.from_numpy(golden()[f"{case}/grad.{name}"]), **close)


def test_every_case_of_the_reference_is_checked() -> None:
    assert {key.split("/")[0] for key in golden()} == set(CASES)
