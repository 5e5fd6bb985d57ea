"""The comparison as one more TensorBoard run: its figures as images, its table as text."""

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ilr.comparison.analysis import Comparison
from ilr.comparison.plots import draw
from ilr.comparison.report import markdown

# A card of the Time Series tab shows an image about 410 × 210 pixels large and scales it by leaving
# pixels out: other sizes would lose thin lines and parts of letters.
_DOTS_PER_INCH = 50
_ROWS_ON_A_CARD = 8
# Characters side by side in the Text tab, which else breaks words to fit all columns in.
_TEXT_WIDTH = 90


def write_summary_run(comparison: Comparison, directory: Path) -> None:
    """Write one event file into the directory, in place of that of an earlier comparison."""
    for old in directory.glob("events.out.tfevents.*"):
        old.unlink()
    writer = EventFileWriter(str(directory))
    values = [
        _image(f"comparison/{name}", figure) for name, figure in draw(comparison, _ROWS_ON_A_CARD).items()
    ]
    values += text_pb("comparison/table", np.array(markdown(comparison, _TEXT_WIDTH))).value
    writer.add_event(Event(step=0, summary=Summary(value=values)))
    writer.close()


def _image(tag: str, figure: Figure) -> Summary.Value:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=_DOTS_PER_INCH)
    width, height = (int(inches * _DOTS_PER_INCH) for inches in figure.get_size_inches())
    image = Summary.Image(encoded_image_string=png.getvalue(), width=width, height=height, colorspace=4)
    return Summary.Value(tag=tag, image=image)
