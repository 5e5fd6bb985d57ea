"""Text of a data set on the Hugging Face hub, through `datasets`; without a network it fails soon."""

import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ilr.data.cache import file_lock
from ilr.data.containers import JsonRows, check_text_type, text_values
from ilr.data.corpora import LOCAL_CHOICES, combine
from ilr.data.rows import Rows, missing_column, row_text
from ilr.errors import InputError
from ilr.progress import say

HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(:(?P<split>[\w.\[\]%+-]+))?")
"""owner/name, and perhaps its split after a colon."""
PROBE_SECONDS = 6.0


@dataclass(frozen=True)
class HubRows(Rows):
    """The rows of one split of a hub data set; each row's `column` is an item.

    Loaded through `datasets` into its own cache; or streamed when `spool` is a directory: then the rows
    up to the `max_rows`-th one with text are read once into a .jsonl file there.
    """

    name: str
    config: str | None
    split: str
    revision: str | None
    column: str
    spool: Path | None
    max_rows: int | None

    def values(self) -> Iterator[tuple[str, object]]:
        """What the column holds, row by row; InputError when the hub or the data set is not there."""
        if self.spool is not None:
            yield from self._spooled.values()
            return
        number = 0
        for table in self._dataset.iter(batch_size=256):
            for chunk in table.column(self.column).chunks:
                for value in text_values(chunk):
                    number += 1
                    yield f"{self._where} row {number}", value

    def fingerprint(self) -> str | None:
        """That of the streamed rows; None for a loaded data set."""
        return None if self.spool is None else self._spooled.fingerprint()

    @property
    def _where(self) -> str:
        return f"{self.name} ({self.split})"

    @cached_property
    def _spooled(self) -> JsonRows:
        assert self.spool is not None
        commit = self.revision if is_commit(self.revision) else probe(self.name, self.revision)
        identity = combine(
            self.name, str(self.config), self.split, str(commit), self.column, str(self.max_rows)
        )
        path = self.spool / f"streamed-rows-{identity[:20]}.jsonl"
        self.spool.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_suffix(".lock"), f"data: another process reads {self.name}, waiting for it"):
            if not path.exists():
                say(f"data: streaming {self.name} ({self.split}) into {path}")
                self._write(path)
        return JsonRows(path, self.column)

    def _write(self, path: Path) -> None:
        dataset = load(self.name, self.config, self.split, self.revision, streaming=True)
        temporary = path.with_suffix(".tmp")
        with_text, absent = 0, None
        with temporary.open("w", encoding="utf-8") as file:
            for number, row in enumerate(_guarded(self.name, dataset), start=1):
                if self.column in row:
                    text = row_text(row[self.column], f"{self._where} row {number}", self.column)
                    file.write(json.dumps({self.column: text}, ensure_ascii=False) + "\n")
                    with_text += bool(text.strip())
                else:
                    absent = absent or row
                    file.write("null\n")
                if with_text == self.max_rows:
                    break
        if absent is not None and with_text == 0:
            raise InputError(missing_column(self._where, self.column, absent))
        temporary.rename(path)

    @cached_property
    def _dataset(self) -> Any:
        dataset = load(self.name, self.config, self.split, self.revision, streaming=False)
        if self.column not in dataset.column_names:
            raise InputError(missing_column(self._where, self.column, dataset.column_names))
        selected = dataset.select_columns([self.column]).with_format("arrow")
        check_text_type(selected.features.arrow_schema.field(self.column).type, self._where, self.column)
        return selected


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
    """The rows; a connection lost midway, or a file in it that is damaged, becomes an InputError."""
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except Exception as error:  # `datasets` raises what it likes
            raise unavailable(name, error) from error
        yield row


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
