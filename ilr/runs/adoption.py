"""What `validate` and `test` take over from a run: its weights, its text, and its tokenizer for whatever text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilr.data import TextData
from ilr.data.recipe import Recipe
from ilr.data.recorded import RunText, read_run_tokenizer
from ilr.data.seen import seen_in_training
from ilr.errors import InputError
from ilr.files.plain import plain
from ilr.runs.checkpoints import Record, read_checkpoint
from ilr.runs.directory import RunDirectory
from ilr.runs.options import defaults_of
from ilr.runs.resume import existing, stored_values, take_over
from ilr.runs.text import text_of_run

OF_THE_TOKENIZER = ("vocab_size", "separator_token")
"""Data options that describe the tokenizer, which is the run's own."""


@dataclass(frozen=True)
class Adopted:
    """A checkpoint that is evaluated.

    ``words``: which it is, and under which schedule. ``text``: the run's text, None where the user names another.
    ``trained``: the run's text in any case, where it is known, of which ``max_train_tokens`` were trained on.
    """

    directory: RunDirectory
    words: str
    text: RunText | None
    trained: RunText | None
    max_train_tokens: int | None

    def warnings(self, data: TextData, split: str) -> list[str]:
        """What is to be said of another text than the run's: documents of it that the weights were trained on."""
        if self.text is not None or self.trained is None:
            return []
        found = seen_in_training(
            self.trained,
            self.max_train_tokens,
            data.cache,
            split,
            data.manifest,
            data.text_of(split),
            data.documents(split),
        )
        return list(found)


def adopt_checkpoint(cfg: Any, given: dict[str, Any]) -> Adopted:
    """Set the checkpoint and what it was trained with; what is evaluated.

    ``--ckpt_path`` names a file; ``--run_dir`` with ``--weights`` best or last asks the run's record.
    Another ``--model.schedule`` than the trained one evaluates the same weights under that schedule.
    """
    path, checkpoint = _chosen(cfg)
    directory = RunDirectory(path.parent.parent)
    stored = stored_values(directory, checkpoint)
    trained_on = text = text_of_run(directory, checkpoint, stored.get("data", {}))
    take_over("validate", cfg, given, stored)
    if given.get("data", {}).keys() & Recipe.__dataclass_fields__.keys():
        _adopt_tokenizer(cfg.data, given["data"], stored, directory, text)
        text = None
    cfg.model.vocab_size = stored["model"]["vocab_size"]
    cfg.ckpt_path = str(path)
    trained, asked = plain(stored["model"]["schedule"]), plain(cfg.model.schedule)
    under = f"schedule {trained}" if trained == asked else f"schedule {asked} (trained under {trained})"
    words = f"{path}, step {checkpoint['global_step']}, {under}"
    return Adopted(directory, words, text, trained_on, stored.get("data", {}).get("max_train_tokens"))


def _adopt_tokenizer(
    data: Any, given: dict[str, Any], stored: dict[str, Any], directory: RunDirectory, text: RunText | None
) -> None:
    """Have another text, or another cut of it, encoded as the weights were trained: none is trained for it.

    Raises `InputError` where the user asks for another tokenizer, and where the run's is not there.
    """
    for name in OF_THE_TOKENIZER:
        own = stored.get("data", {}).get(name, defaults_of("data")[name])
        if given.get(name, own) != own:
            raise InputError(
                f"--data.{name} is {given[name]}, the run has {own}: it is evaluated with its own tokenizer"
            )
    path = Path(given["tokenizer"]).expanduser() if given.get("tokenizer") else directory.tokenizer
    if not path.is_file():
        raise InputError(
            f"no {path}: another text is evaluated with the run's own tokenizer; give it by --data.tokenizer"
        )
    read_run_tokenizer(path, data.separator_token, None if text is None else text.tokenizer_hash)
    data.tokenizer = str(path)


def _chosen(cfg: Any) -> tuple[Path, dict[str, Any]]:
    if cfg.ckpt_path is not None:
        path = existing(cfg.ckpt_path)
        return path, read_checkpoint(path)
    if cfg.run_dir is None:
        raise InputError(
            "nothing to evaluate: give --ckpt_path FILE, or --run_dir DIR with --weights best or last"
        )
    directory = RunDirectory(Path(cfg.run_dir))
    if not directory.has_run():
        raise InputError(f"--run_dir {directory.path} is not a run directory")
    return Record.read(directory).chosen(directory, cfg.weights)
