"""From a recipe to prepared token files: read, split, train the tokenizer, encode, once."""

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ilr.data.cache import fetch
from ilr.data.content import content_hash
from ilr.data.corpora import Source, combine
from ilr.data.corpus_documents import CorpusDocuments
from ilr.data.documents import (
    EVALUATED,
    SPLITS,
    Boundaries,
    assign_splits,
    select,
)
from ilr.data.duplicates import (
    DROPPED,
    Digests,
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
    contents = {role: content_hash(group, cache, joined=joined) for role, group in sources.items()}
    described = {
        "version": VERSION,
        "corpus": hash_of(contents),
        "document": recipe.document,
        "max_documents": recipe.max_documents,
        "splits": [*recipe.splits, recipe.split_seed],
        "separator": recipe.separator_token,
        "duplicates": recipe.duplicates,
        "tokenizer": tokenizer or ["bpe", recipe.vocab_size],
    }
    key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:20]
    return fetch(cache, key, lambda directory: _build(directory, key, recipe, sources, tokenizer, contents))


def hash_of(contents: dict[str, str]) -> str:
    """One hash of all corpora, from that of each, by their role."""
    return combine(*(f"{role} {content}" for role, content in sorted(contents.items())))


def _build(
    directory: Path,
    key: str,
    recipe: Recipe,
    sources: dict[str, list[Source]],
    given: str | None,
    contents: dict[str, str],
) -> Manifest:
    """Fill the directory; the manifest is returned, not written."""
    corpora = {role: CorpusDocuments(role, group, recipe, contents[role]) for role, group in sources.items()}
    assigned = _assignment(recipe, corpora)
    digests = {role: documents.digests for role, documents in corpora.items()}
    dropped = drop_from_train(digests, assigned) if recipe.duplicates == "drop" else 0
    if dropped:
        say(f"data: {dropped} documents of train left out, as they also stand in validation or test")
    if given is None:
        tokenizer = _trained_tokenizer(recipe, corpora["corpus"], assigned["corpus"])
    else:
        tokenizer = load_tokenizer(given, recipe.separator_token)
    separator = separator_of(tokenizer, recipe.separator_token)
    (directory / TOKENIZER).write_text(tokenizer.to_str(), encoding="utf-8")
    splits = _encode(directory, corpora, assigned, tokenizer, separator)
    found = _find_duplicates(directory, digests, assigned)
    for split, info in splits.items():
        say(f"data: {split}: {info.documents} documents, {info.tokens} tokens, {info.bytes} bytes")
    return Manifest(
        key=key,
        corpus_hash=hash_of(contents),
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


def _trained_tokenizer(recipe: Recipe, documents: CorpusDocuments, assigned: NDArray[np.uint8]) -> Tokenizer:
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


def _assignment(recipe: Recipe, corpora: dict[str, CorpusDocuments]) -> dict[str, NDArray[np.uint8]]:
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
    corpora: dict[str, CorpusDocuments],
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
