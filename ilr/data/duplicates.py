"""The same document in training and in validation or test: counted by a digest of its text, and left out if asked.

Two documents are the same where their texts are, to the character; only the line ends at the very end do not
count, as they belong to where a text was cut.
"""

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ilr.data.documents import EVALUATED, SPLITS
from ilr.data.manifest import Duplicates
from ilr.data.tokens import DocumentTable
from ilr.errors import InputError

DROPPED = len(SPLITS)
"""Stands for the split of a document that is in none."""

Digests = NDArray[np.uint64]
"""64 bits for each text: two of a hundred million different ones are taken for the same once in 4,000 corpora."""


@dataclass(frozen=True)
class Census:
    """How many documents there are, their bytes of UTF-8, and the digest of each."""

    number: int
    bytes: int
    digests: Digests


def census(documents: Iterable[str | None]) -> Census:
    """Count documents, each closed by None, in 8 bytes of memory for each."""
    digests = array("Q")
    size, hasher, ends = 0, hashlib.blake2b(digest_size=8), b""
    for piece in documents:
        if piece is None:
            digests.append(int.from_bytes(hasher.digest(), "little"))
            hasher, ends = hashlib.blake2b(digest_size=8), b""
            continue
        encoded = piece.encode()
        size += len(encoded)
        text = ends + encoded
        kept = text.rstrip(b"\r\n")
        hasher.update(kept)
        ends = text[len(kept) :]
    return Census(len(digests), size, np.array(digests, dtype=np.uint64))


def twins(train: Digests, others: Digests) -> NDArray[np.int64]:
    """For each of the others the number of the first document of train with the same text, else −1."""
    if len(train) == 0:
        return np.full(len(others), -1, dtype=np.int64)
    order = np.argsort(train, kind="stable")
    places = np.minimum(np.searchsorted(train, others, sorter=order), len(train) - 1)
    found = order[places].astype(np.int64)
    return np.where(train[found] == others, found, -1)


def duplicates(first_in_train: NDArray[np.int64], table: DocumentTable, num_train: int) -> Duplicates:
    """The documents of a split that have their twin among the first `num_train` documents of train."""
    there = (first_in_train >= 0) & (first_in_train < num_train)
    return Duplicates(int(there.sum()), int(table.tokens[there].sum()), int(table.bytes[there].sum()))


def digests_of(split: str, digests: dict[str, Digests], assigned: dict[str, NDArray[np.uint8]]) -> Digests:
    """The digests of a split's documents in the order of its stream."""
    index = SPLITS.index(split)
    return np.concatenate([digests[role][assigned[role] == index] for role in digests])


def drop_from_train(digests: dict[str, Digests], assigned: dict[str, NDArray[np.uint8]]) -> int:
    """Take the documents that also stand in validation or test out of train; how many. Changes `assigned`.

    InputError when none would be left.
    """
    held_out = np.concatenate([digests_of(split, digests, assigned) for split in EVALUATED])
    train = SPLITS.index("train")
    dropped = left = 0
    for role, found in digests.items():
        wanted = assigned[role] == train
        leaked = wanted & np.isin(found, held_out)
        assigned[role][leaked] = DROPPED
        dropped += int(leaked.sum())
        left += int((wanted & ~leaked).sum())
    if left == 0:
        raise InputError(
            f"--data.duplicates drop leaves nothing to train on: all {dropped} documents also stand in "
            "validation or test"
        )
    return dropped


def warning(split: str, found: Duplicates, documents: int, tokens: int) -> str:
    """What to say of duplicates in a split of so many documents and tokens."""
    share = 100 * found.tokens / tokens
    return (
        f"warning: {found.documents:,} of {documents:,} {split} documents ({share:.1f}% of its tokens) also "
        "stand in train; --data.duplicates drop leaves them out of training"
    )
