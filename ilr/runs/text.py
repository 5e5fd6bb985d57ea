"""Which text a run was trained on, also one of an earlier version, whose checkpoints do not say; and whether it is
named anew.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ilr.data.documents import EVALUATED, SPLITS
from ilr.data.files import matching_paths
from ilr.data.recipe import names_of
from ilr.data.recorded import RunText, read_run_tokenizer
from ilr.data.tokenizer import SEPARATOR, tokenizer_hash
from ilr.files.plain import plain
from ilr.runs.directory import RunDirectory


def text_of_run(
    directory: RunDirectory, checkpoint: Mapping[str, Any], data: Mapping[str, Any]
) -> RunText | None:
    """The text that a run was trained on, by its checkpoint, or else by what lies beside it.

    ``data`` are the run's data options. Raises `InputError` where a file beside it is damaged or not the run's.
    """
    return RunText.of_checkpoint(checkpoint) or text_beside(directory, data)


def text_beside(directory: RunDirectory, data: Mapping[str, Any]) -> RunText | None:
    """The text by tokenizer.json, and by summary.json where the run has ended; None where there is no tokenizer.

    It has no key, so the corpus is read again and must give the same. A split that was cut is left out: the
    summary has the hash of what was used. Raises as `text_of_run`.
    """
    if not directory.tokenizer.is_file():
        return None
    summary = directory.summary() or {}
    separator = str(data.get("separator_token") or SEPARATOR)
    tokenizer = read_run_tokenizer(directory.tokenizer, separator, summary.get("tokenizer_hash"))
    cut = set() if data.get("max_train_tokens") is None else set(SPLITS) - set(EVALUATED)
    cut |= set() if data.get("max_eval_tokens") is None else set(EVALUATED)
    hashes = summary.get("split_hashes") or {}
    whole = {split: found for split, found in hashes.items() if split not in cut}
    return RunText(None, tokenizer_hash(tokenizer), whole)


def named_anew(own: Mapping[str, Any], stored: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether of these options, which name texts, one is given so that it is to be read again.

    That is another name than the run's, or the same one where there are files of it: they must hold the same.
    """
    given = {name: own[name] for name in names if name in own}
    if any(plain(value) != plain(stored.get(name)) for name, value in given.items()):
        return True
    paths = [path for name, value in given.items() for path in names_of(name, plain(value))]
    return bool(paths) and all(matching_paths(path) for path in paths)
