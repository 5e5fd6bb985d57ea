"""Where an evaluation is kept: JSON in the run directory, and a small TensorBoard run below it."""

from pathlib import Path

from ilr.evaluation.record import Record
from ilr.runs.directory import atomic_write


def name_of(record: Record, text: str, weights: str) -> str:
    """What tells this evaluation from others of its run: the text, then whatever is not the default."""
    parts = [text]
    if weights != "best":
        parts.append(weights)
    if record.schedule != record.trained_schedule:
        parts.append(record.schedule)
    if record.documents_alone:
        parts.append("documents")
    if record.window != record.trained_context:
        parts.append(f"w{record.window}")
    if record.stride != record.window:
        parts.append(f"s{record.stride}")
    return "-".join(parts)


def write_json(record: Record, directory: Path, name: str) -> Path:
    """The record as evaluation-NAME.json, in place of an earlier one."""
    path = directory / f"evaluation-{name}.json"
    with atomic_write(path) as file:
        file.write(record.as_json() + "\n")
    return path


def write_board(record: Record, directory: Path, name: str) -> Path:
    """A TensorBoard run evaluation/NAME in place of an earlier one: figures, scalars and the text.

    Figures of the whole stand at the checkpoint's step; loss by position and by decile are curves over
    these, so that the evaluations of several runs lie over each other.
    """
    # Only now: TensorBoard and matplotlib are slow to load, and most evaluations do without.
    from torch.utils.tensorboard import SummaryWriter

    from ilr.evaluation.figures import draw

    board = directory / "evaluation" / name
    board.mkdir(parents=True, exist_ok=True)
    for old in board.glob("events.out.tfevents.*"):
        old.unlink()
    with SummaryWriter(log_dir=str(board)) as writer:
        for figure, value in record.figures.items():
            writer.add_scalar(f"evaluation/{figure}", value, record.step)
        for place, loss in enumerate(record.loss_by_position or [], start=1):
            if loss is not None:
                writer.add_scalar("evaluation/loss_by_position", loss, place)
        for decile in record.frequency_deciles or []:
            if decile.loss is not None:
                writer.add_scalar("evaluation/loss_by_frequency_decile", decile.loss, decile.number)
        for tag, drawn in draw(record).items():
            writer.add_figure(f"evaluation/{tag}", drawn, record.step)
        writer.add_text("evaluation/record", f"```\n{record.as_text()}\n```", record.step)
    return board
