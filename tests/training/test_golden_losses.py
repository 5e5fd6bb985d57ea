"""Losses of the first twenty steps of each baseline on real text, stored: a change of speed leaves them alone.

After a change that is meant to alter them, `python tests/training/test_golden_losses.py` stores new ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ilr.data.corpora import state_of_the_union
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.plan import make_plan
from ilr.training.optimiser import parameter_groups

STORED = Path(__file__).parents[1] / "golden" / "losses.json"
STEPS, BATCH, CONTEXT = 20, 4, 128
PRELUDE_CORE_CODA = [{"layers": [0]}, {"layers": [1, 2], "times": 3}, {"layers": [3]}]
BASELINES: dict[str, dict[str, Any]] = {
    "plain": {"schedule": [1, 1, 1, 1]},
    "repeated": {"schedule": [3, 2, 1, 1]},
    "ALBERT": {"schedule": [1, 1, 1, 1], "sharing": "all"},
    "attention shared": {"schedule": [1, 1, 1, 1], "sharing": "attention"},
    "feed-forward shared": {"schedule": [1, 1, 1, 1], "sharing": "ffn"},
    "prelude, core, coda": {"schedule": PRELUDE_CORE_CODA, "injection": "add"},
    "ALiBi": {"schedule": [3, 2, 1, 1], "positions": "alibi"},
    "learned positions": {"schedule": [3, 2, 1, 1], "positions": "learned"},
    "no positions": {"schedule": [3, 2, 1, 1], "positions": "none"},
    "GELU, untied, grouped keys": {
        "schedule": [3, 2, 1, 1],
        "ffn": "gelu",
        "tie_embeddings": False,
        "num_kv_heads": 2,
    },
}


def losses(schedule: Any, sharing: str = "none", **changes: Any) -> list[float]:
    """NLL per byte, in nats, before each of the steps: the embedded corpus from its beginning."""
    plan = make_plan(schedule, 4, sharing)
    config = DecoderConfig(256, context=CONTEXT, width=64, num_layers=4, num_heads=4, **changes)
    decoder = Decoder(config, plan, init_seed=1)
    optimizer = torch.optim.AdamW(parameter_groups(decoder, 0.1, None, False), lr=1e-3, fused=True)
    text = bytearray()
    for address in state_of_the_union():
        text += "".join(piece or "" for piece in address.pieces()).encode()
        if len(text) > STEPS * BATCH * CONTEXT:
            break
    ids = torch.frombuffer(text, dtype=torch.uint8).long()
    found = []
    for step in range(STEPS):
        begin = step * BATCH * CONTEXT
        inputs = ids[begin : begin + BATCH * CONTEXT].view(BATCH, CONTEXT)
        targets = ids[begin + 1 : begin + 1 + BATCH * CONTEXT].view(BATCH, CONTEXT)
        loss = decoder.nll_sum(inputs, targets) / targets.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", BASELINES)
def test_the_first_losses_are_the_stored_ones(name: str) -> None:
    stored = json.loads(STORED.read_text())[name]
    assert stored[-1] < stored[0] - 1  # it learns
    assert losses(**BASELINES[name]) == pytest.approx(stored, rel=1e-5)


if __name__ == "__main__":
    STORED.write_text(
        json.dumps({name: losses(**choice) for name, choice in BASELINES.items()}, indent=1) + "\n"
    )
