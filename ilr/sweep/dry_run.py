"""What a sweep would cost and could show, without starting anything. No torch."""

import math
from statistics import median
from typing import Any

from ilr.errors import InputError
from ilr.runs.options import Options
from ilr.sweep.detectable import POWER, Noise, assumed, detectable, measured
from ilr.sweep.display import duration
from ilr.sweep.report import by_hand, text_table
from ilr.sweep.runs import Run, Sweep, find_baseline
from ilr.sweep.state import ENDED, state_of, summary_of

ASSUMED_SPEED = 5e10
"""Training FLOP/s where nobody says and no run of the sweep has ended: one run on two processors."""


def describe(sweep: Sweep, speed: float | None, seed_sd: float | None, at_once: int) -> str:
    """Every run with its cost, the total, and what differences the sweep could find."""
    speed, source = _speed(sweep, speed)
    rows = [_row(sweep, run, speed) for run in sweep.runs]
    header = ("run", "state", "parameters", "FLOPs/token", "tokens", "training FLOPs", "time")
    lines = [text_table(header, rows, left=2), ""]
    lines += [f"{run.arm.label}: {run.arm.note}" for run in _first_of_each_arm(sweep) if run.arm.note]
    if sweep.file.held_equal == "flops":
        baseline = find_baseline(sweep.file, list(sweep.arms)).label
        lines.append(f"held equal: training FLOPs, those of {baseline}; left by whole steps:")
        lines += [
            f"  {run.arm.label}: {run.steps:,} steps, {run.mismatch:+.2%}"
            for run in _first_of_each_arm(sweep)
            if run.mismatch is not None and run.steps is not None
        ]
    else:
        lines.append("held equal: tokens")
    if sweep.repeated:
        lines.append(f"given more than once, run once: {', '.join(sweep.repeated)}")
    lines += ["", _total(sweep, speed, source, at_once), _power(sweep, seed_sd)]
    lines += ["", "A run by hand, for example the first:", by_hand(sweep.runs[0])]
    return "\n".join([*lines, "", "Nothing was started."])


def _row(sweep: Sweep, run: Run, speed: float) -> list[str]:
    flops = run.training_flops
    exact = "" if run.steps is not None or run.tokens is None else "≤ "
    return [
        run.name,
        state_of(sweep, run),
        f"{run.cost.parameters:,}",
        f"{run.cost.flops_per_token:,}",
        "?" if run.tokens is None else f"{exact}{run.tokens:,}",
        "?" if flops is None else f"{exact}{flops:.3g}",
        "?" if flops is None else duration(flops / speed),
    ]


def _total(sweep: Sweep, speed: float, source: str, at_once: int) -> str:
    left = [run for run in sweep.runs if state_of(sweep, run) not in ENDED]
    known = [run.training_flops for run in left if run.training_flops is not None]
    text = (
        f"{len(sweep.runs)} runs of {len(sweep.arms)} arms, {len(left)} to do: {sum(known):.3g} training FLOPs, "
        f"{duration(sum(known) / speed)} one after another"
    )
    if at_once > 1:
        text += f", {duration(sum(known) / speed / at_once)} with {at_once} at a time"
    unknown = len(left) - len(known)
    if unknown:
        text += f"; {unknown} runs of unknown length (no max_steps, no max_train_tokens) not counted"
    return (
        f"{text}. Speed: {speed:.3g} training FLOP/s a run, {source}; without preparing data and validating."
    )


def _power(sweep: Sweep, seed_sd: float | None) -> str:
    seeds, arms = len(sweep.file.seeds), len(sweep.arms)
    noise = (_measured(sweep) if seed_sd is None else None) or assumed(seed_sd)
    documents = noise.documents or planned_documents(sweep.runs[0].arm.options)
    size = detectable(noise, arms, seeds, documents)
    text = f"{documents:,} documents" if documents else "documents not counted (number unknown)"
    if math.isnan(size):
        reason = "one seed: the noise of seeds stays unknown" if arms > 1 else "one arm: nothing to compare"
        return f"Detectable difference: none can be told ({reason})."
    return (
        f"Detectable difference: {size:.4f} nats per token ({100 * math.expm1(size):.2f} % of perplexity) with "
        f"{POWER:.0%} power where arms are alike in noise, Holm over {arms - 1} comparisons, {seeds} seeds, "
        f"{text}; {noise.source}: seed sd {noise.seed_sd:.3g}, document sd {noise.document_sd:.3g} nats."
    )


def _measured(sweep: Sweep) -> Noise | None:
    ended = [run.directory.path for run in sweep.runs if state_of(sweep, run) == "finished"]
    try:
        return measured(ended)
    except InputError:  # runs that cannot be compared: `ilr compare` says why
        return None


def planned_documents(options: Options) -> int | None:
    """Documents of the test split as asked for, or None where the corpus decides."""
    asked = options.get("data.max_documents")
    if not asked or options.get("data.test") is not None:
        return None
    shares = options.get("data.splits") or (0.8, 0.1, 0.1)
    return max(1, round(asked * float(shares[2])))


def _speed(sweep: Sweep, stated: float | None) -> tuple[float, str]:
    if stated is not None:
        return stated, "as stated"
    speeds = [speed for run in sweep.runs if (speed := _speed_of(summary_of(run))) is not None]
    if speeds:
        return median(speeds), f"measured on {len(speeds)} runs of this sweep"
    return ASSUMED_SPEED, "assumed; --flops-per-second states another"


def _speed_of(summary: dict[str, Any] | None) -> float | None:
    if summary is None or not summary["tokens_per_second"] or not summary["flops_per_token"]:
        return None
    return float(summary["tokens_per_second"] * summary["flops_per_token"])


def _first_of_each_arm(sweep: Sweep) -> list[Run]:
    return list({run.arm.label: run for run in reversed(sweep.runs)}.values())[::-1]
