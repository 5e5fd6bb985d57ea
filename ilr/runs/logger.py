"""The logger of a run: history.jsonl is the record of its curves, the TensorBoard event file mirrors it."""

from argparse import Namespace
from typing import Any, cast

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.logger import DummyLogger, Logger
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams as hparams_records

from ilr.files import plain_json
from ilr.files.lock import check_held
from ilr.files.places import naming
from ilr.runs.directory import RunDirectory, atomic_write, read_history

LAYOUT = {
    "ILR": {
        f"{name} by {axis}": ["Multiline", [f"^{prefix}val_{tag}$" if prefix else f"^val/{tag}$"]]
        for name, tag in (("perplexity", "perplexity"), ("bits per byte", "bits_per_byte"))
        for axis, prefix in (("step", ""), ("tokens", "by_tokens/"), ("training GFLOPs", "by_flops/"))
    }
}
FINAL_METRICS = ("val_loss", "val_perplexity", "val_bits_per_byte", "depth", "parameters", "flops_per_token")


class RunLogger(Logger):
    """Writes every logged point to history.jsonl and to one TensorBoard event file in the run directory.

    A point is {"step", "tokens", "training_flops", tag: value, …}. Validation figures stand in TensorBoard
    also by tokens and by training FLOPs (``by_flops/…``: in GFLOP). On resume the history is cut at the
    checkpoint's step, without tests, and the event file is rebuilt from it: a run has one file and no step twice.
    """

    def __init__(self, directory: RunDirectory, resume_step: int | None = None) -> None:
        super().__init__()
        self.directory = directory
        self.tokens_per_step = 0
        self.flops_per_token = 0
        self._resume_step = resume_step
        self._validated: set[int] = set()
        self._writer: SummaryWriter | None = None

    final_metrics = FINAL_METRICS

    @property
    def name(self) -> str:
        """Name of the experiment: the run directory's parent."""
        return self.directory.path.parent.name

    @property
    def version(self) -> str:
        """Name of the run: the run directory."""
        return self.directory.path.name

    @property
    def log_dir(self) -> str:
        """The run directory."""
        return str(self.directory.path)

    @property
    @rank_zero_experiment
    def experiment(self) -> SummaryWriter:
        """The TensorBoard writer; before `start` and after `close` one that writes nothing.

        Lightning asks for it while it sets up, when the run may still be refused.
        """
        return self._writer or cast(SummaryWriter, DummyLogger().experiment)

    @rank_zero_only
    def start(self, tokens_per_step: int, flops_per_token: int) -> None:
        """Open the files, and say what a step is worth, before the first point."""
        self.tokens_per_step, self.flops_per_token = tokens_per_step, flops_per_token
        self._writer = self._open()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Lightning hands over the module's hyper-parameters here; `log_run` writes the ones that compare."""

    @rank_zero_only
    def log_run(self, hyperparameters: dict[str, str | int | float], text: dict[str, str]) -> None:
        """Declare the run to TensorBoard: hyper-parameters with the metrics that will follow, and texts."""
        metrics = {f"final/{name}": None for name in FINAL_METRICS}
        records = hparams_records(hyperparameters, metrics)  # type: ignore[no-untyped-call]
        for record in records:
            self.experiment.file_writer.add_summary(record)
        for tag, body in text.items():
            self.experiment.add_text(tag, body)
        self.experiment.flush()

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add one point; a validation that the history has already is not added again."""
        check_held(self.directory.path)
        step = 0 if step is None else step
        if "val/loss" in metrics:
            if step in self._validated:
                return
            self._validated.add(step)
        tokens = step * self.tokens_per_step
        point: dict[str, int | float] = {
            "step": step,
            "tokens": tokens,
            "training_flops": tokens * self.flops_per_token,
        }
        point.update({tag: float(value) for tag, value in metrics.items() if tag != "epoch"})
        with naming(self.directory.history), self.directory.history.open("a", encoding="utf-8") as file:
            file.write(plain_json.dumps(point) + "\n")
        with naming(self.directory.path):
            _mirror(self.experiment, point)

    @rank_zero_only
    def log_final(self, figures: dict[str, float]) -> None:
        """Fill the metrics columns of the hyper-parameter table."""
        for name in FINAL_METRICS:
            self.experiment.add_scalar(f"final/{name}", figures[name])
        self.experiment.flush()

    @rank_zero_only
    def save(self) -> None:
        """Flush what is buffered."""
        if self._writer is not None:
            self._writer.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Flush at the end of a stage; more may follow."""
        self.save()

    @rank_zero_only
    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> SummaryWriter:
        points = []
        if self._resume_step is not None:
            found = read_history(self.directory.history)
            points = _once([point for point in found if self._stays(point, self._resume_step)])
            self._validated = {p["step"] for p in points if "val/loss" in p}
        with atomic_write(self.directory.history) as file:
            file.writelines(plain_json.dumps(point) + "\n" for point in points)
        for old in self.directory.path.glob("events.out.tfevents.*"):
            old.unlink()
        writer = SummaryWriter(log_dir=str(self.directory.path), flush_secs=10)
        writer.add_custom_scalars(LAYOUT)
        for point in points:
            _mirror(writer, point)
        return writer

    @staticmethod
    def _stays(point: dict[str, Any], step: int) -> bool:
        """Whether a point was there at the checkpoint; what is tested after training is tested again."""
        return point["step"] <= step and not any(tag.startswith("test/") for tag in point)


def _once(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points in order of their steps; of those with the same step and tags, which two fits at once or a copy
    leave, the last.
    """
    last = {(point["step"], frozenset(point)): point for point in points}
    return sorted(last.values(), key=lambda point: point["step"])


def _mirror(writer: SummaryWriter, point: dict[str, Any]) -> None:
    step, tokens, flops = point["step"], point["tokens"], point["training_flops"]
    for tag, value in point.items():
        if tag in ("step", "tokens", "training_flops"):
            continue
        writer.add_scalar(tag, value, step)
        if tag in ("val/loss", "val/perplexity", "val/bits_per_byte"):
            name = tag.replace("/", "_")
            writer.add_scalar(f"by_tokens/{name}", value, tokens)
            writer.add_scalar(f"by_flops/{name}", value, flops // 10**9)
