"""Speed of generation and of the analysis, as ratios within one run.

    python tests/benchmarks/generation.py [--quick]

Paper-small shape (vocabulary 1,024, width 128, 4 layers, context 1,024) under [4,2,1,1], untrained: the
weights do not matter to the time. Naive generation runs the whole text again for every token. A text's time
is integrated (trapezoids) from the steps at some lengths, the quickest of several rounds each, for all ways
alike: a step is short enough to be missed by what else the machine does. Compiling is not in the text's time;
its seconds stand below. Analysis and validation alternate; their figures are medians over rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Literal

import torch

from ilr.analysis.measure import Extent, analyse
from ilr.generation.decode import Predictor
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.inference import evaluating
from ilr.model.metrics import token_nll
from ilr.model.plan import make_plan

CONTEXT, VOCABULARY = 1024, 1024
STEPS = 24
"""Cached steps timed at each length."""

Way = Literal["naive", "cached", "compiled"]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round instead of several")
    quick = parser.parse_args().quick
    plan = make_plan([4, 2, 1, 1])
    decoder = Decoder(DecoderConfig(VOCABULARY, context=CONTEXT, width=128, num_layers=4, num_heads=4), plan)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, schedule {plan.label}")
    generation(decoder, 1 if quick else 8)
    analysis(decoder, 1 if quick else 3, 98_304)


def generation(decoder: Decoder, rounds: int) -> None:
    """The ways beside each other at two lengths, and batch 8 beside 1."""
    variants: list[tuple[Way, int, int]] = [
        (way, batch, length)
        for batch, length in ((1, 256), (8, 256), (1, CONTEXT))
        for way in ("naive", "cached", "compiled")
        if (way, batch) != ("naive", 8)
    ]
    for batch in (1, 8):
        compiling = timed(lambda rows=[[1] for _ in range(batch)]: compiled_twice(decoder, rows))
        print(f"compiling for batch {batch}: {compiling:.1f} s")
    seconds: dict[tuple[Way, int, int], list[float]] = {}
    for _ in range(rounds):
        for variant in variants:
            found = step_seconds(decoder, *variant)
            seconds[variant] = list(map(min, found, seconds.get(variant, found)))
    speeds = {}
    for way, batch, length in variants:
        speed = batch * length / text_seconds(length, seconds[way, batch, length])
        speeds[way, batch, length] = speed
        print(f"{way + ',':<10} batch {batch}, {length:>5} tokens {speed:8.0f} tokens/s")
    for way in ("cached", "compiled"):
        for length, bound in ((256, 6.5), (CONTEXT, 18)):
            ratio = speeds[way, 1, length] / speeds["naive", 1, length]
            report(f"{way} / naive at {length}", ratio, "at least", bound)
    report("cached, batch 8 / batch 1", speeds["cached", 8, 256] / speeds["cached", 1, 256], "at least", 3.5)
    print(f"compiled, batch 8 / batch 1 {speeds['compiled', 8, 256] / speeds['compiled', 1, 256]:.2f}×")


def measured_lengths(length: int) -> list[int]:
    """Lengths of the text at which a step is timed."""
    return torch.linspace(1, length - STEPS, 9).long().tolist()


def compiled_twice(decoder: Decoder, rows: list[list[int]]) -> None:
    """The first passes after a prompt, which compile."""
    predictor = Predictor(decoder, decoder.plan, use_cache=True, compile=True)
    with evaluating(decoder):
        for _ in range(3):
            cached_step(predictor, rows)


def step_seconds(decoder: Decoder, way: Way, batch: int, length: int) -> list[float]:
    """Seconds of the quickest step at each of the measured lengths."""
    best = []
    with evaluating(decoder):
        for at in measured_lengths(length):
            rows = [[row + 1] * at for row in range(batch)]
            if way != "naive":
                predictor = Predictor(decoder, decoder.plan, use_cache=True, compile=way == "compiled")
                predictor.next_logits(rows)
                best.append(min(timed(lambda p=predictor, r=rows: cached_step(p, r)) for _ in range(STEPS)))
            else:
                best.append(min(timed(lambda r=rows: naive_step(decoder, r)) for _ in range(2)))
    return best


def text_seconds(length: int, best: list[float]) -> float:
    """Seconds of writing a text of ``length`` tokens whose steps take ``best`` at the measured lengths."""
    lengths = measured_lengths(length)
    return float(torch.trapezoid(torch.tensor(best), torch.tensor(lengths)) * length / (lengths[-1] - 1))


def cached_step(predictor: Predictor, rows: list[list[int]]) -> None:
    """Write one token greedily to every row; the last one written is run."""
    for row in rows:
        row.append(1)
    predictor.next_logits(rows).argmax(dim=-1).tolist()


def naive_step(decoder: Decoder, rows: list[list[int]]) -> None:
    """The same by a whole forward pass."""
    decoder(torch.tensor(rows))[:, -1].argmax(dim=-1).tolist()


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
    print(f"{name:<26} {ratio:6.2f}×  ({relation} {bound:g}: {'met' if met else 'MISSED'})")


if __name__ == "__main__":
    main()
