"""What text a run was trained on, by content, kept in its checkpoints: the run's own text without its corpus.

Prepared data are found by their key in the cache: then it does not matter where the corpus is now, or whether
it has changed. Else the corpus is prepared again, and must give the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ilr.data.cache import cache_directory, damage, intact
from ilr.data.manifest import Manifest
from ilr.data.prepare import prepare
from ilr.data.recipe import Recipe
from ilr.data.tokenizer import load_tokenizer, tokenizer_hash
from ilr.errors import InputError
from ilr.files.text import read_text
from ilr.progress import say

MODULE, TEXT = "TextData", "text"
"""Where a checkpoint has it: in the state of the data module."""


@dataclass(frozen=True)
class RunText:
    """A run's text: key of the prepared data, and hashes of its tokenizer and of its whole splits.

    A key of None stands for a corpus that is named anew: it is to be read, and must give the same.
    """

    key: str | None
    tokenizer_hash: str
    split_hashes: dict[str, str]

    @classmethod
    def of(cls, manifest: Manifest) -> "RunText":
        """That of these prepared data, not cut."""
        hashes = {split: info.hash for split, info in manifest.splits.items()}
        return cls(manifest.key, manifest.tokenizer_hash, hashes)

    @classmethod
    def of_checkpoint(cls, checkpoint: Mapping[str, Any]) -> "RunText | None":
        """What a checkpoint says; None for one that was written before they did, or says nothing of ours."""
        state = checkpoint.get(MODULE)
        found = state.get(TEXT) if isinstance(state, Mapping) else None
        if not isinstance(found, Mapping):
            return None
        key, tokenizer, splits = (found.get(name) for name in ("key", "tokenizer_hash", "split_hashes"))
        # The key becomes part of a path: a foreign one must not lead anywhere else.
        if not (isinstance(key, str) and key.isalnum() and key.isascii()):
            return None
        if not isinstance(tokenizer, str) or not isinstance(splits, Mapping):
            return None
        return cls(key, tokenizer, {str(split): str(value) for split, value in splits.items()})

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain data."""
        return asdict(self)

    def differs_from(self, manifest: Manifest) -> list[str]:
        """What of these data is not the run's, in words."""
        other = RunText.of(manifest)
        different = [
            split for split, found in self.split_hashes.items() if other.split_hashes.get(split) != found
        ]
        return different + ["the tokenizer"] * (self.tokenizer_hash != other.tokenizer_hash)


_CURRENT: ContextVar[RunText | None] = ContextVar("run_text", default=None)


@contextmanager
def trained_on(text: RunText | None) -> Iterator[None]:
    """Data modules that are made herein are this text, whatever the corpus is now; as ever for None."""
    token = _CURRENT.set(text)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_run_text() -> RunText | None:
    """The text of the innermost `trained_on`."""
    return _CURRENT.get()


@contextmanager
def needed_again(text: RunText | None) -> Iterator[None]:
    """Have the error for a file that is not there say what to do, where it is a run's; as ever for None."""
    try:
        yield
    except InputError as error:
        raise error if text is None else InputError(f"{error}; {_GIVE_IT}") from None


_GIVE_IT = (
    "it is the text that the run was trained on: put it back where it was, or give it to fit or validate by "
    "--data.corpus FILE"
)


def fetch_run_text(text: RunText, recipe: Recipe, cache: Path) -> tuple[Path, str]:
    """The cache and the key of a run's prepared data: its own where they are there, else the same made again.

    Raises InputError where the corpus is not there either, or gives other data now.
    """
    places = [] if text.key is None else dict.fromkeys([cache / text.key, cache_directory(None) / text.key])
    for place in places:
        manifest = intact(place)
        if manifest is not None and not text.differs_from(manifest):
            say(f"data: cache hit, key {text.key} in {place.parent}: the text that the run was trained on")
            return place.parent, manifest.key
    gone = "; ".join(f"{place}: {damage(place) if place.exists() else 'not there'}" for place in places)
    advice = (
        f"the prepared data of the run cannot be used either ({gone}): put the text back as it was, or name the "
        "cache that has them ($ILR_CACHE)"
        if places
        else _GIVE_IT
    )
    try:
        manifest = prepare(recipe, cache)
    except InputError as error:
        raise InputError(f"{error}; {advice}") from None
    if different := text.differs_from(manifest):
        raise InputError(
            f"this is not the text that the run was trained on: {', '.join(different)} differs; {advice}"
        )
    return cache, manifest.key


def read_run_tokenizer(path: Path, separator_token: str, expected_hash: str | None) -> Tokenizer:
    """The tokenizer.json in a run directory; InputError where it is not the one that the run was trained with."""
    content = read_text(path)
    tokenizer = load_tokenizer(content, separator_token, str(path))
    # The second: versions before this one wrote it with indents.
    found = (hashlib.sha256(content.encode()).hexdigest(), tokenizer_hash(tokenizer))
    if expected_hash is not None and expected_hash not in found:
        raise InputError(
            f"{path} is not the tokenizer that the run was trained with: its SHA-256 is {found[1][:12]}…, that of "
            f"the run {expected_hash[:12]}…"
        )
    return tokenizer
