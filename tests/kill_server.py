"""Kills a training at chosen file events and at random moments, resumes it, and says where the record differs.

Run as `python kill_server.py FOLDER`: everything is imported once, each start is a fork of this process. The
result lies in FOLDER/results.json: for each case how often it was killed, the last exit status, the differences.
"""

import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from run_cases import SMALL, fit, record_of, write_config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ilr.runs.directory import RunDirectory

WRITING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
CHOSEN, RANDOM = 52, 20
OPTIONS = {
    # The last step is validated because it is the last, and closes an accumulation window over an epoch's end.
    "uneven": ["--val_every", "5", "--save_every", "3", "--trainer.max_steps", "11"],
    # Validation, checkpoint and end fall on one step; the best checkpoint is another than the last.
    "even": [
        "--val_every",
        "3",
        "--save_every",
        "2",
        "--trainer.max_steps",
        "9",
        "--model.learning_rate",
        "0.3",
    ],
}
COMMON = [
    "--model.dropout", "0.1", "--trainer.accumulate_grad_batches", "2", "--data.max_train_tokens", "300",
    "--data.eval_batch_size", "64",
]  # fmt: skip


@dataclass(frozen=True)
class Event:
    """The n-th time that something happens to a file: before it does, the process ends."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} #{self.number}"


def normalised(kind: str, path: str, folder: Path) -> str | None:
    """An event's name without what differs between runs; None for files that are not ours."""
    if not path.startswith(str(folder)) or "/out/" in path:
        return None
    place = Path(path).relative_to(folder).parts
    if place[0] not in ("runs", "caches"):
        return None
    name = "/".join(place[:1] + place[2:])
    name = re.sub(r"\.\d+(@.*)?\.partial", ".partial", name)
    name = re.sub(r"tfevents\.\S+", "tfevents", name)
    return re.sub(r"[0-9a-f]{16,}|\d{8}|tmp-\w+", "*", f"{kind} {name}")


