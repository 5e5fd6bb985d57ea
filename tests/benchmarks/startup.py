"""Start-up times, beside what importing torch, lightning and datasets alone takes.

    python tests/benchmarks/startup.py [--rounds 5] [--cache DIRECTORY]

Every round starts, one after the other: the bare imports, `ilr --help`, `ilr plan`, and
`train_lm.py fit --config configs/demo.yaml` on data prepared before. A command's time is that of its whole
process; the training's goes from the start of its process to the first optimiser step, whose moment stands
in its TensorBoard events. Given are medians with quartiles; the ratio is the median of the rounds' ratios.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parent.parent.parent
BARE = [sys.executable, "-c", "import torch, lightning, datasets"]
ILR = [sys.executable, "-m", "ilr.cli"]
PLAN = [*ILR, "plan", "[4,2,1,1]", "--config", "configs/paper-small.yaml"]
FIT = [sys.executable, "train_lm.py", "fit", "--config", "configs/demo.yaml", "--trainer.max_steps", "1"]
FIT += ["--test_after_fit", "false", "--data.max_eval_tokens", "20000"]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=Path, help="prepared data are kept here instead of being made anew")
    options = parser.parse_args()
    names = ("imports alone", "ilr --help", "ilr plan", "to the first step")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder) / "cache"
        to_first_step(Path(folder) / "run-0", cache)
        for number in range(1, options.rounds + 1):
            seconds["imports alone"].append(whole(BARE))
            seconds["ilr --help"].append(whole([*ILR, "--help"]))
            seconds["ilr plan"].append(whole(PLAN))
            seconds["to the first step"].append(to_first_step(Path(folder) / f"run-{number}", cache))
    for name in names:
        low, middle, high = np.quantile(seconds[name], [0.25, 0.5, 0.75])
        print(f"{name:<20} {middle:6.2f} s  [{low:.2f}, {high:.2f}]")
    ratios = np.array(seconds["to the first step"]) / np.array(seconds["imports alone"])
    low, ratio, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(f"{'first step/imports':<20} {ratio:6.2f} ×  [{low:.2f}, {high:.2f}]  ({verdict(high, 1.5)})")
    for name in ("ilr --help", "ilr plan"):
        print(f"{name + ' under 1 s':<20} {verdict(float(np.quantile(seconds[name], 0.75)), 1.0)}")


def whole(command: list[str]) -> float:
    """Seconds of a process from start to end."""
    begun = time.time()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.time() - begun


def to_first_step(run: Path, cache: Path) -> float:
    """Seconds from the start of a training's process to its first logged step."""
    begun = time.time()
    paths = ["--run_dir", str(run), "--data.cache_dir", str(cache)]
    subprocess.run([*FIT, *paths], cwd=ROOT, check=True, capture_output=True)
    events = EventAccumulator(str(run))
    events.Reload()
    return float(events.Scalars("train/loss")[0].wall_time - begun)


def verdict(value: float, most: float) -> str:
    """Whether the unfavourable quartile keeps within its goal."""
    return f"at most {most:g}: {'met' if value <= most else 'MISSED'}"


if __name__ == "__main__":
    main()
