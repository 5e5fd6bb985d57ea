"""Speed of generation and of the analysis, as ratios within one run.

    python tests/benchmarks/generation.py [--quick]

Paper-small shape (vocabulary 1,024, width 128, 4 layers, context 1,024) under [4,2,1,1], untrained: the
weights do not matter to the time. Naive generation runs the whole text again for every token. A text's time
is integrated (trapezoids) from the steps at some lengths, the quickest of several rounds each, for cached and
naive alike: a step is short enough to be missed by what else the machine does. Analysis and validation
alternate; their figures are medians over rounds.
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
from ilr.generation.decode import Predictor
from ilr.metrics import token_nll
from ilr.plan import make_plan

CONTEXT, VOCABULARY = 1024, 1024
STEPS = 24
"""Cached steps timed at each length."""


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
    """Cached against naive at two lengths, and batch 8 against 1."""
    variants = {
        f"{'cached' if use_cache else 'naive'}, batch {batch}, {length}": (batch, length, use_cache)
        for batch, length, use_cache in (
            (1, 256, True),
            (1, 256, False),
            (8, 256, True),
            (1, CONTEXT, True),
            (1, CONTEXT, False),
        )
    }
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, variant in variants.items():
            found = step_seconds(decoder, *variant)
            seconds[name] = list(map(min, found, seconds.get(name, found)))
    speeds = {}
    for name, (batch, length, _) in variants.items():
        speeds[name] = batch * length / text_seconds(length, seconds[name])
        print(f"{name:<24} {speeds[name]:8.0f} tokens/s")
    report(
        "cached / naive at 256",
        speeds["cached, batch 1, 256"] / speeds["naive, batch 1, 256"],
        "at least",
        6.5,
    )
    report(
        "cached / naive at 1,024",
        speeds["cached, batch 1, 1024"] / speeds["naive, batch 1, 1024"],
        "at least",
        18,
    )
    report(
        "batch 8 / batch 1", speeds["cached, batch 8, 256"] / speeds["cached, batch 1, 256"], "at least", 3.5
    )


def measured_lengths(length: int) -> list[int]:
    """Lengths of the text at which a step is timed."""
    return torch.linspace(1, length - STEPS, 9).long().tolist()


def step_seconds(decoder: Decoder, batch: int, length: int, use_cache: bool) -> list[float]:
    """Seconds of the quickest step at each of the measured lengths."""
    best = []
    with evaluating(decoder):
        for at in measured_lengths(length):
            rows = [[row + 1] * at for row in range(batch)]
            if use_cache:
                predictor = Predictor(decoder, decoder.plan, use_cache=True)
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
    print(f"{name:<24} {ratio:6.2f}×  ({relation} {bound:g}: {'met' if met else 'MISSED'})")


if __name__ == "__main__":
    main()
