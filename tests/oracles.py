"""Tiny decoders, the plans that every test of the core runs, and a plain stack written a second time.

`PlainStack` shares no code with `ilr`: it has one copy of the weights per visit, writes attention as a
softmax of scores, and knows neither banks nor plans once it is copied.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.schedules import block, cycle, prelude_core_coda, reversed_cycle
from ilr.model.sharing import Sharing

VOCAB, LENGTH = 37, 20
TOKENS = torch.randint(VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(7))
POSITIONS = ("rope", "alibi", "learned", "none")

PLANS = (
    make_plan([1, 1, 1, 1]),
    make_plan([3, 2, 1, 1]),
    make_plan([1, 1, 2, 4]),
    make_plan([1, 3]),
    make_plan(block(3, 2)),
    make_plan(prelude_core_coda(1, 2, 1, 3)),
    make_plan(cycle(3, 5)),
    make_plan(reversed_cycle(3, 6)),
    make_plan([Segment((3, 0, 2))], num_layers=4),
    make_plan([Segment((0,)), Segment((1,), 3, "attention"), Segment((1, 2))]),
    make_plan([Segment((0, 1), 2, "ffn"), Segment((2,), 2, "attention"), Segment((1,), 1)]),
    make_plan([3, 2, 1, 1], sharing="attention"),
    make_plan([3, 2, 1, 1], sharing="ffn"),
    make_plan([3, 2, 1, 1], sharing="all"),
    make_plan([2, 1, 1, 2], sharing=Sharing.groups(4, 2)),
    make_plan([1, 2, 1, 1], sharing=Sharing.sandwich(4)),
    make_plan([1, 2, 1, 2], sharing={"attention": [0, 1, 0, 1], "ffn": [2, 1, 0, 0]}),
    make_plan([Segment((0, 1)), Segment((1, 0), 2, "attention")], sharing="attention"),
)


def tiny_config(plan: Plan, **changes: Any) -> DecoderConfig:
    """A config with grouped keys and a start so wide that attention is far from uniform."""
    tiny: dict[str, Any] = {
        "vocab_size": VOCAB,
        "context": LENGTH,
        "width": 32,
        "num_layers": plan.num_layers,
        "num_heads": 4,
        "num_kv_heads": 2,
        "ffn_width": 40,
        "init_std": 0.2,
    }
    return DecoderConfig(**(tiny | changes))


def tiny_decoder(plan: Plan, **changes: Any) -> Decoder:
    """A float64 decoder in evaluation mode whose norms differ, so that a wrong norm shows."""
    decoder = Decoder(tiny_config(plan, **changes), plan)
    return with_random_norms(decoder).double().eval()


@torch.no_grad()
def with_random_norms(decoder: Decoder) -> Decoder:
    """The decoder with each norm's weights drawn around 1."""
    generator = torch.Generator().manual_seed(3)
    for weight in decoder.parameters():
        if weight.dim() == 1:
            weight.copy_(1 + 0.2 * torch.randn(weight.shape, generator=generator))
    return decoder


def unrolled_twin(decoder: Decoder, plan: Plan) -> Decoder:
    """An all-ones decoder with one layer per visit of the plan, each a copy of what that visit uses."""
    ones = make_plan([1] * plan.depth)
    twin = (
        Decoder(replace(decoder.config, num_layers=plan.depth), ones)
        .to(decoder.embedding.weight.dtype)
        .eval()
    )
    ends = {
        key: weight
        for key, weight in decoder.state_dict().items()
        if not key.startswith(("attention.", "ffn."))
    }
    twin.load_state_dict(ends, strict=False)
    for number, visit in enumerate(plan.visits):
        assert visit.attention is not None
        assert visit.ffn is not None
        twin.attention[number].load_state_dict(decoder.attention[visit.attention].state_dict())
        twin.ffn[number].load_state_dict(decoder.ffn[visit.ffn].state_dict())
    return twin


