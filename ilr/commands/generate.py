"""`ilr generate`: text from a checkpoint, streamed to the terminal."""

import io
import sys
import time
from argparse import ArgumentError
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from ilr.bounds import LARGEST_SIZE, check_count, check_seed
from ilr.ending import in_one_line
from ilr.errors import InputError

if TYPE_CHECKING:
    from ilr.generation.sampling import Sampling
    from ilr.model.plan import Plan
    from ilr.runs.trained_run import TrainedRun


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `ilr generate` takes."""
    parser.add_argument("checkpoint", type=Path, help="checkpoint file or run directory")
    parser.add_argument(
        "--weights",
        type=Literal["best", "last"],
        default="best",
        help="which checkpoint of a run directory",
    )
    parser.add_argument(
        "--prompt",
        type=str,
        nargs="+",
        default=None,
        help="one or more texts to go on from (default: the beginning of a document)",
    )
    _option(parser, "prompts_file", Path | None, None, "a UTF-8 file with one prompt in each line")
    _option(parser, "max_new_tokens", int, 200, "tokens to write at most")
    _option(parser, "temperature", float, 0.8, "divides the logits; 0 takes the likeliest token")
    _option(parser, "top_k", int | None, None, "keep the k likeliest tokens")
    _option(parser, "top_p", float, 1.0, "after top-k, keep the likeliest tokens that together reach p")
    _option(parser, "seed", int, 0, "with the prompt and the sample's number it decides the draws")
    _option(parser, "num_samples", int, 1, "texts for each prompt")
    parser.add_argument(
        "--schedule",
        type=list[Any],
        default=None,
        help='run the same weights under another schedule, such as "[2,2,1,1]"',
    )
    parser.add_argument(
        *_spellings("ignore_end"),
        action="store_true",
        help="go on after the end of a document instead of stopping",
    )
    parser.add_argument("--cache", type=bool, default=True, help="keep keys and values of past tokens")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the pass of one token: pays from about thirty thousand steps, needs a C++ compiler",
    )
    _option(parser, "batch_size", int, 16, "texts that are written together")
    parser.add_argument("--device", type=str, default="cpu", help="device to run on, such as cuda")


@in_one_line
def main(argv: list[str]) -> int:
    """Generate and print; the exit code of the command."""
    parser = ArgumentParser(prog="ilr generate", description=__doc__, exit_on_error=False, allow_abbrev=False)
    add_arguments(parser)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows a mark
    try:
        _run(parser.parse_args(argv))
    except (InputError, ArgumentError) as error:
        print(f"ilr generate: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _option(parser: ArgumentParser, name: str, kind: Any, default: Any, text: str) -> None:
    """An option that may be written with dashes too, as `transformers` and others have it."""
    parser.add_argument(*_spellings(name), type=kind, default=default, help=text)


def _spellings(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))


def _run(options: Namespace) -> None:
    prompts = _prompts(options)
    for name, most in (("batch_size", 2**16), ("num_samples", 2**20), ("max_new_tokens", LARGEST_SIZE)):
        check_count(f"--{name}", options[name], most)
    check_seed("--seed", options.seed)
    if options.compile and not options.cache:
        raise InputError("--compile is for the pass with the cache: leave out --cache false")
    # Only now: torch is slow to load, and the help does without.
    from ilr.generation.sampling import Sampling
    from ilr.runs.trained_run import TrainedRun

    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    run = TrainedRun.load(options.checkpoint, options.weights, options.device)
    decoder, plan = run.decoder, run.decoder.plan
    if options.schedule is not None:
        plan = decoder.plan_for(options.schedule)
    trained = "" if plan == decoder.plan else f" (trained under {decoder.plan.label})"
    print(f"{run.checkpoint}, step {run.step}, schedule {plan.label}{trained}", file=sys.stderr)
    _write(run, plan, sampling, prompts, options)


def _prompts(options: Namespace) -> list[str]:
    if options.prompt is not None and options.prompts_file is not None:
        raise InputError("give --prompt or --prompts_file, not both")
    if options.prompts_file is None:
        prompts = options.prompt or [""]
        try:
            "".join(prompts).encode()
        except UnicodeEncodeError:
            raise InputError(f"--prompt must be UTF-8 text, got {prompts!a}") from None
        return prompts
    try:
        # Not `splitlines`, which also ends lines at form feeds and at the separators of Unicode.
        lines = options.prompts_file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompts_file {options.prompts_file} cannot be read: {error}") from None
    prompts = [line.removesuffix("\r") for line in lines if line.strip()]
    if not prompts:
        raise InputError(f"--prompts_file {options.prompts_file} has no prompt")
    return prompts


def _write(
    run: "TrainedRun", plan: "Plan", sampling: "Sampling", prompts: list[str], options: Namespace
) -> None:
    from ilr.generation.decode import generate

    encoded = [run.encode(prompt) for prompt in prompts]
    longest, config = max(map(len, encoded)), run.decoder.config
    if longest > config.context and config.positions != "learned":
        print(
            f"a prompt of {longest} tokens exceeds the context of {config.context}: its beginning is not seen",
            file=sys.stderr,
        )
    if options.compile:
        print("compiling the pass of one token; this takes a while before the second token", file=sys.stderr)
    begun, written = time.perf_counter(), 0
    for batch, samples in _batches(len(prompts), options.num_samples, options.batch_size):
        titles = [
            _title(prompt if len(prompts) * options.num_samples > 1 else None, sample, options.num_samples)
            for prompt in range(len(prompts))[batch]
            for sample in samples
        ]
        texts = _Texts(run, prompts[batch], encoded[batch], samples, titles)
        try:
            rows = generate(
                run.decoder,
                encoded[batch],
                options.max_new_tokens,
                sampling=sampling,
                plan=plan,
                num_samples=len(samples),
                first_sample=samples.start,
                end=None if options.ignore_end else run.separator_id,
                use_cache=options.cache,
                compile=options.compile,
                on_token=texts.add,
            )
        except KeyboardInterrupt:
            texts.finish()
            raise
        texts.finish()
        written += sum(map(len, rows))
    seconds = time.perf_counter() - begun
    print(f"{written} tokens in {seconds:.1f} s, {written / seconds:.0f} tokens/s", file=sys.stderr)


def _title(prompt: int | None, sample: int, num_samples: int) -> str:
    """What stands above a text; nothing above the only one."""
    if prompt is None:
        return ""
    return f"prompt {prompt + 1}" + (f", sample {sample + 1}" if num_samples > 1 else "")


def _batches(num_prompts: int, num_samples: int, size: int) -> Iterator[tuple[slice, range]]:
    """Prompts and samples of each that are written together, at most ``size`` texts: some samples of one prompt,
    or all of several.
    """
    prompts, samples = max(1, size // num_samples), min(size, num_samples)
    for prompt in range(0, num_prompts, prompts):
        for sample in range(0, num_samples, samples):
            yield slice(prompt, prompt + prompts), range(sample, min(sample + samples, num_samples))


class _Texts:
    """The texts of a batch: one without a title goes to the terminal as it comes, several when all are done."""

    def __init__(
        self,
        run: "TrainedRun",
        prompts: list[str],
        encoded: list[list[int]],
        samples: range,
        titles: list[str],
    ) -> None:
        from ilr.generation.text import TextStream

        self._streams = [
            TextStream(run.tokenizer, run.separator_id, tokens) for tokens in encoded for _ in samples
        ]
        self._texts = [prompt for prompt in prompts for _ in samples]
        self._titles = titles
        self._alone = not any(titles)
        self._begun = False

    def add(self, row: int, token: int) -> None:
        """One more token of a row."""
        piece = self._streams[row].feed(token)
        if self._alone:
            # The prompt too only now: wrong use is found before the first token, and prints an error alone.
            print(piece if self._begun else self._texts[row] + piece, end="", flush=True)
            self._begun = True
        self._texts[row] += piece

    def finish(self) -> None:
        """Print what is left to print."""
        for row, stream in enumerate(self._streams):
            if self._alone:
                print(stream.rest(), flush=True)
                continue
            print(f"=== {self._titles[row]}\n{self._texts[row]}{stream.rest()}", flush=True)
