"""A process of its own for each variant, which takes a step when asked to."""

import gc
import math
import multiprocessing
import os
import platform
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from ilr.bench.clock import Reading
from ilr.bench.memory import MemoryKind, PeakMemory
from ilr.bench.sampling import Sample, WorkerFailed

Work = Callable[[], Tensor]
Make = Callable[[torch.device], Work]
"""Builds what a worker repeats, in the worker's process: a function that can be pickled."""


@dataclass(frozen=True)
class Job:
    """What a worker is for, in words, and how its work is built."""

    name: str
    make: Make
    compiles: bool = False


SHORTEST = 0.25
"""Seconds that a sample lasts at least: short steps are repeated, the machine's clock being coarse."""


@dataclass(frozen=True)
class Machine:
    """What the steps run on."""

    device: str
    torch: str
    threads: int
    processors: int
    allocator: str


@dataclass(frozen=True)
class Ready:
    """The first two steps: seconds of each, and the mean of what the first returned (a step's loss)."""

    first_seconds: float
    second_seconds: float
    first_value: float
    machine: Machine


@dataclass(frozen=True)
class Peak:
    """Bytes at the peak of the steps after the first, and what is counted."""

    bytes: int
    kind: MemoryKind


LEAVING = 5.0
"""Seconds that a process has to leave by itself."""


class Worker:
    """A process for one job; closed on leaving a with block.

    Every method raises `WorkerFailed` where the process fails or ends. Compilation in it begins from an empty
    cache.
    """

    def __init__(self, job: Job, device: torch.device) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._cache = tempfile.TemporaryDirectory(prefix="ilr-bench-", ignore_cleanup_errors=True)
        self._process = context.Process(target=_serve, args=(theirs, job, device, self._cache.name))
        self._process.start()
        theirs.close()

    def wait_until_loaded(self) -> None:
        """Return when the process has imported what it needs: many can do so at the same time."""
        self._receive()

    def build(self) -> Ready:
        """Build the work and take two steps."""
        ready: Ready = self._ask("build")
        return ready

    def sample(self, number: int) -> Sample:
        """Take a sample in round ``number``."""
        sample: Sample = self._ask(number)
        return sample

    def peak(self) -> Peak:
        """Memory at its peak since the first step."""
        peak: Peak = self._ask("peak")
        return peak

    def close(self) -> None:
        """End the process, whatever it is doing; one that waits for a request leaves by itself."""
        self._connection.close()
        self._process.join(LEAVING)
        self._process.terminate()
        self._process.join()
        self._cache.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, request: int | str) -> Any:
        try:
            self._connection.send(request)
        except OSError:
            raise WorkerFailed(self._ending()) from None
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise WorkerFailed(self._ending()) from None
        if isinstance(answer, WorkerFailed):
            raise answer
        return answer

    def _ending(self) -> str:
        self._process.join()
        status = self._process.exitcode or 0
        if status == -signal.SIGKILL:
            return "its process was killed: out of memory?"
        return f"its process ended with status {status}"


def _serve(connection: Connection, job: Job, device: torch.device, cache: str) -> None:
    """The process: load, build, take two steps, then answer requests until the other end is closed."""
    # An interrupt is the parent's to handle; and what a library prints must not mix with the parent's output.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    try:
        _answer(connection, job, device)
    except (EOFError, BrokenPipeError):
        pass
    except Exception as error:
        with suppress(OSError):  # the other end may be gone
            connection.send(WorkerFailed(f"{type(error).__name__}: {_first_line(error)}"))


def _answer(connection: Connection, job: Job, device: torch.device) -> None:
    if job.compiles:
        import torch._inductor.compile_fx  # noqa: F401  # a hundred megabytes that are not the step's
    connection.send("loaded")
    connection.recv()
    memory = PeakMemory(device)
    work = job.make(device)
    first, value = _timed(work, device)
    # What compiling needed is not what training needs.
    gc.collect()
    memory.reset()
    second, _ = _timed(work, device)
    connection.send(Ready(first, second, value, _machine(device)))
    steps = math.ceil(SHORTEST / second)
    while True:
        request = connection.recv()
        if request == "peak":
            connection.send(Peak(memory.bytes(), memory.kind))
        else:
            connection.send(_sample(work, request, steps, device))


def _timed(work: Work, device: torch.device) -> tuple[float, float]:
    """Seconds of one step, and the mean of what it returned."""
    begun = Reading.now()
    value = work().float().mean().item()
    _wait_for(device)
    return Reading.now().since(begun).elapsed, value


def _sample(work: Work, number: int, steps: int, device: torch.device) -> Sample:
    begun = Reading.now()
    for _ in range(steps):
        work()
    _wait_for(device)
    return Sample(number, steps, Reading.now().since(begun), os.cpu_count() or 1)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _machine(device: torch.device) -> Machine:
    on_gpu = device.type == "cuda"
    preloaded = [Path(one).name for one in os.environ.get("LD_PRELOAD", "").split()]
    tunables = os.environ.get("GLIBC_TUNABLES")
    return Machine(
        device=torch.cuda.get_device_name(device) if on_gpu else f"{device.type} ({platform.machine()})",
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        processors=os.cpu_count() or 1,
        allocator=" ".join([*preloaded, *([tunables] if tunables else [])]) or "default",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
