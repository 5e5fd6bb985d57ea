"""The same training step beside other libraries' decoders, as ratios within one run.

    python tests/benchmarks/peers.py [--shape S|M] [--schedule "[4,2,1,1]"] [--precision 32|bf16]
        [--samples 10] [--compile ours hf …] [--peers hf x-transformers …]

Every variant has the same shapes, batch, loss, clipping and fused AdamW, a process of its own, the caller's
allocator (LD_PRELOAD, GLIBC_TUNABLES), and takes one step at a time in rotating order. The peers are Hugging
Face Llama (sdpa; its layers repeated by reference), x-transformers (execution order, attn_flash), litgpt
(unrepeated schedules, unless asked for) and "eager": Hugging Face Llama with softmax attention written out, as
the paper's code has it. "floor" runs the step's matrix products and attention kernels alone.

pip install transformers x-transformers litgpt; what is missing is named and left out.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from ilr.bench.products import KernelFloor
from ilr.bench.report import machine_line, milliseconds
from ilr.bench.run import Taken, find_device, take
from ilr.bench.sampling import Spread, ratio, seconds
from ilr.bench.step import TrainingStep, random_batch, training_step
from ilr.bench.variant import Variant, read_precision
from ilr.bench.worker import Job
from ilr.errors import InputError
from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import make_plan


@dataclass(frozen=True)
class Shape:
    """A model, its micro-batch, and the schedule that it is measured under."""

    config: DecoderConfig
    batch_size: int
    schedule: str


SHAPES = {
    "S": Shape(DecoderConfig(1024, context=1024, width=128, num_layers=4, num_heads=4), 8, "[4,2,1,1]"),
    "M": Shape(
        DecoderConfig(8192, context=512, width=512, num_layers=8, num_heads=8), 4, "[1,2,1,1,1,1,1,1]"
    ),
}

Logits = Callable[[Tensor], Tensor]


def hugging_face(variant: Variant, attention: str) -> tuple[nn.Module, Logits]:
    """Hugging Face Llama, its list of layers naming each as often as it is visited."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = variant.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.width,
            intermediate_size=config.sizes.ffn,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            max_position_embeddings=config.context,
            rms_norm_eps=config.norm_eps,
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation=attention,
        )
    )
    model.model.layers = nn.ModuleList(model.model.layers[visit.layer] for visit in variant.plan.visits)
    model.config.num_hidden_layers = variant.plan.depth
    return model, lambda tokens: model(tokens, use_cache=False).logits


def x_transformers(variant: Variant) -> tuple[nn.Module, Logits]:
    """x-transformers, each layer's two sublayers in the order of the visits."""
    from x_transformers import Decoder, TransformerWrapper

    config = variant.config
    layers = Decoder(
        dim=config.width,
        heads=config.num_heads,
        attn_dim_head=config.sizes.head,
        custom_layers=("a", "f") * config.num_layers,
        layers_execute_order=tuple(
            half for visit in variant.plan.visits for half in (2 * visit.layer, 2 * visit.layer + 1)
        ),
        attn_flash=True,
        use_rmsnorm=True,
        ff_mult=config.sizes.ffn / config.width,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        rotary_pos_emb=True,
        rotary_emb_dim=config.sizes.head,
        verbose=False,
    )
    model = TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=config.context,
        attn_layers=layers,
        use_abs_pos_emb=False,
        tie_embedding=True,
    )
    return model, model


def litgpt(variant: Variant) -> tuple[nn.Module, Logits]:
    """Litgpt's GPT with Llama's sublayers, its list of blocks naming each as often as it is visited."""
    from litgpt import GPT, Config

    config = variant.config
    model = GPT(
        Config(
            block_size=config.context,
            vocab_size=config.vocab_size,
            padded_vocab_size=config.vocab_size,
            n_layer=config.num_layers,
            n_head=config.num_heads,
            n_embd=config.width,
            intermediate_size=config.sizes.ffn,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            norm_eps=config.norm_eps,
            mlp_class_name="LLaMAMLP",
        )
    )
    model.lm_head.weight = model.transformer.wte.weight
    model.transformer.h = nn.ModuleList(model.transformer.h[visit.layer] for visit in variant.plan.visits)
    # Its own initialisation of a token table, N(0, 1), makes the first loss of a tied head enormous.
    nn.init.normal_(model.lm_head.weight, std=config.init_std)
    return model, model


PEERS: dict[str, tuple[str, Callable[[Variant], tuple[nn.Module, Logits]]]] = {
    "hf": ("transformers", partial(hugging_face, attention="sdpa")),
    "x-transformers": ("x_transformers", x_transformers),
    "litgpt": ("litgpt", litgpt),
    "eager": ("transformers", partial(hugging_face, attention="eager")),
}
"""Name → the package that it needs, and how its model is built."""


def peer_step(name: str, variant: Variant, compiled: bool, device: torch.device) -> TrainingStep:
    """A peer's step; refused where its parameters are not as many as ours, to 1 %."""
    torch.manual_seed(0)
    model, logits = PEERS[name][1](variant)
    model.to(device)
    held, ours = sum(one.numel() for one in model.parameters()), cost(variant.config, variant.plan).parameters
    if abs(held / ours - 1) > 0.01:
        raise ValueError(f"{name} has {held:,} parameters, ours {ours:,}")
    if compiled:
        model.compile()
    config = variant.config
    inputs, targets = random_batch(config.vocab_size, variant.batch_size, config.context, device)

    def loss() -> Tensor:
        return F.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten())

    return TrainingStep(loss, [{"params": list(model.parameters())}], variant.precision, device)


