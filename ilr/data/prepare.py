"""From a recipe to prepared token files: read, split, train the tokenizer, encode, once."""

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ilr.data.cache import fetch
from ilr.data.content import content_hash, corpus_items
from ilr.data.corpora import Pieces, Source, combine
from ilr.data.documents import (
    EVALUATED,
    FEWEST_DOCUMENTS,
    PSEUDO_CHARACTERS,
    SPLITS,
    Boundaries,
    NonEmpty,
    assign_splits,
    first_documents,
    pseudo_documents,
    select,
)
from ilr.data.duplicates import (
    DROPPED,
    Digests,
    census,
    digests_of,
    drop_from_train,
    duplicates,
    twins,
)
from ilr.data.encoding import encode_documents
from ilr.data.manifest import Duplicates, Manifest, SplitInfo, file_info
from ilr.data.recipe import Recipe
from ilr.data.tokenizer import (
    load_tokenizer,
    separator_of,
    tokenizer_hash,
    train_tokenizer,
    vocabulary_size,
)
from ilr.data.tokens import (
    TOKENIZER,
    SplitWriter,
    read_table,
    smallest_dtype,
    split_files,
    twins_path,
)
from ilr.errors import InputError
from ilr.progress import progress_bar, say

VERSION = 2
"""Part of the cache key: raise it when the same recipe and text give other files than before."""

TOKENIZER_BYTES = 1 << 27
"""The tokenizer is trained on about this much text at most: counting words takes memory, and more text
changes little."""


def prepare(recipe: Recipe, cache: Path) -> Manifest:
    """The manifest of the prepared data of this recipe, in `cache / manifest.key`.

    The key is a hash of content: of the text of the corpora, the tokenizer or how it is trained, the
    boundaries, splits and separator, and VERSION. Reads every corpus once to compute it.
    """
    sources = recipe.sources(cache)
    tokenizer = recipe.tokenizer_content()
    joined = Boundaries(recipe.document).by_pattern
    digests = {role: content_hash(group, cache, joined=joined) for role, group in sources.items()}
    corpus_hash = combine(*(f"{role} {digest}" for role, digest in sorted(digests.items())))
    described = {
        "version": VERSION,
        "corpus": corpus_hash,
        "document": recipe.document,
        "max_documents": recipe.max_documents,
        "splits": [*recipe.splits, recipe.split_seed],
        "separator": recipe.separator_token,
        "duplicates": recipe.duplicates,
        "tokenizer": tokenizer or ["bpe", recipe.vocab_size],
    }
    key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:20]
    return fetch(
        cache, key, lambda directory: _build(directory, key, recipe, sources, tokenizer, corpus_hash)
    )


class _Documents:
    """The documents of one corpus: boundaries, pseudo-documents if there are few, empty ones left out."""

    def __init__(self, role: str, sources: list[Source], recipe: Recipe) -> None:
        self._sources, self._recipe = sources, recipe
        self.pseudo = False
        boundaries, non_empty = Boundaries(recipe.document), NonEmpty()
        found = census(self._read(boundaries, non_empty))
        if boundaries.by_pattern and boundaries.matches == 0:
            raise InputError(
                f"--data.document {recipe.document!r} is none of file, line, paragraph, and as a regular "
                f"expression it matches no line of --data.{role}"
            )
        if found.number < FEWEST_DOCUMENTS:
            self.pseudo, few = True, found.number
            found = census(self)
            say(
                f"data: {role} has {few} document{'s' * (few != 1)}, fewer than {FEWEST_DOCUMENTS}: cut "
                f"at line ends into {found.number} pseudo-documents of about {PSEUDO_CHARACTERS} characters "
                "(some 2,048 tokens), split contiguously"
            )
        self.number, self.bytes, self.digests = found.number, found.bytes, found.digests
        if self.number == 0:
            raise InputError(f"--data.{role} has no text in it")
        self.skipped = non_empty.skipped
        if self.skipped:
            say(f"data: {role}: {self.skipped} empty documents skipped (null, missing, or blank)")

    def _read(self, boundaries: Boundaries, non_empty: NonEmpty) -> Pieces:
        pieces = corpus_items(self._sources, joined=boundaries.by_pattern)
        documents = non_empty.filter(boundaries.split(pieces))
        documents = first_documents(documents, self._recipe.max_documents)
        return NonEmpty().filter(pseudo_documents(documents)) if self.pseudo else documents

    def __iter__(self) -> Pieces:
        return self._read(Boundaries(self._recipe.document), NonEmpty())