def events(folder: Path, note: Any) -> None:
    """Have every file event of this process noted, before it happens."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
            if not writes and not (mode is None and flags & (os.O_WRONLY | os.O_RDWR)):
                return
        elif event in WRITING:
            path = arguments[0]
        else:
            return
        if isinstance(path, str | os.PathLike):
            name = normalised(event, os.fspath(path), folder)
            if name is not None:
                note(name)

    sys.addaudithook(hook)


def start(
    folder: Path, run: str, cache: str, options: list[str], kill: Event | None, trace: Path | None
) -> int:
    """A fork of this process that trains, up to an event; its process id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        with (folder / "out" / f"{run}.txt").open("a") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        seen: Counter[str] = Counter()

        def note(name: str) -> None:
            seen[name] += 1
            if trace is not None:
                lines.append(f"{name}\t{seen[name]}")
            if kill is not None and kill == Event(name, seen[name]):
                os.kill(os.getpid(), signal.SIGKILL)

        lines: list[str] = []
        events(folder, note)
        gc.disable()
        options = [*options, *COMMON, "--data.cache_dir", str(folder / "caches" / cache), "--resume", "auto"]
        try:
            status = fit(folder / "small.yaml", folder / "runs" / run, *options)
        except SystemExit as end:
            status = int(end.code or 0)
        if trace is not None:
            trace.write_text("\n".join(lines))
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """The exit status of a fork; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def record(directory: Path) -> dict[str, Any]:
    """All that must be equal between a straight run and a killed one."""
    run = RunDirectory(directory)
    board = EventAccumulator(str(directory), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
    scalars = {
        tag: [(point.step, point.value) for point in board.Scalars(tag)]
        for tag in board.Tags()["scalars"]
        if tag not in ("train/tokens_per_second", "train/data_wait")
    }
    files = sorted(
        re.sub(r"tfevents.*", "tfevents", str(path.relative_to(directory)))
        for path in directory.rglob("*")
        if not path.name.startswith("config-resume")
    )
    saved = json.loads((run.checkpoints / "record.json").read_text())
    config = run.config.read_text()
    config = re.sub(r"cache_dir: .*", "", config)
    return {
        **record_of(directory), "checkpoints": saved, "board": scalars, "files": files, "config": config,
        "tokenizer": run.tokenizer.read_text(), "lock": (directory / ".lock").read_text(),
        "texts": sorted(board.summary_metadata),
    }  # fmt: skip


def differences(straight: Path, killed: Path) -> list[str]:
    """Names of what a killed run's record has otherwise than the straight one's."""
    first, second = record(straight), record(killed)
    found = [name for name in first if first[name] != second[name]]
    if "summary" in found:
        keys = first["summary"].keys() | second["summary"].keys()
        found += [f"summary {key}" for key in keys if first["summary"].get(key) != second["summary"].get(key)]
    for name in {entry["file"] for entry in (*first["checkpoints"]["last"], first["checkpoints"]["best"])}:
        weights = [torch.load(path / "checkpoints" / name)["state_dict"] for path in (straight, killed)]
        found += [f"{name} {key}" for key in weights[0] if not torch.equal(weights[0][key], weights[1][key])]
    return found


def chosen(traces: dict[str, list[Event]], moment: random.Random) -> Iterator[tuple[str, list[Event], bool]]:
    """Cases (variant, events at which the starts are killed, whether the cache is empty), without end.

    All kinds of events come before any comes twice; then other occurrences, and two kills in a row.
    """
    pools = []
    for variant, trace in traces.items():
        by_name: dict[str, list[Event]] = {}
        for event in trace:
            by_name.setdefault(event.name, []).append(event)
        for name, found in by_name.items():
            pools.append((variant, name.split()[1].startswith("caches"), moment.sample(found, len(found))))
    moment.shuffle(pools)
    round_ = 0
    while True:
        for variant, cold, found in pools:
            if round_ < len(found) and not (variant == "even" and cold):
                first = found[round_]
                later = moment.choice([e for e in traces[variant] if "caches" not in e.name])
                twice = round_ % 2 == 1 or moment.random() < 0.3
                yield variant, [first, later] if twice else [first], cold
        round_ += 1


def main(folder: Path) -> None:
    """Trace, kill, resume, compare."""
    for name in ("runs", "caches", "out"):
        (folder / name).mkdir()
    config = write_config(folder)
    traces: dict[str, list[Event]] = {}
    seconds = 0.0
    for variant, options in OPTIONS.items():
        began = time.perf_counter()
        trace = folder / f"{variant}.trace"
        assert ended(start(folder, variant, f"warm-{variant}", options, None, trace)) == 0, variant
        seconds = time.perf_counter() - began
        pairs = [line.split("\t") for line in trace.read_text().splitlines()]
        # The board's own thread writes when it likes.
        traces[variant] = [Event(name, int(number)) for name, number in pairs if "tfevents" not in name]
        # The parser's reading of signatures, once for all forks: a start with nothing left to do trains nothing
        # here, where torch must not have made threads before a fork.
        warm = [*options, *COMMON, "--data.cache_dir", str(folder / "caches" / f"warm-{variant}")]
        assert fit(config, folder / "runs" / variant, *warm, "--resume", "auto") == 0
    gc.freeze()
    moment = random.Random(5)
    cases: list[tuple[str, list[Event] | list[float], bool]] = []
    for case in chosen(traces, moment):
        cases.append(case)
        if len(cases) == CHOSEN:
            break
    for number in range(RANDOM):
        moments = [moment.uniform(0, seconds) for _ in range(1 + number % 2)]
        cases.append((("uneven", "even")[number % 2], moments, False))
    results = []
    for number, (variant, kills, cold) in enumerate(cases):
        run, cache = f"case-{number}", f"cold-{number}" if cold else f"warm-{variant}"
        fired = 0
        for kill in kills:
            event = kill if isinstance(kill, Event) else None
            child = start(folder, run, cache, OPTIONS[variant], event, None)
            if not isinstance(kill, Event):
                time.sleep(kill)
                os.kill(child, signal.SIGKILL)
            fired += ended(child) == -signal.SIGKILL
        status = ended(start(folder, run, cache, OPTIONS[variant], None, None))
        try:
            differs = differences(folder / "runs" / variant, folder / "runs" / run)
        except Exception as error:  # whatever is not there to be compared
            differs = [f"{type(error).__name__}: {error}"]
        moments = [str(kill) if isinstance(kill, Event) else f"{kill:.2f} s" for kill in kills]
        name = f"{variant}: {', then '.join(moments)}"
        print(name, fired, status, differs, flush=True)
        results.append({"case": name, "chosen": isinstance(kills[0], Event), "fired": fired, "status": status,
                        "differs": differs, "out": (folder / "out" / f"{run}.txt").read_text()[-2000:]})  # fmt: skip
        shutil.rmtree(folder / "runs" / run, ignore_errors=True)
        shutil.rmtree(folder / "caches" / f"cold-{number}", ignore_errors=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    assert SMALL["trainer"]["accelerator"] == "cpu"
    main(Path(sys.argv[1]).resolve())
