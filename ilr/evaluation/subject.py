"""What is evaluated: which weights, under which schedule and precision, on which text."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ilr.data import TextData
from ilr.data.cache import cache_directory
from ilr.data.encoding import Misencoded
from ilr.data.seen import seen_in_training
from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan
from ilr.runs.options import defaults_of
from ilr.runs.trained_run import TrainedRun

PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "32-true": (torch.float32, None),
    "64-true": (torch.float64, None),
    "bf16-true": (torch.bfloat16, None),
    "16-true": (torch.float16, None),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-mixed": (torch.float32, torch.float16),
}
"""Lightning's names → type of the weights, and of matrix products where autocast decides it."""

_SHORT = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "16": "16-mixed", "None": "32-true"}

WHOLE = "train"
"""The split that holds all of a text when nothing is kept apart."""


@dataclass(frozen=True)
class Text:
    """A prepared text, the split of it that is scored, and what to call that."""

    data: TextData
    split: str
    name: str
    corpus: tuple[str, ...]


def evaluation_precision(run: TrainedRun, asked: str | None) -> str:
    """The precision asked for, else the one in which the run itself is validated."""
    if asked is None:
        asked = run.val_precision
    if asked == "same":
        # Where no option says it, a plugin may have: the summary has what the Trainer made of both.
        summary = run.directory.summary() or {}
        asked = str(run.settings["trainer"].get("precision") or summary.get("precision"))
    asked = _SHORT.get(asked, asked)
    if asked not in PRECISIONS:
        raise InputError(f"--precision must be one of {', '.join(PRECISIONS)}, got {asked!r}")
    return asked


def logits_function(decoder: Decoder, plan: Plan, precision: str) -> Callable[[Tensor], Tensor]:
    """Inputs (B, T) → logits (B, T, V) of the decoder under this plan; sets the type of its weights."""
    weights, products = PRECISIONS[precision]
    decoder.to(dtype=weights)

    def logits(inputs: Tensor) -> Tensor:
        with nullcontext() if products is None else torch.autocast(inputs.device.type, products):
            return decoder(inputs, plan)

    return logits


def own_text(run: TrainedRun, split: str) -> Text:
    """A split of the run's own text, as in training."""
    return Text(
        run.data, split, split, _names(run.settings["data"].get("corpus", defaults_of("data")["corpus"]))
    )


def other_text(
    run: TrainedRun, corpus: Sequence[str], split: str | None, reading: Mapping[str, str | None]
) -> Text:
    """Another text through the run's tokenizer: all of it, or the share that the run's settings give a split.

    `reading`: data options that say how it is read and cut, None for the run's own.
    """
    settings = {**run.settings["data"], "corpus": list(corpus), "validation": None, "test": None}
    settings |= {"tokenizer": str(run.tokenizer_path), "context": run.decoder.config.context}
    settings |= {name: value for name, value in reading.items() if value is not None}
    if split is None:
        settings |= {"splits": (1.0, 0.0, 0.0), "max_documents": None, "max_train_tokens": None}
    data = TextData(**settings)
    try:
        data.setup()
    except Misencoded as error:  # no other tokenizer can be chosen for these weights
        raise InputError(
            f"{error.fact}; --corpus must be text that the run's tokenizer ({run.tokenizer_path}) gives back"
        ) from None
    name = re.sub(r"[^\w.+-]", "_", "+".join(Path(one).stem for one in corpus))
    if split is not None:
        name += f"-{split}"
    return Text(data, WHOLE if split is None else split, name, tuple(corpus))


def warnings_of(run: TrainedRun, text: Text) -> list[str]:
    """What the hashes say against this text: changed since training, or trained on."""
    summary, manifest = run.directory.summary(), text.data.manifest
    if summary is None:
        return [] if text.data is run.data else _seen(run, text)
    if text.split != WHOLE and text.data is run.data:
        known = (summary["split_hashes"] or {}).get(text.split)
        return (
            []
            if known in (None, manifest.splits[text.split].hash)
            else [f"the {text.split} text is not the one that was there in training"]
        )
    if text.split == WHOLE and summary["corpus_hash"] == manifest.corpus_hash:
        return ["this is the text that the run was trained on"]
    return _seen(run, text)


def _seen(run: TrainedRun, text: Text) -> list[str]:
    if run.text is None:
        return []
    settings, data = run.settings["data"], text.data
    found = seen_in_training(
        run.text,
        settings.get("max_train_tokens"),
        cache_directory(settings.get("cache_dir")),
        text.name,
        data.manifest,
        data.text_of(text.split),
        data.documents(text.split),
    )
    return list(found)


def words_of(text: Text) -> int:
    """Words of the original text: what white space separates, counted in each document."""
    return sum(len(document.split()) for document in text.data.text_of(text.split))


def weights_name(path: Path, weights: str) -> str:
    """What to call the weights beside others of the run: best, last, or the checkpoint file's own name."""
    return weights if path.is_dir() else path.stem


def _names(corpus: str | list[str]) -> tuple[str, ...]:
    return (corpus,) if isinstance(corpus, str) else tuple(corpus)
