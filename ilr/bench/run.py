"""All variants and the machine's peak in one interleaved run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch

from ilr.bench.products import PeakProduct, PeakShape
from ilr.bench.sampling import Sample, Spread, WorkerFailed, ratio, sample_in_turns, seconds
from ilr.bench.step import training_step
from ilr.bench.variant import Precision, Variant
from ilr.bench.worker import Job, Machine, Peak, Ready, Worker
from ilr.errors import InputError
from ilr.model.cost import Cost, cost
from ilr.model.device import usable_device


@dataclass(frozen=True)
class Taken:
    """What a worker gave: its first steps, its samples, its memory."""

    ready: Ready
    samples: list[Sample]
    peak: Peak

    @property
    def compile_seconds(self) -> float:
        """What the first step took longer than a later one: compilation, where there is any."""
        return max(0.0, self.ready.first_seconds - seconds(self.samples).median)


@dataclass(frozen=True)
class Row:
    """One variant: its step, the share of the peak that it reaches, its memory.

    ``flops_per_second`` counts `ilr.model.cost.cost` (a training step without recomputation), ``peak_share``
    is over the median matrix product of the same precision, ``causal_peak_share`` counts only visible keys.
    ``time_ratio`` and ``flops_ratio`` are over the first variant.
    """

    variant: Variant
    cost: Cost
    step: Spread
    tokens_per_second: float
    flops_per_second: float
    peak_share: float
    causal_peak_share: float
    time_ratio: Spread
    flops_ratio: float
    first_loss: float
    peak_memory: Peak
    compile_seconds: float


@dataclass(frozen=True)
class Result:
    """Rows in the order asked for, the variants that failed with the reason, and the peaks in FLOP/s."""

    machine: Machine
    peak_shape: str
    peaks: dict[str, Spread]
    rows: list[Row]
    failures: list[tuple[Variant, str]]


def find_device(name: str) -> torch.device:
    """``auto`` (a GPU where there is one) or a device by name; raises `InputError` where it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(name)


def measure(
    variants: Sequence[Variant], samples: int, device: torch.device, say: Callable[[str], None]
) -> Result:
    """Take ``samples`` clean samples of each variant, interleaved; ``say`` gets a line of progress at a time.

    Raises `InputError` where no variant could be measured.
    """
    precisions: list[Precision] = sorted({variant.precision for variant in variants})
    jobs = {str(one): Job(f"peak, {one}", partial(PeakProduct, one)) for one in precisions}
    jobs |= {
        str(number): Job(describe(variant), partial(training_step, variant), variant.compile != "none")
        for number, variant in enumerate(variants)
    }
    taken, reasons = take(jobs, samples, device, say)
    measured = {number: taken[str(number)] for number in range(len(variants)) if str(number) in taken}
    lost = [reasons[precision] for precision in precisions if precision in reasons]
    if lost or not measured:
        raise InputError(f"nothing could be measured: {[*lost, *reasons.values()][0]}")
    failures = [(variants[int(name)], reason) for name, reason in reasons.items()]
    shape = PeakShape.of(device)
    peaks: dict[str, Spread] = {
        precision: _rate(shape.flops, seconds(taken[precision].samples)) for precision in precisions
    }
    first = next(iter(measured))
    rows = [
        _row(variants[number], one, (variants[first], measured[first]), peaks)
        for number, one in measured.items()
    ]
    return Result(next(iter(measured.values())).ready.machine, str(shape), peaks, rows, failures)


def take(
    jobs: Mapping[str, Job], samples: int, device: torch.device, say: Callable[[str], None]
) -> tuple[dict[str, Taken], dict[str, str]]:
    """What each job's worker gave, and of those that failed, the reason."""
    failures: dict[str, str] = {}
    ready: dict[str, Ready] = {}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(job, device)) for name, job in jobs.items()}
        say(f"starting {len(workers)} processes")
        for name, worker in workers.items():
            try:
                worker.wait_until_loaded()
            except WorkerFailed as error:
                failures[name] = str(error)
        # One after another: what compiles must have the machine for itself.
        for number, (name, worker) in enumerate(workers.items(), start=1):
            if name not in failures:
                try:
                    ready[name] = worker.build()
                except WorkerFailed as error:
                    failures[name] = str(error)
            outcome = failures[name] if name in failures else _lengths(ready[name])
            say(f"{number}/{len(jobs)} {jobs[name].name}: {outcome}")
        samples_of, ended = sample_in_turns(
            {name: workers[name].sample for name in ready},
            samples,
            lambda rounds, clean: say(f"round {rounds}: at least {clean} of {samples} clean samples"),
        )
        taken = {name: Taken(ready[name], drawn, workers[name].peak()) for name, drawn in samples_of.items()}
    return taken, failures | ended


def describe(variant: Variant) -> str:
    """A variant in words, for progress and failures."""
    words = [variant.label, variant.precision]
    words += [f"compile {variant.compile}"] if variant.compile != "none" else []
    words += [f"recompute {variant.recompute}"] if variant.recompute != "none" else []
    return ", ".join([*words, f"batch {variant.batch_size}"])


def _lengths(ready: Ready) -> str:
    return f"first step {ready.first_seconds:.1f} s, second {ready.second_seconds * 1000:,.0f} ms"


def _row(variant: Variant, taken: Taken, first: tuple[Variant, Taken], peaks: Mapping[str, Spread]) -> Row:
    spent, tokens = cost(variant.config, variant.plan), variant.tokens
    step, peak = seconds(taken.samples), peaks[variant.precision].median
    flops, causal = (
        count * tokens / step.median for count in (spent.flops_per_token, spent.causal_flops_per_token)
    )
    return Row(
        variant=variant,
        cost=spent,
        step=step,
        tokens_per_second=tokens / step.median,
        flops_per_second=flops,
        peak_share=flops / peak,
        causal_peak_share=causal / peak,
        time_ratio=ratio(taken.samples, first[1].samples),
        flops_ratio=spent.flops_per_token * tokens / _step_flops(first[0]),
        first_loss=taken.ready.first_value,
        peak_memory=taken.peak,
        compile_seconds=taken.compile_seconds if variant.compile != "none" else 0.0,
    )


def _step_flops(variant: Variant) -> int:
    return cost(variant.config, variant.plan).flops_per_token * variant.tokens


def _rate(flops: int, time: Spread) -> Spread:
    """FLOP/s; the quartiles change places."""
    return Spread(flops / time.median, flops / time.q3, flops / time.q1, time.clean, time.taken)
