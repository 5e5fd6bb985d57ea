"""`ilr analyse`: what each visit does in a checkpoint, and what other schedules would do with its weights."""

import sys
from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from ilr.analysis.requirement import require_matplotlib
from ilr.bounds import check_count
from ilr.ending import in_one_line
from ilr.errors import InputError
from ilr.progress import progress_bar, say

if TYPE_CHECKING:
    from ilr.analysis.measure import Extent
    from ilr.analysis.record import Analysis
    from ilr.analysis.schedules import Evaluated
    from ilr.model.decoder import Decoder
    from ilr.model.plan import Plan
    from ilr.runs.trained_run import TrainedRun


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `ilr analyse` takes."""
    parser.add_argument(
        "checkpoints", type=Path, nargs="+", help="checkpoint files or run directories; several: side by side"
    )
    parser.add_argument(
        "--weights", type=Literal["best", "last"], default="best", help="which checkpoint of a run directory"
    )
    parser.add_argument("--tokens", type=int, default=65_536, help="validation tokens to look at")
    parser.add_argument("--lens", type=bool, default=True, help="predict after every visit (logit lens)")
    parser.add_argument(
        "--attention_tokens", type=int, default=8_192, help="of these, tokens to compute attention maps for"
    )
    parser.add_argument(
        "--jacobian_positions", type=int, default=256, help="of these, positions to take Jacobians over"
    )
    parser.add_argument(
        "--schedules",
        type=list[Any],
        nargs="+",
        default=None,
        help='evaluate under these schedules too, such as "[1,1,1,1]" "[4,2,1,1]"',
    )
    parser.add_argument(
        "--grid",
        type=str | None,
        default=None,
        help="evaluate under every schedule of so many visits of each layer, such as 1..4",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=1.0,
        help="cost that the best schedule may have, in forward FLOPs of the trained one",
    )
    parser.add_argument(
        "--output",
        type=Path | None,
        default=None,
        help="directory for what is written (default: analysis, in the first run's directory)",
    )
    parser.add_argument("--device", type=str, default="cpu", help="device to run on, such as cuda")


@in_one_line
def main(argv: list[str]) -> int:
    """Analyse, print and write; the exit code of the command."""
    parser = ArgumentParser(prog="ilr analyse", description=__doc__, exit_on_error=False, allow_abbrev=False)
    add_arguments(parser)
    try:
        _run(parser.parse_args(argv))
    except (InputError, ArgumentError) as error:
        print(f"ilr analyse: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _run(options: Namespace) -> None:
    if options.schedules is not None and options.grid is not None:
        raise InputError("give --schedules or --grid, not both")
    if (options.schedules is not None or options.grid is not None) and len(options.checkpoints) > 1:
        raise InputError("--schedules and --grid take one checkpoint")
    if not options.budget > 0:
        raise InputError(f"--budget must be above 0, got {options.budget}")
    check_count("--tokens", options.tokens)
    for name in ("attention_tokens", "jacobian_positions"):
        check_count(f"--{name}", options[name], least=0)
    require_matplotlib()
    # Only now: torch and matplotlib are slow to load, and the help does without.
    from ilr.analysis import output
    from ilr.analysis.measure import Extent
    from ilr.runs.trained_run import TrainedRun

    extent = Extent(options.tokens, options.lens, options.attention_tokens, options.jacobian_positions)
    runs = [TrainedRun.load(path, options.weights, options.device) for path in options.checkpoints]
    plans = _plans(runs[0].decoder, options)
    _warn_of_other_text(runs)
    directory = options.output or _default_output(runs)
    with output.directory_for(directory):
        _analyse(runs, plans, extent, directory, options)
    print(f"\nTable, figures and TensorBoard run: {directory}")


def _analyse(
    runs: "list[TrainedRun]",
    plans: "list[Plan] | None",
    extent: "Extent",
    directory: Path,
    options: Namespace,
) -> None:
    from ilr.analysis import figures, output
    from ilr.analysis.tables import visits_table

    analyses = [_analysed(run, extent) for run in runs]
    texts = [visits_table(one) for one in analyses]
    print("\n\n".join(texts))
    drawn = figures.draw(analyses)
    evaluated = None
    if plans is not None:
        evaluated, text, more = _schedules(runs[0], plans, options)
        print(f"\n{text}")
        texts.append(text)
        drawn |= more
    output.clear(directory)
    for number, one in enumerate(analyses):
        one.write(
            directory / ("analysis.json" if len(analyses) == 1 else f"analysis-{number}-{one.label}.json")
        )
    if evaluated is not None:
        output.write_schedules(evaluated, directory)
    pictures = output.render(drawn)
    output.write_pictures(pictures, directory)
    output.write_board(directory, pictures, analyses, "\n\n".join(texts), analyses[0].step or 0)


def _analysed(run: "TrainedRun", extent: "Extent") -> "Analysis":
    from dataclasses import replace

    from ilr.analysis.measure import analyse

    label = run.decoder.plan.label
    say(f"{run.checkpoint}, step {run.step}, schedule {label}")
    batches = run.data.evaluation_loaders("validation")[0]
    with progress_bar(label, _num_tokens(run, extent.tokens), " tokens") as bar:
        result = analyse(run.decoder, batches, extent, progress=bar.update)
    return replace(result, checkpoint=str(run.checkpoint), step=run.step)


def _plans(decoder: "Decoder", options: Namespace) -> "list[Plan] | None":
    """What --grid or --schedules ask for, found wrong before any work; None where neither is given."""
    from ilr.analysis.schedules import grid_plans

    if options.grid is not None:
        return grid_plans(decoder, options.grid)
    if options.schedules is None:
        return None
    # Also several in one list: a list of lists is no schedule.
    lists = [
        one if one and all(isinstance(entry, list) for entry in one) else [one] for one in options.schedules
    ]
    return [decoder.plan_for(schedule) for several in lists for schedule in several]


def _schedules(
    run: "TrainedRun", plans: "list[Plan]", options: Namespace
) -> "tuple[Evaluated, str, dict[str, Any]]":
    from ilr.analysis import schedule_figures
    from ilr.analysis.choice import Landscape
    from ilr.analysis.schedules import evaluate_schedules
    from ilr.analysis.tables import schedules_table

    batches = run.data.evaluation_loaders("validation")[0]
    with progress_bar(f"{len(plans)} schedules", _num_tokens(run, options.tokens), " tokens") as bar:
        evaluated = evaluate_schedules(run.decoder, batches, plans, options.tokens, progress=bar.update)
    landscape = Landscape(evaluated.rows, run.decoder.plan.times_per_layer)
    drawn = schedule_figures.draw(evaluated, landscape, options.budget)
    return evaluated, schedules_table(evaluated, landscape, options.budget), drawn


def _num_tokens(run: "TrainedRun", wanted: int) -> int:
    return min(wanted, run.data.manifest.splits["validation"].tokens)


def _default_output(runs: Sequence["TrainedRun"]) -> Path:
    """Within the first run: ``analysis``, or ``analysis-against-RUNS`` where there are several."""
    others = "-and-".join(run.directory.path.name for run in runs[1:])
    return runs[0].directory.path / (f"analysis-against-{others}" if others else "analysis")


def _warn_of_other_text(runs: Sequence["TrainedRun"]) -> None:
    tokenizers = {run.tokenizer.to_str() for run in runs}
    texts = {run.data.manifest.splits["validation"] for run in runs}
    if len(tokenizers) > 1 or len(texts) > 1:
        say("warning: these runs have other texts or tokenizers; losses are not comparable")
