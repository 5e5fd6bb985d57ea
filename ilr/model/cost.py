"""Parameters, FLOPs per token, cache and activation bytes of (config, plan); no torch.

Conventions (arXiv 2204.02311, appendix B): a multiply-add is one MAC and two FLOPs, a training step costs
three forward passes, attention is counted over the full context unless the name says causal; embedding
look-up, norms, softmax, positions and the optimiser count nothing.
"""

from dataclasses import asdict, dataclass

from ilr.bounds import check_count
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan


@dataclass(frozen=True)
class Cost:
    """What a schedule costs at one context length. Parameters in numbers, the rest per token.

    ``parameters_non_embedding`` counts the banks and the final norm. ``parameters_once`` and
    ``parameters_repeated`` split the banks by whether the plan runs them once or several times.
    ``flops_per_token`` is one training step: 6 × MACs. ``causal_…`` counts only the keys that a query sees.
    ``cache_bytes_per_token`` is for generation, ``activation_bytes_per_token`` what the forward pass keeps
    for the backward pass in eager training.
    """

    context: int
    depth: int
    parameters: int
    parameters_non_embedding: int
    parameters_once: int
    parameters_repeated: int
    macs_per_token: int
    causal_macs_per_token: float
    forward_flops_per_token: int
    flops_per_token: int
    causal_flops_per_token: float
    cache_bytes_per_token: int
    activation_bytes_per_token: int

    def as_dict(self) -> dict[str, int | float]:
        """The figures by name."""
        return asdict(self)


def cost(config: DecoderConfig, plan: Plan, context: int | None = None, bytes_per_value: int = 4) -> Cost:
    """The cost of a plan at ``context`` tokens (default: the config's), values of ``bytes_per_value`` bytes.

    Raises `InputError` for a context below 1 or a plan for another number of layers.
    """
    length = config.context if context is None else context
    check_count("context", length)
    if plan.num_layers != config.num_layers:
        raise InputError(f"the plan is for {plan.num_layers} layers, the config has {config.num_layers}")
    attention, ffn = attention_weights(config), ffn_weights(config)
    banks = plan.sharing.num_attention * (attention + config.width) + plan.sharing.num_ffn * (
        ffn + config.width
    )
    once, repeated = _once_and_repeated(config, plan)
    num_attention, num_ffn = (plan.runs_of_banks[kind].total() for kind in ("attention", "ffn"))
    linear = num_attention * attention + num_ffn * ffn + _ends_macs(config)
    macs = linear + 2 * num_attention * length * config.width
    causal = linear + num_attention * (length + 1) * config.width
    return Cost(
        context=length,
        depth=plan.depth,
        parameters=banks + config.width + _embedding_parameters(config),
        parameters_non_embedding=banks + config.width,
        parameters_once=once,
        parameters_repeated=repeated,
        macs_per_token=macs,
        causal_macs_per_token=causal,
        forward_flops_per_token=2 * macs,
        flops_per_token=6 * macs,
        causal_flops_per_token=6 * causal,
        cache_bytes_per_token=2 * plan.num_slots * config.sizes.kv * bytes_per_value,
        activation_bytes_per_token=_activation_values(config, num_attention, num_ffn) * bytes_per_value,
    )


def attention_weights(config: DecoderConfig) -> int:
    """Matrix weights of one attention: 2D² + 2·D·K·E, which is 4D² without grouping."""
    return 2 * config.width**2 + 2 * config.width * config.sizes.kv


def ffn_weights(config: DecoderConfig) -> int:
    """Matrix weights of one feed-forward: 3·D·F (SwiGLU) or 2·D·F (GELU)."""
    return (3 if config.ffn == "swiglu" else 2) * config.width * config.sizes.ffn


def training_flops(config: DecoderConfig, plan: Plan, tokens: int) -> int:
    """FLOPs of training on this many tokens in blocks of the config's context, without recomputation."""
    return cost(config, plan).flops_per_token * tokens


def _embedding_parameters(config: DecoderConfig) -> int:
    table = config.vocab_size * config.sizes.embedding
    factorised = config.sizes.embedding != config.width
    widen = config.sizes.embedding * config.width if factorised else 0
    narrow = widen if config.tie_embeddings else 0
    head = 0 if config.tie_embeddings else config.vocab_size * config.width
    positions = config.context * config.width if config.positions == "learned" else 0
    return table + widen + narrow + head + positions


def _ends_macs(config: DecoderConfig) -> int:
    """MACs per token before the first and after the last visit; the look-up is free, the tied head is not."""
    narrow = config.sizes.embedding
    widen = narrow * config.width if narrow != config.width else 0
    if not config.tie_embeddings:
        return widen + config.vocab_size * config.width
    return 2 * widen + config.vocab_size * narrow


def _once_and_repeated(config: DecoderConfig, plan: Plan) -> tuple[int, int]:
    attention, ffn = plan.runs_of_banks["attention"], plan.runs_of_banks["ffn"]
    sizes = attention_weights(config) + config.width, ffn_weights(config) + config.width
    once = [sum(count == 1 for count in runs.values()) for runs in (attention, ffn)]
    repeated = [len(runs) - alone for runs, alone in zip((attention, ffn), once, strict=True)]
    return (
        sum(number * size for number, size in zip(once, sizes, strict=True)),
        sum(number * size for number, size in zip(repeated, sizes, strict=True)),
    )


def _activation_values(config: DecoderConfig, num_attention: int, num_ffn: int) -> int:
    """Values per token that eager training keeps for the backward pass.

    Each norm keeps its input, its size and scale, that input normalised, and hands on one more that the
    matrices keep. Attention keeps queries, keys, values, output and a log-sum per head; SwiGLU keeps gate, its
    SiLU, up and their product, GELU its input and output; the head the gradient of what it multiplies. What
    all rows of a batch have in common (rotations, the ALiBi bias, the head's own gradient) is left out.
    """
    sizes, drop = config.sizes, config.width if config.dropout > 0 else 0
    norm = 3 * config.width + 2
    attention = norm + 2 * config.width + 2 * sizes.kv + config.num_heads + drop
    ffn = norm + (4 if config.ffn == "swiglu" else 2) * sizes.ffn + drop
    factorised = sizes.embedding != config.width
    ends = norm + drop
    if factorised:
        ends += sizes.embedding * (2 if config.tie_embeddings else 1)
    return num_attention * attention + num_ffn * ffn + ends
