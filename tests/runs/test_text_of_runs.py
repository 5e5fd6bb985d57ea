"""A run's text after training: prompts are encoded as training encoded, whatever the tokenizer says."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizer_cases import PLAIN, SEPARATOR, byte_level
from tokenizers import processors

from ilr.cli import main as ilr
from ilr.data.encoding import encode_text
from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.runs.trained_run import TrainedRun


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and a tokenizer with a template, truncation, padding, and letters that it calls special."""
    root = tmp_path_factory.mktemp("texts")
    rows = [json.dumps({"text": text}) + "\n" for text in [*PLAIN, f"marked {SEPARATOR}ab <s> 你好"]]
    (root / "corpus.jsonl").write_text("".join(rows), encoding="utf-8")
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<s>", "</s>", "T", "o"])
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=10)
    tokenizer.save(str(root / "tokenizer.json"))
    options = {
        "run_dir": root / "run",
        "data.corpus": root / "corpus.jsonl",
        "data.tokenizer": root / "tokenizer.json",
        "data.cache_dir": root / "cache",
        "model.context": 16,
        "model.width": 16,
        "model.num_heads": 2,
        "model.num_layers": 2,
        "model.schedule": "[2,1]",
        "trainer.max_steps": 2,
        "val_every": 1,
        "trainer.accelerator": "cpu",
        "trainer.enable_progress_bar": "false",
    }
    assert ilr(["fit", *(f"--{name}={value}" for name, value in options.items())]) == 0
    return root


def test_prompts_have_the_ids_that_their_text_has_in_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 5: no template, no control words, no truncation; an empty prompt is a beginning."""
    data = TrainedRun.load(folder / "run").data
    trained: dict[str, list[int]] = {}
    for split in ("train", "validation", "test"):
        stream, table = data.stream(split).tolist(), data.documents(split)
        for text, start, tokens in zip(
            data.text_of(split), table.start.tolist(), table.tokens.tolist(), strict=True
        ):
            trained[text] = stream[start : start + tokens - 1]
    texts = [*PLAIN[:5], f"marked {SEPARATOR}ab <s> 你好"]
    asked: list[list[int]] = []

    def generate(_: Decoder, prompts: list[list[int]], *rest: Any, **more: Any) -> list[list[int]]:
        asked.extend(prompts)
        return []

    monkeypatch.setattr("ilr.generation.decode.generate", generate)
    assert ilr(["generate", str(folder / "run"), "--prompt", *texts, ""]) == 0
    assert asked == [*(trained[text] for text in texts), [data.separator_id]]


def test_what_is_written_contains_every_letter_of_the_prompt(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right numbers, point 5: tokens that the tokenizer calls special have their text."""
    assert ilr(["generate", str(folder / "run"), "--prompt", "The To", "--max_new_tokens", "1"]) == 0
    assert capsys.readouterr().out.startswith("The To")


def test_a_prompt_that_the_tokenizer_cannot_write_is_refused() -> None:
    """Right numbers, point 5."""
    with pytest.raises(InputError, match=r"the prompt 'Привет': the tokenizer does not give the text back"):
        encode_text("Привет", byte_level(alphabet=False), 0, "the prompt 'Привет'")
