"""The analysis during training, so that it can be followed from validation to validation."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from ilr.analysis.batches import Batch
from ilr.analysis.measure import Extent, analyse
from ilr.analysis.record import Analysis
from ilr.analysis.requirement import require_matplotlib
from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.runs.logger import RunLogger


class VisitReport(L.Callback):
    """Figures and scalars of what each visit does, every few validations, to the run's loggers; figures and the
    whole result also to files in the run directory, ``analysis/step-NNNNNNNN``.

    On the command line: ``--trainer.callbacks+=ilr.analysis.VisitReport --trainer.callbacks.every 2``.
    Training goes on as without it: no gradients, no draws, every training flag as before.

    Args:
        every: Validations from one report to the next; the first validation has one.
        tokens: Scored tokens of the validation split to look at.
        lens: Whether to predict after every visit.
        attention_tokens: Tokens to compute attention maps for. 0: none.
        jacobian_positions: Positions to take Jacobians over, of sublayers that are not compiled. 0: none.
        figures: Whether to draw; without, only scalars are logged.
    """

    def __init__(
        self,
        every: int = 1,
        tokens: int = 8_192,
        lens: bool = True,
        attention_tokens: int = 2_048,
        jacobian_positions: int = 0,
        figures: bool = True,
    ) -> None:
        if every < 1:
            raise InputError(f"every must be at least 1, got {every}")
        if figures:
            require_matplotlib()
        self.every, self.figures = every, figures
        self.extent = Extent(tokens, lens, attention_tokens, jacobian_positions)
        self.last: Analysis | None = None
        self._validations = 0

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Report, unless this is a sanity check or not yet the turn."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._validations += 1
        if (self._validations - 1) % self.every == 0:
            self._report(trainer, pl_module)

    def state_dict(self) -> dict[str, int]:
        """Validations so far, so that a resumed run reports when the uninterrupted one would."""
        return {"validations": self._validations}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on counting."""
        self._validations = state_dict["validations"]

    @rank_zero_only
    def _report(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        decoder = pl_module.decoder
        assert isinstance(decoder, Decoder)
        try:
            found = analyse(decoder, _first_loader(trainer), self.extent)
        except InputError as error:  # whether a run has diverged is the training's to say
            rank_zero_warn(f"no report of the visits at step {trainer.global_step}: {error}")
            return
        self.last = replace(found, step=trainer.global_step)
        boards = [one for one in trainer.loggers if isinstance(one, RunLogger | TensorBoardLogger)]
        for logger in trainer.loggers:
            logger.log_metrics(self.last.scalars(), step=trainer.global_step)
        folder = Path(boards[0].log_dir) / "analysis" / f"step-{trainer.global_step:08}" if boards else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self.last.write(folder / "analysis.json")
        if self.figures and folder is not None:
            # Only now: a report of scalars needs no matplotlib.
            from ilr.analysis.figures import draw
            from ilr.analysis.output import add_pictures, render, write_pictures

            pictures = render(draw([self.last]))
            write_pictures(pictures, folder)
            for board in boards:
                add_pictures(board.experiment, pictures, trainer.global_step)


def _first_loader(trainer: L.Trainer) -> Iterable[Batch]:
    loaders: Any = trainer.val_dataloaders
    first: Iterable[Batch] = loaders[0] if isinstance(loaders, list | tuple) else loaders
    return first
