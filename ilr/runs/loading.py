"""A trained decoder back from its file, in any process."""

from pathlib import Path
from typing import Any

from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.model.positions import warn_of_other_slopes
from ilr.model.weights import fitting
from ilr.runs.checkpoints import Record, read_checkpoint
from ilr.runs.directory import RunDirectory
from ilr.training.module import LanguageModel


def load(path: str | Path, *, weights: str = "best") -> Decoder:
    """The decoder of a checkpoint file, or of a run directory's ``best`` or ``last`` checkpoint.

    It comes on the CPU in evaluation mode, uncompiled. Raises `InputError` for a missing, damaged or foreign file,
    and for weights that do not fit the decoder that the checkpoint describes, with both names or shapes.
    """
    return decoder_of(*chosen_checkpoint(path, weights))


def decoder_of(path: Path, checkpoint: dict[str, Any]) -> Decoder:
    """The decoder of a checkpoint's content, which was read from ``path``; raises as `load` does."""
    parameters = {**checkpoint["hyper_parameters"], "compile": "none", "recompute": "none"}
    try:
        module = LanguageModel(**parameters)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} does not describe a decoder of this project: {error}") from error
    warn_of_other_slopes(module.config, checkpoint.get("ilr", {}))
    module.configure_model()
    module.load_state_dict(fitting(checkpoint["state_dict"], module.state_dict(), str(path)))
    return module.decoder.eval()


def chosen_checkpoint(path: str | Path, weights: str = "best") -> tuple[Path, dict[str, Any]]:
    """The checkpoint file that ``path`` means, itself or the best or last of a run directory, and its content."""
    path = Path(path)
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"no checkpoint file or run directory {path}")
        return path, read_checkpoint(path)
    if weights not in ("best", "last"):
        raise InputError(f"weights must be best or last, got {weights!r}")
    directory = RunDirectory(path)
    if not directory.config.is_file() and not directory.checkpoints.is_dir():
        raise InputError(
            f"{path} is not a run directory: it has neither {directory.config.name} nor checkpoints"
        )
    return Record.read(directory).chosen(directory, weights)
