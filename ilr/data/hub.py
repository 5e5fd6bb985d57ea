"""Text of a data set on the Hugging Face hub, through `datasets`; without a network it fails soon."""

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from ilr.data.cache import file_lock
from ilr.data.corpora import LOCAL_CHOICES, JsonLines, Pieces, Source, combine, missing_column
from ilr.errors import InputError
from ilr.progress import say

HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(:(?P<split>[\w.\[\]%+-]+))?")
"""owner/name, and perhaps its split after a colon."""
PROBE_SECONDS = 6.0


@dataclass(frozen=True)
class HubRows(Source):
    """The rows of one split of a hub data set; each row's `column` is an item.

    Loaded through `datasets` into its own cache; or streamed when `spool` is a directory: then the texts
    of the first `max_rows` rows (those with text) are read once into a .jsonl file there.
    """

    name: str
    config: str | None
    split: str
    revision: str | None
    column: str
    spool: Path | None
    max_rows: int | None
    rows = True

    def pieces(self) -> Pieces:
        """The rows' texts; InputError when the hub, the data set or the column is not there."""
        if self.spool is not None:
            yield from self._spooled.pieces()
            return
        for text in self._loaded():
            yield text
            yield None

    def digest(self) -> str:
        """SHA-256 over the rows' texts."""
        if self.spool is not None:
            return self._spooled.digest()
        hasher = hashlib.sha256()
        for text in self._loaded():
            encoded = text.encode()
            hasher.update(len(encoded).to_bytes(8, "little") + encoded)
        return hasher.hexdigest()

    @cached_property
    def _spooled(self) -> JsonLines:
        assert self.spool is not None
        commit = self.revision if is_commit(self.revision) else probe(self.name, self.revision)
        identity = combine(
            self.name, str(self.config), self.split, str(commit), self.column, str(self.max_rows)
        )
        path = self.spool / f"streamed-{identity[:20]}.jsonl"
        self.spool.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_suffix(".lock"), f"data: another process reads {self.name}, waiting for it"):
            if not path.exists():
                say(f"data: streaming {self.name} ({self.split}) into {path}")
                self._write(path)
        return JsonLines(path, self.column)

    def _write(self, path: Path) -> None:
        dataset = load(self.name, self.config, self.split, self.revision, streaming=True)
        texts = (text for row in _guarded(self.name, dataset) if (text := self._text(row)).strip())
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            for text in islice(texts, self.max_rows):
                file.write(json.dumps({self.column: text}, ensure_ascii=False) + "\n")
        temporary.rename(path)

    def _text(self, row: dict[str, Any]) -> str:
        if self.column not in row:
            raise InputError(missing_column(f"{self.name} ({self.split})", self.column, list(row)))
        return row[self.column] or ""

    @cached_property
    def _dataset(self) -> Any:
        dataset = load(self.name, self.config, self.split, self.revision, streaming=False)
        if self.column not in dataset.column_names:
            raise InputError(missing_column(f"{self.name} ({self.split})", self.column, dataset.column_names))
        return dataset.select_columns([self.column]).with_format("arrow")

    def _loaded(self) -> Iterator[str]:
        for table in self._dataset.iter(batch_size=1000):
            for text in table.column(self.column).to_pylist():
                yield text or ""


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a full commit hash, which names content for ever."""
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def offline_mode() -> bool:
    """Whether HF_HUB_OFFLINE (or HF_DATASETS_OFFLINE) says not to use the network."""
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def probe(name: str, revision: str | None) -> str | None:
    """The commit that a revision means now; None in offline mode.

    InputError within PROBE_SECONDS + 1 when the hub cannot be reached or has no such data set.
    """
    if offline_mode():
        return None
    from huggingface_hub import HfApi

    outcome: dict[str, Any] = {}

    def ask() -> None:
        try:
            outcome["commit"] = HfApi().dataset_info(name, revision=revision, timeout=PROBE_SECONDS).sha
        except Exception as error:  # every failure of any layer below means the same: not to be had
            outcome["error"] = error

    # In a thread of its own, because a look-up of the host's name knows no time-out.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS + 1)
    if "commit" in outcome:
        return str(outcome["commit"])
    raise unavailable(name, outcome.get("error", f"no answer within {PROBE_SECONDS + 1:.0f} s"))


def load(name: str, config: str | None, split: str, revision: str | None, *, streaming: bool) -> Any:
    """The data set of `datasets`, after a probe; InputError with its reason when it cannot be had."""
    commit = probe(name, revision)
    import datasets

    try:
        return datasets.load_dataset(
            name, config, split=split, revision=commit or revision, streaming=streaming
        )
    except Exception as error:  # `datasets` raises what it likes: ValueError, OSError, its own
        raise unavailable(name, error) from error


def _guarded(name: str, rows: Any) -> Iterator[dict[str, Any]]:
    """The rows; a connection lost midway becomes an InputError."""
    try:
        yield from rows
    except OSError as error:
        raise unavailable(name, error) from error


def unavailable(name: str, reason: object) -> InputError:
    """The error that says what could not be loaded, why, and what to do instead."""
    first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    advice = (
        "offline mode is on and `datasets` has no copy: load it once with a network, or unset HF_HUB_OFFLINE"
        if offline_mode()
        else "a data set that was loaded on this machine before is found with HF_HUB_OFFLINE=1"
    )
    return InputError(
        f"--data.corpus: cannot load the data set {name!r} from the hub: {first_line}; no local file "
        f"has this name either; {advice}; {LOCAL_CHOICES}"
    )
