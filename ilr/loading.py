"""A trained decoder back from its file, in any process."""

from pathlib import Path

from ilr.checkpoints import Record
from ilr.decoder import Decoder
from ilr.errors import InputError
from ilr.resume import read_checkpoint
from ilr.run_directory import RunDirectory
from ilr.training import LanguageModel


def load(path: str | Path, *, weights: str = "best") -> Decoder:
    """The decoder of a checkpoint file, or of a run directory's ``best`` or ``last`` checkpoint.

    It comes on the CPU in evaluation mode, uncompiled. Raises `InputError` for a missing, damaged or foreign file.
    """
    checkpoint = read_checkpoint(checkpoint_path(path, weights))
    parameters = {**checkpoint["hyper_parameters"], "compile": "none", "recompute": "none"}
    module = LanguageModel(**parameters)
    module.configure_model()
    module.load_state_dict(checkpoint["state_dict"])
    return module.decoder.eval()


def checkpoint_path(path: str | Path, weights: str = "best") -> Path:
    """The checkpoint file that ``path`` means: itself, or the best or last of a run directory."""
    path = Path(path)
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"no checkpoint file or run directory {path}")
        return path
    if weights not in ("best", "last"):
        raise InputError(f"weights must be best or last, got {weights!r}")
    directory = RunDirectory(path)
    if not directory.config.is_file() and not directory.checkpoints.is_dir():
        raise InputError(
            f"{path} is not a run directory: it has neither {directory.config.name} nor checkpoints"
        )
    record = Record.read(directory)
    found = directory.checkpoints / record.best.file if weights == "best" and record.best else None
    found = record.newest_readable(directory) if weights == "last" else found
    if found is None or not found.is_file():
        raise InputError(f"the run directory {path} has no {weights} checkpoint")
    return found
