"""A different plan at every step against one fixed plan of the same mean depth, sublayers compiled.

    python tests/benchmarks/random_depth.py [--rounds 10] [--compile sublayers|none]

Paper-small shape, batch 8. Eighteen plans that visit the middle layers 1 to 9 times, so 11 visits at most and
7 on average; the fixed plan has 7. Each round takes the eighteen plans in a new order, a step each, and
eighteen steps of the fixed plan between them, turn about. Printed: the ratio of the two times per round
(median and quartiles), the graphs that were compiled, and whether a recompile limit was hit.
"""

import argparse
import random
import statistics
import time

import torch

from ilr.model.compilation import execute
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan, Segment, make_plan
from ilr.training.optimiser import parameter_groups

CONTEXT, VOCABULARY, BATCH = 1024, 1024, 8


def plans() -> list[Plan]:
    """Prelude, middle, coda: one or both middle layers repeated, each depth from 3 to 11 twice."""
    ends = (Segment((0,)), Segment((3,)))
    single = [make_plan([ends[0], Segment((1,), times), ends[1]], 4) for times in range(1, 10)]
    both = [make_plan([ends[0], *middle(times), ends[1]], 4) for times in range(1, 10)]
    return single + both


def middle(times: int) -> list[Segment]:
    """Layers 1 and 2 together, ``times`` visits of both in all."""
    halves = [Segment((1, 2), times // 2)] if times > 1 else []
    return [*halves, *([Segment((2,))] if times % 2 else [])]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--compile", choices=("sublayers", "none"), default="sublayers")
    options = parser.parse_args()
    varied = plans()
    fixed = make_plan([Segment((0,)), Segment((1, 2)), Segment((1,), 3), Segment((3,))], 4)
    assert statistics.mean(plan.depth for plan in varied) == fixed.depth
    config = DecoderConfig(VOCABULARY, context=CONTEXT, width=128, num_layers=4, num_heads=4)
    decoder = Decoder(config, make_plan([1, 1, 1, 1]))
    execute(decoder, options.compile)
    optimizer = torch.optim.AdamW(parameter_groups(decoder, 0.1, None, False), lr=1e-3, fused=True)
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step(plan: Plan) -> float:
        begun = time.perf_counter()
        loss = decoder.nll_sum(inputs, targets, plan) / targets.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begun

    print(f"first step {step(fixed):.1f} s, one step of each plan {sum(map(step, varied)):.1f} s")
    rng, ratios = random.Random(0), []
    for number in range(options.rounds):
        pairs = [(step(plan), step(fixed)) for plan in rng.sample(varied, len(varied))]
        changing, same = map(sum, zip(*pairs, strict=True))
        ratios.append(changing / same)
        print(f"round {number + 1}: {changing:.2f} s / {same:.2f} s = {ratios[-1]:.3f}", flush=True)
    q1, median, q3 = statistics.quantiles(ratios, n=4, method="inclusive")
    print(f"random depth / fixed depth: {median:.3f} [{q1:.3f}, {q3:.3f}] over {len(ratios)} rounds")
    counters = torch._dynamo.utils.counters if options.compile != "none" else {"stats": {}, "graph_break": {}}
    print(
        f"graphs: {counters['stats'].get('unique_graphs', 0)}, graph breaks: {len(counters['graph_break'])}"
    )


if __name__ == "__main__":
    main()
