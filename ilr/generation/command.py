"""`ilr generate`: text from a checkpoint, streamed to the terminal."""

import io
import sys
import time
from argparse import ArgumentError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from ilr.errors import InputError

if TYPE_CHECKING:
    from ilr.generation.sampling import Sampling
    from ilr.plan import Plan
    from ilr.trained_run import TrainedRun


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
    parser.add_argument(
        "--prompts_file", type=Path | None, default=None, help="a UTF-8 file with one prompt in each line"
    )
    _number(parser, "max_new_tokens", int, 200, "tokens to write at most")
    _number(parser, "temperature", float, 0.8, "divides the logits; 0 takes the likeliest token")
    _number(parser, "top_k", int | None, None, "keep the k likeliest tokens")
    _number(parser, "top_p", float, 1.0, "after top-k, keep the likeliest tokens that together reach p")
    _number(parser, "seed", int, 0, "with the prompt and the sample's number it decides the draws")
    _number(parser, "num_samples", int, 1, "texts for each prompt")
    parser.add_argument(
        "--schedule",
        type=list[Any] | None,
        default=None,
        help='run the same weights under another schedule, such as "[2,2,1,1]"',
    )
    parser.add_argument(
        "--ignore_end", action="store_true", help="go on after the end of a document instead of stopping"
    )
    parser.add_argument("--cache", type=bool, default=True, help="keep keys and values of past tokens")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the pass of one token: pays from some ten thousand steps, needs a C++ compiler",
    )
    parser.add_argument("--batch_size", type=int, default=16, help="texts that are written together")
    parser.add_argument("--device", type=str, default="cpu", help="device to run on, such as cuda")


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
    except KeyboardInterrupt:
        print()
        return 130
    except BrokenPipeError:
        # The reader has gone, as `head` does; nothing more may be written, at exit neither.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return 0
    return 0


def _number(parser: ArgumentParser, name: str, kind: Any, default: Any, text: str) -> None:
    """An option that may be written with dashes too, as `transformers` and others have it."""
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    parser.add_argument(*spellings, type=kind, default=default, help=text)


def _run(options: Namespace) -> None:
    prompts = _prompts(options)
    for name in ("batch_size", "num_samples", "max_new_tokens"):
        if options[name] < 1:
            raise InputError(f"--{name} must be at least 1, got {options[name]}")
    if options.compile and not options.cache:
        raise InputError("--compile is for the pass with the cache: leave out --cache false")
    # Only now: torch is slow to load, and the help does without.
    from ilr.generation.sampling import Sampling
    from ilr.plan import make_plan
    from ilr.trained_run import TrainedRun

    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    run = TrainedRun.load(options.checkpoint, options.weights, options.device)
    decoder, plan = run.decoder, run.decoder.plan
    if options.schedule is not None:
        plan = decoder.checked(make_plan(options.schedule, decoder.config.num_layers, plan.sharing))
    trained = "" if plan == decoder.plan else f" (trained under {decoder.plan.label})"
    print(f"{run.checkpoint}, step {run.step}, schedule {plan.label}{trained}", file=sys.stderr)
    _write(run, plan, sampling, prompts, options)


def _prompts(options: Namespace) -> list[str]:
    if options.prompt is not None and options.prompts_file is not None:
        raise InputError("give --prompt or --prompts_file, not both")
    if options.prompts_file is None:
        return options.prompt or [""]
    try:
        lines = options.prompts_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompts_file {options.prompts_file} cannot be read: {error}") from None
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise InputError(f"--prompts_file {options.prompts_file} has no prompt")
    return prompts


def _write(
    run: "TrainedRun", plan: "Plan", sampling: "Sampling", prompts: list[str], options: Namespace
) -> None:
    from ilr.generation.decode import generate

    encoded = [run.tokenizer.encode(prompt).ids or [run.separator_id] for prompt in prompts]
    longest, config = max(map(len, encoded)), run.decoder.config
    if longest > config.context and config.positions != "learned":
        print(
            f"a prompt of {longest} tokens exceeds the context of {config.context}: its beginning is not seen",
            file=sys.stderr,
        )
    if options.compile:
        print("compiling the pass of one token; this takes a while before the second token", file=sys.stderr)
    at_once = max(1, options.batch_size // options.num_samples)
    begun, written = time.perf_counter(), 0
    for first in range(0, len(prompts), at_once):
        batch = slice(first, first + at_once)
        texts = _Texts(run, prompts[batch], encoded[batch], first, options.num_samples, len(prompts))
        rows = generate(
            run.decoder,
            encoded[batch],
            options.max_new_tokens,
            sampling=sampling,
            plan=plan,
            num_samples=options.num_samples,
            end=None if options.ignore_end else run.separator_id,
            use_cache=options.cache,
            compile=options.compile,
            on_token=texts.add,
        )
        texts.finish()
        written += sum(map(len, rows))
    seconds = time.perf_counter() - begun
    print(f"{written} tokens in {seconds:.1f} s, {written / seconds:.0f} tokens/s", file=sys.stderr)


class _Texts:
    """The texts of a batch: the only one goes to the terminal as it comes, several when all are done."""

    def __init__(
        self,
        run: "TrainedRun",
        prompts: list[str],
        encoded: list[list[int]],
        first: int,
        num_samples: int,
        num_prompts: int,
    ) -> None:
        from ilr.generation.text import TextStream

        self._streams = [TextStream(run.tokenizer, tokens) for tokens in encoded for _ in range(num_samples)]
        self._texts = [prompt for prompt in prompts for _ in range(num_samples)]
        self._first, self._num_samples = first, num_samples
        self._alone = num_prompts * num_samples == 1
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
            title = f"prompt {self._first + row // self._num_samples + 1}"
            if self._num_samples > 1:
                title += f", sample {row % self._num_samples + 1}"
            print(f"=== {title}\n{self._texts[row]}{stream.rest()}", flush=True)
