"""One run in a process of its own, and how it ended. No torch, no Ray."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ilr.runs.directory import RunDirectory
from ilr.sweep.child import GRACE, LOCK, PARENT, POLL
from ilr.sweep.state import Record

DIVERGED = 3
LONGEST_REASON = 300


@dataclass(frozen=True)
class Job:
    """What an engine needs of a run; plain data, sent to other machines.

    ``command`` follows `ilr`, ``folder`` is where it is given, ``records`` the sweep's own files, ``threads``
    None to leave them to torch and the environment.
    """

    name: str
    command: tuple[str, ...]
    directory: str
    records: str
    folder: str
    threads: int | None = None

    @property
    def record(self) -> Record:
        """The sweep's note on this run."""
        return Record(Path(self.records) / f"{self.name}.json")


@dataclass(frozen=True)
class Outcome:
    """How one start of a run ended. ``reason`` is empty unless it failed; ``instant``: before its first step."""

    name: str
    exit_code: int
    reason: str = ""
    instant: bool = False

    @property
    def failed(self) -> bool:
        """A diverged run is a result, an interrupted one goes on: both did not fail."""
        return self.exit_code not in (0, DIVERGED, 128 + signal.SIGINT, 128 + signal.SIGTERM)


def execute(job: Job) -> Outcome:
    """Start a run and wait for its end."""
    with started(job) as process:
        while process.poll() is None:  # a bare wait would not hear that Ray cancels this task
            time.sleep(POLL)
    return outcome(job, process.returncode)


@contextmanager
def started(job: Job) -> Iterator["subprocess.Popen[bytes]"]:
    """A run's process; one that still runs at the end is asked to save and leave, and then made to."""
    job.record.update(state="running", host=socket.gethostname(), started=time.time(), reason="")
    with _output(job, "out").open("ab") as out, _output(job, "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "ilr.sweep.child", *job.command, "--trainer.enable_progress_bar", "false"],
            cwd=job.folder,
            env=_environment(job),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,  # Ctrl-C reaches it once, through us
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process)
            job.record.update(state="interrupted")


def outcome(job: Job, exit_code: int) -> Outcome:
    """What came of a run that ended with this status (negative: by a signal), noted in its record."""
    code = exit_code if exit_code >= 0 else 128 - exit_code
    ended = Outcome(job.name, code)
    if ended.failed:
        instant = not RunDirectory(Path(job.directory)).history.is_file()
        ended = Outcome(job.name, code, _reason(job, exit_code), instant)
    states = {0: "finished", DIVERGED: "diverged"}
    state = "failed" if ended.failed else states.get(code, "interrupted")
    job.record.update(state=state, exit_code=code, reason=ended.reason)
    return ended


def _reason(job: Job, exit_code: int) -> str:
    """The last line on stderr that says something, or the signal."""
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    text = _output(job, "err").read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("hint:")]
    return lines[-1][:LONGEST_REASON] if lines else f"exit status {exit_code}, nothing on stderr"


def _output(job: Job, kind: str) -> Path:
    return Path(job.records) / f"{job.name}.{kind}"


def _environment(job: Job) -> dict[str, str]:
    # A run is one process of its own: what a batch system says of the driver is not meant for it.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    kept[LOCK] = str(Path(job.records).resolve() / f"{job.name}.lock")
    kept[PARENT] = str(os.getpid())
    if job.threads is not None:
        kept["OMP_NUM_THREADS"] = str(job.threads)
    return kept


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(GRACE)
    except BaseException:
        process.kill()
        process.wait()
        raise
