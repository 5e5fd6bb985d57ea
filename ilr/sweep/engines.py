"""Where runs are carried out: one after another here, or by Ray on one machine or many."""

import os
import signal
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ilr.errors import InputError
from ilr.sweep.execute import Job, Outcome, execute, outcome, started

TICK = 0.5
"""Seconds between two looks at what goes on."""

RETRIES = 3
"""Starts of a run after a lost worker: a machine that reboots, a process killed for its memory."""


@dataclass(frozen=True)
class Resources:
    """What one run gets; None: one processor, and one accelerator where there are any."""

    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            if value is not None and (value < 0 or (name == "cpus" and value == 0)):
                raise InputError(f"--{name} must be above 0, got {value:g}")


def run_locally(jobs: Sequence[Job], resources: Resources) -> Generator[Outcome | None]:
    """One after another, each with all processors unless told; None whenever there is nothing new.

    Closing the iterator asks the run in progress to save and leave.
    """
    for job in jobs:
        if resources.cpus is not None:
            job = replace(job, threads=_threads(resources.cpus))
        with started(job) as process:
            while process.poll() is None:
                yield None
                time.sleep(TICK)
        yield outcome(job, process.returncode)


def run_on_ray(jobs: Sequence[Job], resources: Resources) -> Generator[Outcome | None]:
    """One Ray task a run, as many at a time as there is room; None whenever there is nothing new.

    Joins the cluster at RAY_ADDRESS, else starts Ray on this machine and ends it with the iterator. Closing
    the iterator asks the runs in progress to save and leave.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))  # else a run too large starts for ever
    ray = _ray()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    # Without an address Ray would first look for one started here before, dead or alive.
    address = os.environ.get("RAY_ADDRESS", "local")
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
    except ConnectionError as error:
        raise InputError(
            f"{error} (RAY_ADDRESS); where the cluster asks for a token, set RAY_AUTH_MODE=token"
        ) from None
    signal.signal(signal.SIGTERM, on_sigterm)  # Ray puts its own there
    waiting: dict[Any, Job] = {}
    try:
        cpus, gpus = _fitting(resources, ray.cluster_resources())
        task = ray.remote(execute).options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
        for job in jobs:
            job = replace(job, threads=_threads(cpus))
            waiting[task.remote(job)] = job
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=TICK)
            for reference in done:
                job = waiting.pop(reference)
                try:
                    ended: Outcome = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"lost its worker {1 + RETRIES} times: {str(error).splitlines()[0]}"
                    job.record.update(state="failed", exit_code=1, reason=reason)
                    ended = Outcome(job.name, 1, reason)
                yield ended
            yield None
    finally:
        for reference in waiting:
            ray.cancel(reference)
        if waiting:
            ray.wait(list(waiting), num_returns=len(waiting), timeout=60)
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(
            'the package ray is missing: pip install "ilr[sweep]", or run one after another with --engine local'
        ) from None
    return ray


def _fitting(resources: Resources, there: dict[str, float]) -> tuple[float, float]:
    """Processors and accelerators of a run, checked against what there is."""
    gpus = resources.gpus if resources.gpus is not None else min(1.0, there.get("GPU", 0.0))
    cpus = resources.cpus or 1.0
    if cpus > there.get("CPU", 0.0) or gpus > there.get("GPU", 0.0):
        found = f"{there.get('CPU', 0):g} cpus and {there.get('GPU', 0):g} gpus"
        raise InputError(f"a run asks for {cpus:g} cpus and {gpus:g} gpus, Ray has {found} in all")
    return cpus, gpus


def _threads(cpus: float) -> int:
    return max(1, int(cpus))
