"""Prepared files opened for reading: streams, document tables, tokenizer, texts."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ilr.data.documents import EVALUATED, SPLITS
from ilr.data.duplicates import duplicates, warning
from ilr.data.manifest import SplitInfo, read_manifest
from ilr.data.tokenizer import load_tokenizer
from ilr.data.tokens import (
    TOKENIZER,
    DocumentTable,
    TokenFile,
    read_table,
    stream_path,
    twins_path,
)
from ilr.errors import InputError


class PreparedData:
    """A prepared directory; its splits perhaps cut to the first so many tokens, at a document's end.

    `manifest` describes what is used, after the cut; its `tokenizer_hash` and `corpus_hash` are unchanged.
    `whole` is the manifest before it.
    """

    def __init__(
        self, directory: Path, max_train_tokens: int | None = None, max_eval_tokens: int | None = None
    ) -> None:
        manifest = read_manifest(directory)
        if manifest is None:
            raise InputError(f"the prepared data {directory} are not whole; delete them and start again")
        self.manifest = self.whole = manifest
        self.streams = {
            split: TokenFile(stream_path(directory, split), manifest.dtype, manifest.splits[split].tokens)
            for split in SPLITS
        }
        self.tables = {split: read_table(directory, split) for split in SPLITS}
        content = (directory / TOKENIZER).read_text(encoding="utf-8")
        self.tokenizer = load_tokenizer(content, manifest.separator_token)
        if max_train_tokens is not None:
            self._cut("train", max_train_tokens, "max_train_tokens")
        if max_eval_tokens is not None:
            for split in ("validation", "test"):
                self._cut(split, max_eval_tokens, "max_eval_tokens")
        self._count_duplicates(directory)

    def _cut(self, split: str, max_tokens: int, option: str) -> None:
        table = self.tables[split]
        info, self.tables[split], self.streams[split] = cut_at_document(
            self.manifest.splits[split], table, self.streams[split], max_tokens
        )
        if info.documents == 0 and len(table):
            raise InputError(
                f"--data.{option} {max_tokens} is less than the {table.tokens[0]} tokens of the "
                f"first document of the {split} split"
            )
        self.manifest = replace(self.manifest, splits={**self.manifest.splits, split: info})

    def _count_duplicates(self, directory: Path) -> None:
        """Those of the splits as they are cut."""
        num_train = len(self.tables["train"])
        found = {}
        for split in EVALUATED:
            table = self.tables[split]
            first = np.load(twins_path(directory, split))[: len(table)]
            found[split] = duplicates(first, table, num_train)
        self.manifest = replace(self.manifest, duplicates=found)

    def warnings(self) -> Iterator[str]:
        """What is to be said about the splits: documents of validation or test that are trained on."""
        for split, found in self.manifest.duplicates.items():
            if found.documents:
                info = self.manifest.splits[split]
                yield warning(split, found, info.documents, info.tokens)

    def texts(self, split: str) -> Iterator[str]:
        """The documents of a split as they were, decoded from the stream."""
        stream, table = self.streams[split].array, self.tables[split]
        for start, tokens in zip(table.start.tolist(), table.tokens.tolist(), strict=True):
            yield self.tokenizer.decode(
                stream[start : start + tokens - 1].tolist(), skip_special_tokens=False
            )


def cut_at_document(
    info: SplitInfo, table: DocumentTable, stream: TokenFile, max_tokens: int
) -> tuple[SplitInfo, DocumentTable, TokenFile]:
    """The longest beginning of whole documents that has at most `max_tokens` tokens (perhaps none)."""
    if info.tokens <= max_tokens:
        return info, table, stream
    kept = int(np.searchsorted(table.start + table.tokens, max_tokens, side="right"))
    shorter = DocumentTable(table.start[:kept], table.tokens[:kept], table.bytes[:kept])
    tokens = int(shorter.tokens.sum())
    shorter_stream = TokenFile(stream.path, stream.dtype, tokens)
    digest = hashlib.sha256(shorter_stream.array.tobytes()).hexdigest()
    return (
        replace(info, tokens=tokens, documents=kept, bytes=int(shorter.bytes.sum()), hash=digest),
        shorter,
        shorter_stream,
    )