def _build(
    directory: Path,
    key: str,
    recipe: Recipe,
    sources: dict[str, list[Source]],
    content: str | None,
    corpus_hash: str,
) -> Manifest:
    """Fill the directory; the manifest is returned, not written."""
    corpora = {role: _Documents(role, group, recipe) for role, group in sources.items()}
    assigned = _assignment(recipe, corpora)
    digests = {role: documents.digests for role, documents in corpora.items()}
    dropped = drop_from_train(digests, assigned) if recipe.duplicates == "drop" else 0
    if dropped:
        say(f"data: {dropped} documents of train left out, as they also stand in validation or test")
    if content is None:
        tokenizer = _trained_tokenizer(recipe, corpora["corpus"], assigned["corpus"])
    else:
        tokenizer = load_tokenizer(content, recipe.separator_token)
    separator = separator_of(tokenizer, recipe.separator_token)
    tokenizer.save(str(directory / TOKENIZER))
    splits = _encode(directory, corpora, assigned, tokenizer, separator)
    found = _find_duplicates(directory, digests, assigned)
    for split, info in splits.items():
        say(f"data: {split}: {info.documents} documents, {info.tokens} tokens, {info.bytes} bytes")
    return Manifest(
        key=key,
        corpus_hash=corpus_hash,
        tokenizer_hash=tokenizer_hash(tokenizer),
        vocab_size=vocabulary_size(tokenizer),
        separator_token=recipe.separator_token,
        separator_id=separator,
        dtype=smallest_dtype(vocabulary_size(tokenizer)).str,
        document=recipe.document,
        pseudo_documents=corpora["corpus"].pseudo,
        skipped_documents=sum(documents.skipped for documents in corpora.values()),
        splits=splits,
        duplicates=found,
        dropped_duplicates=dropped,
        files={path.name: file_info(path) for path in split_files(directory)},
    )


def _trained_tokenizer(recipe: Recipe, documents: _Documents, assigned: NDArray[np.uint8]) -> Tokenizer:
    """A tokenizer trained on the train split; on every n-th of its documents when there is much text."""
    chosen = np.flatnonzero(assigned == SPLITS.index("train"))
    sampled = chosen[:: -(-documents.bytes // TOKENIZER_BYTES)]
    say(
        f"data: training a tokenizer of {recipe.vocab_size} entries on {len(sampled)} of "
        f"{len(chosen)} documents of the train split"
    )
    mask = np.zeros(len(assigned), dtype=bool)
    mask[sampled] = True
    return train_tokenizer(select(iter(documents), mask), recipe.vocab_size)


def _assignment(recipe: Recipe, corpora: dict[str, _Documents]) -> dict[str, NDArray[np.uint8]]:
    """The split of every document of every corpus, as indices into SPLITS."""
    shares = {
        split: share for split, share in zip(SPLITS, recipe.splits, strict=True) if split not in corpora
    }
    main = corpora["corpus"]
    assigned = {
        "corpus": assign_splits(main.number, shares, split_seed=recipe.split_seed, contiguous=main.pseudo)
    }
    for split in corpora.keys() - {"corpus"}:
        assigned[split] = np.full(corpora[split].number, SPLITS.index(split), dtype=np.uint8)
    return assigned


def _find_duplicates(
    directory: Path, digests: dict[str, Digests], assigned: dict[str, NDArray[np.uint8]]
) -> dict[str, Duplicates]:
    """Write, and count, what of validation and test also stands in train; the splits are written."""
    train = digests_of("train", digests, assigned)
    found = {}
    for split in EVALUATED:
        first = twins(train, digests_of(split, digests, assigned))
        np.save(twins_path(directory, split), first)
        table = read_table(directory, split)
        found[split] = duplicates(first, table, len(train))
    return found


def _encode(
    directory: Path,
    corpora: dict[str, _Documents],
    assigned: dict[str, NDArray[np.uint8]],
    tokenizer: Tokenizer,
    separator: int,
) -> dict[str, SplitInfo]:
    """Write the stream and the table of each split."""
    dtype = smallest_dtype(vocabulary_size(tokenizer))
    writers = [SplitWriter(directory, split, dtype) for split in SPLITS]
    total = sum(documents.bytes for documents in corpora.values())
    with progress_bar("tokenising", total, "B") as bar:
        for role, documents in corpora.items():
            number = 0
            place = f"document {{}} of --data.{role} (counted without empty ones)".format
            for encoded in encode_documents(iter(documents), tokenizer, separator, place):
                split = assigned[role][number]
                if encoded is not None:
                    bar.update(encoded[1])
                if split == DROPPED:
                    number += encoded is None
                elif encoded is None:
                    writers[split].end_document(separator)
                    number += 1
                else:
                    writers[split].add(*encoded)
    return {split: writer.close() for split, writer in zip(SPLITS, writers, strict=True)}