def jobs_for(variant: Variant, peers: list[str], compiled: list[str]) -> dict[str, Job]:
    """All rows: ours, the peers, each also compiled where asked, and the kernels alone."""
    jobs = {"ours": Job("ours", partial(training_step, variant))}
    if "ours" in compiled:
        faster = Variant(
            variant.config, variant.plan, variant.precision, "sublayers", batch_size=variant.batch_size
        )
        jobs["ours, sublayers"] = Job("ours, sublayers", partial(training_step, faster), True)
    for name in peers:
        jobs[name] = Job(name, partial(peer_step, name, variant, False))
        if name in compiled:
            both = f"{name}, compiled"
            jobs[both] = Job(both, partial(peer_step, name, variant, True), True)
    jobs["floor"] = Job("floor", partial(KernelFloor, variant))
    return jobs


def print_table(taken: dict[str, Taken], variant: Variant) -> None:
    """A row per variant, and what its time is over each of ours."""
    ours = [name for name in taken if name.startswith("ours")]
    table = Table(box=None, padding=(0, 1))
    table.add_column("variant", no_wrap=True)
    columns = ["ms/step", "[q1, q3]", "clean", "tokens/s", "MiB", "first loss", "compile s"]
    for title in [*columns, *(f"over {name}" for name in ours)]:
        table.add_column(Text(title), justify="right", no_wrap=True)
    for name, one in taken.items():
        step, is_step = seconds(one.samples), name != "floor"
        table.add_row(
            name,
            *map(Text, milliseconds(step)),
            f"{step.clean}/{step.taken}",
            f"{variant.tokens / step.median:,.0f}" if is_step else "",
            f"{one.peak.bytes / 2**20:,.0f}" if is_step else "",
            f"{one.ready.first_value:.4f}" if is_step else "",
            f"{one.compile_seconds:.1f}" if "compiled" in name or "sublayers" in name else "",
            *(Text(shown(ratio(one.samples, taken[base].samples))) for base in ours),
        )
    Console(width=max(Console().width, 160)).print(table)


def print_ratios(taken: dict[str, Taken]) -> None:
    """Ours beside the best peer in its better mode, the paper's attention, and the kernels alone."""
    fair = [name for name in taken if name != "floor" and not name.startswith(("ours", "eager"))]
    for name in (name for name in taken if name.startswith("ours")):
        if fair:
            best = min(fair, key=lambda peer: seconds(taken[peer].samples).median)
            report(f"best peer ({best}) / {name}", ratio(taken[best].samples, taken[name].samples))
        for slow in (peer for peer in taken if peer.startswith("eager")):
            report(f"softmax attention ({slow}) / {name}", ratio(taken[slow].samples, taken[name].samples))
        if "floor" in taken:
            report(f"kernel floor / {name}", ratio(taken["floor"].samples, taken[name].samples))


def report(what: str, found: Spread) -> None:
    """A ratio with its quartile on the unfavourable side."""
    print(f"{what:<54} {found.median:.3f}, unfavourable quartile {found.q1:.3f} ({found.clean} clean pairs)")


def shown(found: Spread) -> str:
    """A ratio with its quartiles."""
    return f"{found.median:.3f} [{found.q1:.3f}, {found.q3:.3f}]"


def available(asked: list[str] | None, unrepeated: bool) -> list[str]:
    """The peers to measure; says in one line which are missing."""
    wanted = asked if asked is not None else [name for name in PEERS if name != "litgpt" or unrepeated]
    missing = [name for name in wanted if find_spec(PEERS[name][0]) is None]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    return [name for name in wanted if name not in missing]


def main() -> int:
    """Measure and print; 2 for wrong use."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=tuple(SHAPES), default="S")
    parser.add_argument("--schedule", help="times per layer; default: [4,2,1,1] at S, [1,2,1,…,1] at M")
    parser.add_argument("--precision", choices=("32", "bf16"), default="32")
    parser.add_argument("--samples", type=int, default=10, help="clean samples of each (default: 10)")
    parser.add_argument("--compile", nargs="*", choices=("ours", *PEERS), default=[], metavar="VARIANT")
    parser.add_argument("--peers", nargs="*", choices=tuple(PEERS), metavar="PEER")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    schedule = options.schedule or shape.schedule
    try:
        times = [int(one) for one in schedule.strip("[]").split(",")]
    except ValueError:
        parser.error(f"--schedule is a list of times per layer such as [4,2,1,1], got {schedule!r}")
    if options.samples < 1:
        parser.error(f"--samples must be at least 1, got {options.samples}")
    try:
        plan = make_plan(times, shape.config.num_layers)
        device = find_device(options.device)
    except InputError as error:
        parser.error(str(error))
    variant = Variant(shape.config, plan, read_precision(options.precision), batch_size=shape.batch_size)
    peers = available(options.peers, unrepeated=set(times) == {1})
    jobs = jobs_for(variant, peers, options.compile)
    taken, failures = take(
        jobs, options.samples, device, lambda line: print(line, file=sys.stderr, flush=True)
    )
    for name, reason in failures.items():
        print(f"failed: {name}: {reason}")
    if not taken:
        return 1
    print(f"shape {options.shape}, schedule {plan.label}, {variant.precision}, batch {shape.batch_size}")
    print(machine_line(next(iter(taken.values())).ready.machine))
    print_table(taken, variant)
    print_ratios(taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