def assert_equal(actual: Tensor | None, expected: Any) -> None:
    """Equal up to the order in which float64 sums are taken."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


Weights = dict[str, Tensor]


@dataclass(frozen=True)
class PlainStack:
    """One copy of an attention or feed-forward (or None) per visit; applied in order, once each."""

    config: DecoderConfig
    ends: Weights
    layers: tuple[tuple[Weights | None, Weights | None], ...]

    @classmethod
    def copied(cls, decoder: Decoder, plan: Plan | None = None) -> "PlainStack":
        """Copies of what each visit of the plan uses, as leaves that gather their own gradients."""
        layers = []
        for visit in (plan or decoder.plan).visits:
            attention = None if visit.attention is None else _copy(decoder.attention[visit.attention])
            ffn = None if visit.ffn is None else _copy(decoder.ffn[visit.ffn])
            layers.append((attention, ffn))
        whole = _copy(decoder).items()
        ends = {key: weight for key, weight in whole if not key.startswith(("attention.", "ffn."))}
        return cls(decoder.config, ends, tuple(layers))

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        x = self.embed(tokens)
        for number in range(len(self.layers)):
            x = self.visit(number, x)
        return self.predict(x)

    def embed(self, tokens: Tensor) -> Tensor:
        """Residual stream (B, T, D) before the first visit."""
        x = self.ends["embedding.weight"][tokens]
        if "widen.weight" in self.ends:
            x = x @ self.ends["widen.weight"].T
        if self.config.positions == "learned":
            x = x + self.ends["positions.table.weight"][: tokens.shape[1]]
        return x

    def visit(self, number: int, x: Tensor) -> Tensor:
        """Residual stream after the visit of this number."""
        attention, ffn = self.layers[number]
        if attention is not None:
            x = x + self._attend(attention, x)
        if ffn is not None:
            normed = self._norm(x, ffn["norm.weight"])
            up = normed @ ffn["up.weight"].T
            gated = F.silu(normed @ ffn["gate.weight"].T) * up if "gate.weight" in ffn else F.gelu(up)
            x = x + gated @ ffn["down.weight"].T
        return x

    def predict(self, x: Tensor) -> Tensor:
        """Logits (B, T, V) of the residual stream."""
        x = self._norm(x, self.ends["norm.weight"])
        if "narrow.weight" in self.ends:
            x = x @ self.ends["narrow.weight"].T
        return x @ self.ends.get("head.weight", self.ends["embedding.weight"]).T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps).sqrt() * weight

    def _attend(self, weights: Weights, x: Tensor) -> Tensor:
        heads, kv_heads, length = self.config.num_heads, self.config.sizes.kv_heads, x.shape[1]
        normed = self._norm(x, weights["norm.weight"])
        queries = (normed @ weights["query.weight"].T).chunk(heads, -1)
        keys = (normed @ weights["key.weight"].T).chunk(kv_heads, -1)
        values = (normed @ weights["value.weight"].T).chunk(kv_heads, -1)
        behind = torch.arange(length)[:, None] - torch.arange(length)  # query minus key
        mixed = []
        for head in range(heads):
            group = head * kv_heads // heads
            query, key = self._rotate(queries[head]), self._rotate(keys[group])
            scores = query @ key.transpose(1, 2) / (self.config.width // heads) ** 0.5
            if self.config.positions == "alibi":
                scores = scores - published_slopes(heads)[head] * behind.to(scores.dtype)
            scores = scores.masked_fill(behind < 0, float("-inf"))
            mixed.append(scores.softmax(-1) @ values[group])
        return torch.cat(mixed, -1) @ weights["output.weight"].T

    def _rotate(self, head: Tensor) -> Tensor:
        """Feature i and i + E/2 as a complex number turned by position · theta^(−2i/E), angles in float32."""
        if self.config.positions != "rope":
            return head
        half = head.shape[-1] // 2
        frequencies = 1.0 / self.config.rope_theta ** (torch.arange(half).float() / half)
        angles = torch.arange(head.shape[1]).float()[:, None] * frequencies
        turn = torch.complex(angles.cos().to(head.dtype), angles.sin().to(head.dtype))
        turned = torch.complex(head[..., :half], head[..., half:]) * turn
        return torch.cat((turned.real, turned.imag), -1)


def published_slopes(heads: int) -> list[float]:
    """ALiBi's slopes, word for word as its paper's code computes them."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    lower: int = 2 ** math.floor(math.log2(heads))
    return published_slopes(lower) + published_slopes(2 * lower)[0::2][: heads - lower]


def _copy(module: torch.nn.Module) -> Weights:
    return {key: weight.detach().clone().requires_grad_() for key, weight in module.named_parameters()}
