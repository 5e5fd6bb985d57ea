"""Where results go: JSON, parquet and PNG files in one directory, and a TensorBoard run beside them."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow
from matplotlib.figure import Figure
from pyarrow import parquet
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

from ilr.analysis.figures import DRAWN, MATRICES
from ilr.analysis.record import Analysis
from ilr.analysis.schedules import Evaluated
from ilr.errors import InputError
from ilr.files import plain_json
from ilr.files.places import naming, output_directory
from ilr.runs.directory import RunDirectory, atomic_write

Pictures = Mapping[str, bytes]
"""PNG files by name."""


@contextmanager
def directory_for(directory: Path) -> Iterator[None]:
    """The directory, made where it is missing; `InputError` where that is not possible, or it is a training run's."""
    if RunDirectory(directory).config.exists() or RunDirectory(directory).checkpoints.exists():
        raise InputError(
            f"--output: {directory} is a training run's directory; give one inside it, or elsewhere"
        )
    with output_directory(directory, "--output"):
        yield


def clear(directory: Path) -> None:
    """Remove what an earlier analysis has left there: nothing of it shall be taken for part of the new one."""
    pictures = [f"{name}.png" for name in (*DRAWN, *MATRICES)]
    for pattern in ("analysis.json", "analysis-*-*.json", "schedules*.*", "events.out.tfevents.*", *pictures):
        for old in directory.glob(pattern):
            old.unlink()


def render(figures: Mapping[str, Figure]) -> dict[str, bytes]:
    """Each figure as PNG; drawing is slow, and both the files and TensorBoard need it."""
    pictures = {}
    for name, figure in figures.items():
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=figure.dpi)
        pictures[name] = png.getvalue()
    return pictures


def write_pictures(pictures: Pictures, directory: Path) -> None:
    """One file per picture, named like it."""
    for name, png in pictures.items():
        with atomic_write(directory / f"{name}.png", "wb") as file:
            file.write(png)


def add_pictures(writer: SummaryWriter, pictures: Pictures, step: int) -> None:
    """Add them to a TensorBoard run as images ``visits/NAME``."""
    for name, png in pictures.items():
        width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))  # the PNG's header
        image = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=4)
        summary = Summary(value=[Summary.Value(tag=f"visits/{name}", image=image)])
        writer._get_file_writer().add_summary(summary, global_step=step)  # type: ignore[no-untyped-call]


def write_schedules(evaluated: Evaluated, directory: Path) -> None:
    """The table as `schedules.json`; each document's NLL under each schedule as `schedules.parquet`.

    Columns of the latter: schedule (label), document, tokens, nll in nats.
    """
    with atomic_write(directory / "schedules.json") as file:
        file.write(plain_json.dumps(evaluated.as_dict(), indent=1) + "\n")
    count = len(evaluated.documents)
    table = pyarrow.table(
        {
            "schedule": [row.label for row in evaluated.rows for _ in range(count)],
            "document": list(evaluated.documents) * len(evaluated.rows),
            "tokens": list(evaluated.document_tokens) * len(evaluated.rows),
            "nll": evaluated.nll.ravel(),
        }
    )
    with atomic_write(directory / "schedules.parquet", "wb") as file:
        parquet.write_table(table, file)


def write_board(
    directory: Path, pictures: Pictures, analyses: Sequence[Analysis], text: str, step: int
) -> None:
    """One TensorBoard run in the directory: pictures, scalars, table.

    Scalars are written for a single analysis; several would share their tags.
    """
    with naming(directory), SummaryWriter(log_dir=str(directory)) as writer:
        add_pictures(writer, pictures, step)
        if len(analyses) == 1:
            for tag, value in analyses[0].scalars().items():
                writer.add_scalar(tag, value, global_step=step)
        writer.add_text("visits/table", f"```\n{text}\n```", global_step=step)
