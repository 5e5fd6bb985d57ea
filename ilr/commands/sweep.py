"""`ilr sweep`: carry out what is left of a sweep, or say what it would cost."""

import math
import os
import sys
import textwrap
from argparse import RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ilr.commands.parser import CommandParser, fail
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.files.lock import held
from ilr.sweep.file import EXAMPLE, read_sweep
from ilr.sweep.runs import Sweep, make_sweep
from ilr.sweep.state import ENDED, note_plan, settle, state_of

_ABOUT = """\
Carry out what is left of a sweep, or say what it would cost. The run directories are the truth: run it again
after a failure, a kill or a reboot, with more seeds or arms, and only what is not finished runs, from its
last checkpoint. If the command itself was killed, its runs save and leave by themselves; `ray stop` removes
what Ray leaves behind. RAY_ADDRESS joins a cluster. Status: 0 all runs have a result, 1 some have none."""


MOST_WORKERS = 2**16
"""Processors or accelerators of one run."""


@dataclass(frozen=True)
class SweepOptions:
    """What `ilr sweep` is asked.

    Args:
        engine: ray runs several at a time, on this machine or on the cluster at RAY_ADDRESS; local one after
            another, without the extra package.
        cpus: Processors of a run, which are also its threads. Null: 1 with ray; local leaves it to torch.
        gpus: Accelerators of a run. Null: 1 with ray where there are any.
        output: Directory of the runs. Null: runs/NAME-sweep of the sweep file.
        flops_per_second: Training FLOP/s of one run, for the estimated time. Null: as its finished runs had.
        seed_sd: Standard deviation over seeds, in nats per token, for the detectable difference.
    """

    engine: Literal["ray", "local"] = "ray"
    cpus: float | None = None
    gpus: float | None = None
    output: Path | None = None
    flops_per_second: float | None = None
    seed_sd: float | None = None

    def __post_init__(self) -> None:
        for name in ("flops_per_second", "seed_sd"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InputError(f"--{name.replace('_', '-')} must be above 0, got {value}")
        if self.cpus is not None and not 0 < self.cpus <= MOST_WORKERS:
            raise InputError(f"--cpus must be above 0 and at most {MOST_WORKERS:,}, got {self.cpus}")
        if self.gpus is not None and not 0 <= self.gpus <= MOST_WORKERS:
            raise InputError(f"--gpus must be at least 0 and at most {MOST_WORKERS:,}, got {self.gpus}")


@in_one_line
def main(argv: list[str]) -> int:
    """Run `ilr sweep`; its exit status: 0 all have a result, 1 some have none, 130 or 143 stopped."""
    given = _parser().parse_args(argv)
    try:
        options = SweepOptions(**{name: given[name] for name in SweepOptions.__dataclass_fields__})
        file = read_sweep(given.file)
        sweep = settle(make_sweep(file, options.output or Path("runs") / f"{file.path.stem}-sweep"))
        if given.dry_run:
            return _dry_run(sweep, options)
        sweep.records.mkdir(parents=True, exist_ok=True)
        with held(sweep.records, f"the sweep directory {sweep.directory}"):
            return _run(sweep, options)
    except InputError as error:
        fail(str(error))


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="ilr sweep",
        description=f"{_ABOUT}\n\nA sweep file, with every key:\n\n{textwrap.indent(EXAMPLE, '  ')}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, help="the sweep file, such as configs/sweeps/demo.yaml")
    parser.add_argument("--dry-run", action="store_true", help="print every run with its cost; start nothing")
    for name, kind, text in (
        ("engine", Literal["ray", "local"], "ray: several at a time; local: one after another"),
        ("cpus", float | None, "processors and threads of a run (ray: 1; local: as torch finds)"),
        ("gpus", float | None, "accelerators of a run (ray: 1 where there are any)"),
        ("output", Path | None, "directory of the runs (runs/NAME-sweep, of the sweep file)"),
        ("flops-per-second", float | None, "training FLOP/s of one run, for the estimated time"),
        ("seed-sd", float | None, "sd over seeds in nats per token, for the detectable difference"),
    ):
        default = "ray" if name == "engine" else None
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    return parser


def _dry_run(sweep: Sweep, options: SweepOptions) -> int:
    try:
        from ilr.sweep.dry_run import describe
    except ModuleNotFoundError as error:
        raise InputError(f'the package {error.name} is missing: pip install "ilr[compare]"') from None
    at_once = 1
    if options.engine == "ray" and "RAY_ADDRESS" not in os.environ:
        at_once = max(1, int(min(2.0**16, (os.cpu_count() or 1) / (options.cpus or 1))))
    print(describe(sweep, options.flops_per_second, options.seed_sd, at_once))
    return 0


def _run(sweep: Sweep, options: SweepOptions) -> int:
    from ilr.sweep.conduct import INSTANT_FAILURES, Stopped, conduct
    from ilr.sweep.display import Display
    from ilr.sweep.engines import Resources
    from ilr.sweep.learning_rates import describe
    from ilr.sweep.report import report

    left = [run for run in sweep.runs if state_of(sweep, run) not in ENDED]
    if sweep.repeated:
        print(f"given more than once, run once: {', '.join(sweep.repeated)}")
    damaged = sum(state_of(sweep, run) == "damaged" for run in sweep.runs)
    done = len(sweep.runs) - len(left) - damaged
    also = f", {damaged} damaged" if damaged else ""
    print(f"{sweep.directory}: {len(sweep.runs)} runs, {done} done, {len(left)} to do{also}")
    complete, status = True, 0
    if left:
        note_plan(sweep, left)
        display = Display(sweep, left, live=sys.stdout.isatty())
        try:
            resources = Resources(options.cpus, options.gpus)
            complete = conduct(sweep, left, options.engine, resources, display)
        except Stopped as stopped:
            print(f"{stopped}; the same command goes on", file=sys.stderr)
            status = stopped.exit_code
    text, all_done = report(sweep)
    print("\n".join(part for part in (text, describe(sweep)) if part))
    if not complete:
        print(
            f"given up: {INSTANT_FAILURES} runs in a row failed before their first step; the rest was not tried",
            file=sys.stderr,
        )
    return status or (0 if all_done else 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
