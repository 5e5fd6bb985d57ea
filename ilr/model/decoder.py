"""The decoder: embed, run any visits, predict."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ilr.errors import InputError
from ilr.model.cache import KVCache, Slot
from ilr.model.compilation import Execution
from ilr.model.config import DecoderConfig
from ilr.model.initialise import initialise
from ilr.model.layers import Attention, Linear, RMSNorm, make_dropout, make_feed_forward
from ilr.model.loss import linear_nll, linear_nll_sum
from ilr.model.memory import Use, check_memory
from ilr.model.plan import Plan, Visit, make_plan
from ilr.model.positions import Index, Span, check_length, make_positions

Observer = Callable[[Visit, Tensor, Tensor], None]
"""Called after each visit with the visit and the residual stream (B, T, D) before and after it."""


@dataclass(frozen=True)
class Context:
    """What a run of visits needs besides the residual stream: positions, slots of a cache, observer."""

    index: Index
    slots: Sequence[Slot] | None = None
    observe: Observer | None = None

    def slot(self, visit: Visit) -> Slot | None:
        """Where the visit's keys and values are kept, None without a cache."""
        return None if self.slots is None or visit.slot is None else self.slots[visit.slot]


class Decoder(nn.Module):
    """A pre-norm decoder language model: banks of sublayers, and a loop that runs any plan over them.

    ``plan`` fixes the banks (how many distinct attentions and feed-forwards there are) and is what runs
    unless a forward pass is given another one. Every weight is drawn from its own generator, seeded by
    (init_seed, state-dict key), so equal keys and shapes start equal whatever the schedule or sharing. Raises
    `InputError` for a plan of another number of layers, and for weights that no memory of this machine holds.

    ``execution`` says how it is run (`execute` sets it): plain data, so that a copy runs its own weights alike.
    """

    def __init__(self, config: DecoderConfig, plan: Plan, *, init_seed: int = 0) -> None:
        super().__init__()
        if plan.num_layers != config.num_layers:
            raise InputError(f"the plan is for {plan.num_layers} layers, the config has {config.num_layers}")
        if torch.get_default_device().type == "cpu":
            check_memory(config, plan, Use())
        self.config, self.plan = config, plan
        narrow = config.sizes.embedding
        self.embedding = nn.Embedding(config.vocab_size, narrow)
        self.widen = Linear(narrow, config.width) if narrow != config.width else nn.Identity()
        self.positions = make_positions(config)
        self.dropout = make_dropout(config)
        self.attention = nn.ModuleList(Attention(config) for _ in range(plan.sharing.num_attention))
        self.ffn = nn.ModuleList(make_feed_forward(config) for _ in range(plan.sharing.num_ffn))
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        tied_and_factorised = config.tie_embeddings and narrow != config.width
        self.narrow = Linear(config.width, narrow) if tied_and_factorised else nn.Identity()
        self.head = None if config.tie_embeddings else Linear(config.width, config.vocab_size)
        self.execution = Execution()
        self.init_seed = init_seed
        self.reset_parameters()

    def forward(
        self,
        tokens: Tensor,
        plan: Plan | None = None,
        *,
        cache: KVCache | None = None,
        padding: Tensor | None = None,
        observe: Observer | None = None,
    ) -> Tensor:
        """Logits (B, T, V) for the token after each of ``tokens`` (B, T), int64.

        ``plan``: other visits over the same weights. ``cache``: past tokens of the same plan, extended.
        ``padding`` (B,): left-padding tokens of each row (a cache carries its own). ``observe``: see
        `Observer`. Raises `InputError` for a plan whose operands the banks lack, a cache of another plan,
        padding of another batch, or a text longer than learned positions reach.
        """
        return self.predict(self.states(tokens, plan, cache=cache, padding=padding, observe=observe))

    def states(
        self,
        tokens: Tensor,
        plan: Plan | None = None,
        *,
        cache: KVCache | None = None,
        padding: Tensor | None = None,
        observe: Observer | None = None,
    ) -> Tensor:
        """Residual stream (B, T, D) after the last visit, before the final norm; arguments as `forward`."""
        plan = self.plan if plan is None else self.checked(plan)
        past = 0
        if cache is not None:
            cache.check(self.config, plan, tokens.shape[0])
            past, padding = cache.length, cache.padding
        if padding is not None and padding.shape != tokens.shape[:1]:
            raise InputError(
                f"padding needs one count for each of {len(tokens)} rows, got {list(padding.shape)}"
            )
        span = Span(past, tokens.shape[1], padding, tokens.device, self.compute_dtype)
        check_length(self.positions, past + span.length)
        ctx = Context(self.positions.index(span), None if cache is None else cache.slots, observe)
        x = self.execution.go_through(self, self.embed(tokens, span), plan, ctx)
        if cache is not None:
            cache.advance(span.length)
        return x

    def nll(
        self, tokens: Tensor, targets: Tensor, plan: Plan | None = None, *, observe: Observer | None = None
    ) -> Tensor:
        """NLL of each of ``targets`` (B, T), as `token_nll` has it, without gradients or whole logits."""
        return linear_nll(*self._head(self.states(tokens, plan, observe=observe)), targets)

    def nll_sum(
        self, tokens: Tensor, targets: Tensor, plan: Plan | None = None, *, observe: Observer | None = None
    ) -> Tensor:
        """Sum of NLL over ``targets`` (B, T), a scalar, with gradients but without whole logits."""
        return linear_nll_sum(*self._head(self.states(tokens, plan, observe=observe)), targets)

    def go_through(self, x: Tensor, plan: Plan, ctx: Context) -> Tensor:
        """Residual stream (B, T, D) after all passes of the plan, from the embeddings x (B, T, D)."""
        start = x
        for one in plan.passes():
            if one.repetition == 0:
                start = x
            elif self.config.injection == "add":
                x = x + start
            x = self.run(x, one.visits, ctx)
        return x

    def run(self, x: Tensor, visits: Iterable[Visit], ctx: Context) -> Tensor:
        """Apply the visits in order to the residual stream x (B, T, D)."""
        for visit in visits:
            before = x
            x = self.execution.visit(self, x, visit, ctx)
            if ctx.observe is not None:
                ctx.observe(visit, before, x)
        return x

    def visit(self, x: Tensor, visit: Visit, ctx: Context) -> Tensor:
        """Apply one visit to the residual stream x (B, T, D)."""
        if visit.attention is not None:
            x = x + self.attention[visit.attention](x, ctx.index, ctx.slot(visit))
        if visit.ffn is not None:
            x = x + self.ffn[visit.ffn](x)
        return x

    def embed(self, tokens: Tensor, span: Span) -> Tensor:
        """Residual stream (B, T, D) of tokens (B, T) before the first visit."""
        return self.dropout(self.positions.add(self.widen(self.embedding(tokens)), span))

    def predict(self, x: Tensor) -> Tensor:
        """Logits (B, T, V) of the residual stream x (B, T, D): final norm and head."""
        return F.linear(*self._head(x))

    def _head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the head multiplies: features (B, T, …) of the residual stream, and the matrix (V, …)."""
        return self.narrow(self.norm(x)), (self.embedding if self.head is None else self.head).weight

    def checked(self, plan: Plan) -> Plan:
        """The plan, or `InputError` where it names layers or bank entries that this decoder does not have."""
        if plan.num_layers != self.config.num_layers:
            raise InputError(
                f"the plan is for {plan.num_layers} layers, this decoder has {self.config.num_layers}"
            )
        needed = (plan.sharing.num_attention, plan.sharing.num_ffn)
        held = (len(self.attention), len(self.ffn))
        if any(need > have for need, have in zip(needed, held, strict=True)):
            raise InputError(
                f"the plan {plan.label} needs {needed[0]} attention and {needed[1]} feed-forward weights, "
                f"this decoder ({self.plan.label}) has {held[0]} and {held[1]}"
            )
        return plan

    def plan_for(self, schedule: Sequence[Any]) -> Plan:
        """Another schedule, of any form that `make_plan` takes, over this decoder's layers and sharing."""
        return self.checked(make_plan(schedule, self.config.num_layers, self.plan.sharing))

    def reset_parameters(self) -> None:
        """Draw every weight again, as the constructor did: after a decoder of the meta device got its memory."""
        initialise(self, self.config, self.plan, self.init_seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, or what was pickled, runs as the original did: torch leaves compiled code out of both."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.execution.prepare(self)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The type that matrix products run in: autocast's where it is on, else the weights'."""
        kind = self.device.type
        return (
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.embedding.weight.dtype
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device
