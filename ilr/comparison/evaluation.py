"""The likelihoods of all ranked arms on one text, as one array, after checking that they may be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ilr.comparison.arms import Arm
from ilr.comparison.runs import Documents, Figure, Reading, Run, Seeds, Split
from ilr.errors import InputError


@dataclass(frozen=True)
class Evaluation:
    """NLL of every arm, seed and document of one split.

    `figure` is what arms are ranked by: nats per token, or bits per byte where tokenizers differ, since
    tokens of different tokenizers are different things. An arm's figure for a seed is the sum of
    `amounts` over documents divided by the sum of `weights`.
    """

    split: Split
    figure: Figure
    arms: tuple[Arm, ...]
    seeds: tuple[Seeds, ...]
    amounts: np.ndarray  # (A, S, N), NaN where an arm lacks a seed
    weights: np.ndarray  # (N,), scored tokens or bytes of each document
    bits_per_byte: np.ndarray  # (A, S)
    warnings: tuple[str, ...]

    @property
    def scores(self) -> np.ndarray:
        """The figure of each run, (A, S)."""
        return np.asarray(self.amounts.sum(-1) / self.weights.sum())


def choose_split(runs: Sequence[Run], asked: Literal["auto", "validation", "test"]) -> Split:
    """The split as asked; by default the test split where every run was tested."""
    if asked == "auto":
        return "test" if all(run.test_loss is not None for run in runs) else "validation"
    untested = [run for run in runs if run.loss(asked) is None]
    if untested:
        raise InputError(f"--split {asked}: {untested[0].path} has no figure for it")
    return asked


def evaluate(arms: Sequence[Arm], split: Split, readings: Mapping[Path, Reading]) -> Evaluation:
    """Lay the documents of every run of these arms side by side; refuse what was not evaluated on the same text."""
    runs = [run for arm in arms for run in arm.runs.values()]
    _check_same_text(runs, split)
    tokenizers = {run.tokenizer_hash for run in runs}
    same_tokens = len(tokenizers) == 1
    seeds = tuple(sorted({seeds for arm in arms for seeds in arm.runs}))
    reference = readings[runs[0].path].documents[split]
    nll = np.full((len(arms), len(seeds), len(reference.nll)), np.nan)
    warnings = []
    for i, arm in enumerate(arms):
        for key, run in arm.runs.items():
            documents = readings[run.path].documents[split]
            _check_same_documents(reference, documents, runs[0], run, same_tokens)
            nll[i, seeds.index(key)] = documents.nll
            warnings += _check_summary(run, split, documents)
    if not same_tokens:
        warnings.append(
            "tokenizers differ: losses per token cannot be compared, ranked by bits per byte only"
        )
    if len({(run.tokenizer_hash, run.split_hashes.get("train")) for run in runs}) > len(tokenizers):
        warnings.append("runs were trained on different text")
    size = reference.bytes.astype(float)
    bits = nll / np.log(2)
    return Evaluation(
        split=split,
        figure="nats per token" if same_tokens else "bits per byte",
        arms=tuple(arms),
        seeds=seeds,
        amounts=nll if same_tokens else bits,
        weights=reference.tokens.astype(float) if same_tokens else size,
        bits_per_byte=bits.sum(-1) / size.sum(),
        warnings=tuple(warnings),
    )


def _check_same_text(runs: Sequence[Run], split: Split) -> None:
    for run in runs:
        if split not in run.split_hashes:
            raise InputError(f"{run.path / 'summary.json'}: 'split_hashes' lacks {split!r}")
        if not _same_text(run, runs[0], split):
            raise InputError(
                f"different evaluation text: the {split} split of {run.path} is not that of {runs[0].path}; "
                "compare runs of one text at a time"
            )


def _same_text(run: Run, other: Run, split: Split) -> bool:
    """By the hash of the split; it is one of tokens, so between tokenizers by that of the corpus."""
    if run.tokenizer_hash == other.tokenizer_hash:
        return run.split_hashes[split] == other.split_hashes[split]
    return run.corpus_hash is not None and run.corpus_hash == other.corpus_hash


def _check_same_documents(
    reference: Documents, documents: Documents, first: Run, run: Run, same_tokens: bool
) -> None:
    pairs = [(reference.document, documents.document), (reference.bytes, documents.bytes)]
    if same_tokens:
        pairs.append((reference.tokens, documents.tokens))
    if not all(np.array_equal(ours, theirs) for ours, theirs in pairs):
        raise InputError(
            f"different evaluation text: the documents of {run.path} are not those of {first.path}"
        )


def _check_summary(run: Run, split: Split, documents: Documents) -> list[str]:
    reported = run.loss(split)
    found = documents.nll.sum() / documents.tokens.sum()
    if reported is None or abs(found - reported) <= 1e-3 * abs(reported):
        return []
    return [f"{run.path}: its documents give {found:.4f} nats per token, its summary {reported:.4f}"]
