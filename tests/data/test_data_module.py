"""The data module: wrong options, short splits, several evaluation contexts."""

from pathlib import Path
from typing import Any

import pytest
from data_cases import ready, text_data

from ilr.data.recipe import check_least
from ilr.errors import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": [0.5, 0.1, 0.1]}, r"--data\.splits must be three shares"),
        ({"splits": [0.0, 0.5, 0.5]}, r"--data\.splits"),
        ({"splits": [1.2, -0.1, -0.1]}, r"--data\.splits"),
        ({"vocab_size": 256}, r"--data\.vocab_size must be at least 257.*got 256"),
        ({"separator_token": "</s>"}, r"--data\.separator_token '</s>' belongs to a given --data\.tokenizer"),
        ({"tokenizer": "nowhere.json"}, r"--data\.tokenizer: cannot read nowhere\.json"),
        ({"context": 0}, r"--data\.context must be an integer of at least 1, got 0"),
        ({"batch_size": 0}, r"--data\.batch_size"),
        ({"eval_batch_size": -1}, r"--data\.eval_batch_size"),
        ({"eval_contexts": [0]}, r"--data\.eval_contexts"),
        ({"eval_contexts": [16, 16]}, r"--data\.eval_contexts must differ"),
        ({"num_workers": -1}, r"--data\.num_workers"),
        ({"seed": -1}, r"--data\.seed"),
        ({"max_train_tokens": 0}, r"--data\.max_train_tokens"),
        ({"document": "("}, r"--data\.document"),
        ({"validation": "nowhere.txt"}, r"--data\.validation: 'nowhere\.txt' is no file"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_made(
    corpus: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        text_data(corpus, tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()
    for corpus_given in ([], "", [""]):
        with pytest.raises(InputError, match=r"--data\.corpus must be a name"):
            text_data(corpus_given, tmp_path / "cache")
    with pytest.raises(InputError):
        check_least(1, context=True)


def test_too_short_splits_are_named_with_both_lengths(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache", context=5000, splits=[0.9, 0.1, 0.0])
    with pytest.raises(InputError, match=r"train split has \d+ tokens, fewer than one block of context 5000"):
        data.train_dataloader()
    with pytest.raises(InputError, match=r"test split has 0 tokens, nothing to score"):
        data.test_dataloader()
    assert sum(int((batch["targets"] >= 0).sum()) for batch in data.val_dataloader()[0]) == (
        data.manifest.splits["validation"].tokens - 1
    )


def test_several_evaluation_contexts_score_the_same_tokens(corpus: Path, tmp_path: Path) -> None:
    data = ready(corpus, tmp_path / "cache", context=8, eval_contexts=[3, 32], eval_batch_size=4)
    loaders = data.val_dataloader()
    assert [loader.blocks.context for loader in loaders] == [8, 3, 32]
    assert [loader.batch_size for loader in loaders] == [4, 4, 1]
    for loader in loaders:
        scored = sum(int((batch["targets"] >= 0).sum()) for batch in loader)
        assert scored == data.manifest.splits["validation"].tokens - 1
