"""Speed of generation and of the analysis, as ratios within one run.

    python tests/benchmarks/generation.py [--quick]

Paper-small shape (vocabulary 1,024, width 128, 4 layers, context 1,024) under [4,2,1,1], untrained: the
weights do not matter to the time. Naive generation runs the whole text again for every token; at 1,024 its
time is integrated from steps at some lengths (trapezoids), for all of them would take minutes. Variants
alternate; each figure is the median over rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from ilr.analysis.measure import Extent, analyse
from ilr.config import DecoderConfig
from ilr.decoder import Decoder
from ilr.evaluating import evaluating
from ilr.generation.decode import Predictor, generate
from ilr.generation.sampling import Sampling
from ilr.metrics import token_nll
from ilr.plan import make_plan

CONTEXT, VOCABULARY = 1024, 1024
GREEDY = Sampling(temperature=0)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round, 16,384 analysed tokens")
    quick = parser.parse_args().quick
    rounds, tokens = (1, 16_384) if quick else (3, 98_304)
    plan = make_plan([4, 2, 1, 1])
    decoder = Decoder(DecoderConfig(VOCABULARY, context=CONTEXT, width=128, num_layers=4, num_heads=4), plan)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {plan.label}, medians of {rounds}"
    )
    generation(decoder, rounds)
    analysis(decoder, rounds, tokens)


def generation(decoder: Decoder, rounds: int) -> None:
    """Cached against naive at two lengths, and batch 8 against 1."""
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        for length in (256, CONTEXT):
            add(measured, f"cached, {length}", length / timed(lambda n=length: cached(decoder, 1, n)))
            add(measured, f"naive, {length}", length / naive_seconds(decoder, length))
        add(measured, "batch 8, 256", 8 * 256 / timed(lambda: cached(decoder, 8, 256)))
    figures = {name: statistics.median(values) for name, values in measured.items()}
    for name, value in figures.items():
        print(f"{name:<16} {value:8.0f} tokens/s")
    report("cached / naive at 256", figures["cached, 256"] / figures["naive, 256"], "at least", 6.5)
    report("cached / naive at 1,024", figures["cached, 1024"] / figures["naive, 1024"], "at least", 18)
    report("batch 8 / batch 1", figures["batch 8, 256"] / figures["cached, 256"], "at least", 3.5)


def analysis(decoder: Decoder, rounds: int, tokens: int) -> None:
    """Against scoring the same tokens in batches of 8 blocks."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.randint(VOCABULARY, (8, CONTEXT + 1), generator=generator)
        for _ in range(tokens // (8 * CONTEXT))
    ]
    batches = [
        {"inputs": row[:, :-1], "targets": row[:, 1:], "documents": torch.zeros_like(row[:, 1:])}
        for row in rows
    ]

    def validate() -> None:
        with evaluating(decoder):
            for batch in batches:
                token_nll(decoder(batch["inputs"]), batch["targets"]).double().sum()

    variants: dict[str, Callable[[], object]] = {
        "validation": validate,
        "without lens": lambda: analyse(decoder, batches, Extent(tokens, lens=False)),
        "with lens": lambda: analyse(decoder, batches, Extent(tokens, lens=True)),
        "sub-samples only": lambda: analyse(decoder, batches[:1], Extent(8 * CONTEXT, lens=False)),
    }
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, run in variants.items():
            add(measured, name, timed(run))
    figures = {name: statistics.median(values) for name, values in measured.items()}
    for name, value in figures.items():
        print(f"{name:<16} {value:8.2f} s")
    print("(analysis includes its sub-samples: attention over 8,192 tokens, Jacobians over 256 positions)")
    report("analysis / validation", figures["without lens"] / figures["validation"], "at most", 3)
    report("with lens / validation", figures["with lens"] / figures["validation"], "at most", 5)


def cached(decoder: Decoder, batch: int, length: int) -> None:
    """Write texts of ``length`` tokens from one each."""
    generate(decoder, [[token + 1] for token in range(batch)], length - 1, sampling=GREEDY)


def naive_seconds(decoder: Decoder, length: int) -> float:
    """Seconds of writing as many tokens by whole passes, integrated over the lengths measured."""
    lengths = torch.linspace(1, length, 17).long().tolist()
    predictor = Predictor(decoder, decoder.plan, use_cache=False)
    with evaluating(decoder):
        steps = [min(timed(lambda n=n: predictor.next_logits([[1] * n])) for _ in range(2)) for n in lengths]
    return float(torch.trapezoid(torch.tensor(steps), torch.tensor(lengths)))


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def add(measured: dict[str, list[float]], name: str, value: float) -> None:
    """Keep one measurement."""
    measured.setdefault(name, []).append(value)


def report(name: str, ratio: float, relation: str, bound: float) -> None:
    """One ratio beside what it is meant to be."""
    met = ratio >= bound if relation == "at least" else ratio <= bound
    print(f"{name:<24} {ratio:6.2f}×  ({relation} {bound:g}: {'met' if met else 'MISSED'})")


if __name__ == "__main__":
    main()
