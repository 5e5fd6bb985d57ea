"""Where results go: JSON, parquet and PNG files in one directory, and a TensorBoard run beside them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow
from matplotlib.figure import Figure
from pyarrow import parquet
from torch.utils.tensorboard import SummaryWriter

from ilr.analysis.record import Analysis
from ilr.analysis.schedules import Evaluated
from ilr.errors import InputError


def make_directory(directory: Path) -> None:
    """Make the directory; raises `InputError` where that is not possible."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: {directory} cannot be made: {error.strerror}") from None


def write_figures(figures: Mapping[str, Figure], directory: Path) -> None:
    """One PNG per figure, named like it."""
    for name, figure in figures.items():
        figure.savefig(directory / f"{name}.png")


def write_schedules(evaluated: Evaluated, directory: Path) -> None:
    """The table as `schedules.json`; each document's NLL under each schedule as `schedules.parquet`.

    Columns of the latter: schedule (label), document, tokens, nll in nats.
    """
    path = directory / "schedules.json"
    path.write_text(json.dumps(evaluated.as_dict(), indent=1) + "\n", encoding="utf-8")
    count = len(evaluated.documents)
    table = pyarrow.table(
        {
            "schedule": [row.label for row in evaluated.rows for _ in range(count)],
            "document": list(evaluated.documents) * len(evaluated.rows),
            "tokens": list(evaluated.document_tokens) * len(evaluated.rows),
            "nll": evaluated.nll.ravel(),
        }
    )
    parquet.write_table(table, directory / "schedules.parquet")


def write_board(
    directory: Path, figures: Mapping[str, Figure], analyses: Sequence[Analysis], text: str, step: int
) -> None:
    """One TensorBoard run in the directory, in place of an earlier one: figures, scalars, table.

    Scalars are written for a single analysis; several would share their tags.
    """
    for old in directory.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(log_dir=str(directory)) as writer:
        for name, figure in figures.items():
            writer.add_figure(f"visits/{name}", figure, global_step=step)
        if len(analyses) == 1:
            for tag, value in analyses[0].scalars().items():
                writer.add_scalar(tag, value, global_step=step)
        writer.add_text("visits/table", f"```\n{text}\n```", global_step=step)
