"""A trained run back from its directory: its weights, its tokenizer and its text."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ilr.data import TextData
from ilr.data.encoding import encode_text
from ilr.data.recorded import RunText, read_run_tokenizer, trained_on
from ilr.data.tokenizer import SEPARATOR
from ilr.errors import InputError
from ilr.files.plain_yaml import read_mapping
from ilr.files.readers import validated
from ilr.model.decoder import Decoder
from ilr.model.device import usable_device
from ilr.runs.directory import RunDirectory
from ilr.runs.loading import chosen_checkpoint, decoder_of
from ilr.runs.option_schema import check_options
from ilr.runs.options import defaults_of, flat
from ilr.runs.schema import Settings
from ilr.runs.text import text_beside


@dataclass(frozen=True)
class TrainedRun:
    """One checkpoint of a run: which file and step it is, its decoder, what lies beside it, and the precision of
    its validation ("same": that of training).
    """

    checkpoint: Path
    step: int
    decoder: Decoder
    directory: RunDirectory
    val_precision: str
    text: RunText | None = None

    @classmethod
    def load(cls, path: str | Path, weights: str = "best", device: str = "cpu") -> "TrainedRun":
        """A checkpoint file, or a run directory's ``best`` or ``last``; `InputError` for another path."""
        place = usable_device(device)
        file, checkpoint = chosen_checkpoint(path, weights)
        decoder = decoder_of(file, checkpoint).to(place)
        return cls(
            checkpoint=file,
            step=checkpoint["global_step"],
            decoder=decoder,
            directory=RunDirectory(file.absolute().parent.parent),
            val_precision=checkpoint["hyper_parameters"].get("val_precision", "same"),
            text=RunText.of_checkpoint(checkpoint),
        )

    @property
    def separator_token(self) -> str:
        """What stands after each document, by name."""
        return str(self.settings["data"].get("separator_token", SEPARATOR))

    @cached_property
    def separator_id(self) -> int:
        """The token that stands after each document."""
        separator = self.tokenizer.token_to_id(self.separator_token)
        if separator is None:
            raise InputError(
                f"the tokenizer of {self.directory.path} has no separator {self.separator_token!r}"
            )
        return separator

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in the run directory, set up as for training."""
        path = self.directory.tokenizer
        if not path.is_file():
            raise InputError(f"no {path}: the checkpoint lies outside its run directory")
        return read_run_tokenizer(path, self.separator_token, self._tokenizer_hash)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer's file, which has been found to be that of training."""
        assert self.tokenizer is not None
        return self.directory.tokenizer

    @property
    def _tokenizer_hash(self) -> str | None:
        """That of training, from the checkpoint; checkpoints of earlier versions lack it, perhaps not the summary."""
        if self.text is not None:
            return self.text.tokenizer_hash
        summary = self.directory.summary()
        return None if summary is None else summary.get("tokenizer_hash")

    def encode(self, prompt: str) -> list[int]:
        """The ids that this text has in training; for an empty prompt those of a document's beginning.

        Raises `InputError` for text that the tokenizer does not give back.
        """
        ids = encode_text(prompt, self.tokenizer, self.separator_id, f"the prompt {prompt[:40]!r}")
        return ids or [self.separator_id]

    @cached_property
    def data(self) -> TextData:
        """The run's text as it was in training, from the cache or prepared again.

        Raises `InputError` where neither can be done, or the text has changed since.
        """
        # The configuration gives the context once, to the model.
        with trained_on(self.text or text_beside(self.directory, self.settings["data"])):
            data = TextData(**self.settings["data"] | {"context": self.decoder.config.context})
        data.setup()
        if data.tokenizer.to_str() != self.tokenizer.to_str():
            raise InputError(
                f"the text of {self.directory.path} gives another tokenizer now: it has changed since"
            )
        return data

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The run's effective configuration; raises `InputError` for a checkpoint outside its run directory."""
        if not self.directory.config.is_file():
            raise InputError(f"no {self.directory.config}: the checkpoint lies outside its run directory")
        found = read_mapping(self.directory.config, "configuration")
        settings = validated(found, Settings, self.directory.config).model_dump()
        check_options(flat(settings), self.directory.config)
        for key in settings["data"].keys() - defaults_of("data").keys():
            raise InputError(f"{self.directory.config}: data.{key} is no option of the data")
        return settings
