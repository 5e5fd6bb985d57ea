"""TextData: the LightningDataModule, from a corpus to batches."""

import os
from collections.abc import Iterator
from typing import Any, Literal

from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_only
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ilr.bounds import LARGEST_SEED, LARGEST_SIZE
from ilr.data.blocks import EvaluationBlocks, TrainingBlocks
from ilr.data.cache import cache_directory
from ilr.data.formats import Format
from ilr.data.loaders import EvaluationLoader, TrainLoader
from ilr.data.prepare import prepare
from ilr.data.prepared import PreparedData
from ilr.data.recipe import Recipe, check_least, contexts_of, names_of
from ilr.data.recorded import TEXT, RunText, current_run_text, fetch_run_text, needed_again
from ilr.data.tokens import DocumentTable
from ilr.model.memory import check_batches, most_workers
from ilr.progress import say


class TextData(LightningDataModule):
    """Text as batches of token blocks, the same for every schedule that is compared.

    Args:
        corpus: Built-in corpus (sotu, pydoc), local file or glob (text, JSON lines or arrays, .csv, .tsv,
            each perhaps compressed by gzip, bzip2, xz or zstd; .parquet), data set owner/name of the
            Hugging Face hub (a split of its own after a colon: owner/name:split), or a list of these.
        dataset_config: Configuration of the hub data set.
        dataset_split: Split of the hub data set.
        revision: Revision (branch, tag or commit) of the hub data set.
        column: Column with the text, for all that has rows: JSON, .csv, .tsv, .parquet and hub data sets.
        format: How local files are read: auto (by their first bytes and the endings of their names), text
            (as it stands, also JSON and tables), json, csv, tsv or parquet.
        streaming: Read the hub data set row by row into a file of the cache, without a copy by `datasets`.
        max_documents: Read only this many documents of each corpus.
        document: What a document is: file (or row), line, paragraph, or a regular expression found in
            the lines at which a document starts.
        splits: Shares of the documents for train, validation and test.
        split_seed: Seed of the assignment of documents to splits; not the data seed.
        validation: Corpus to validate on, instead of a share of `corpus`.
        test: Corpus to test on, instead of a share of `corpus`.
        duplicates: What to do with training documents whose text also stands in validation or test: keep
            them, with a warning, or drop them from training.
        tokenizer: A tokenizer.json to use instead of training one.
        separator_token: Token of the given tokenizer that stands after each document.
        vocab_size: Entries of the tokenizer to train; a small text gives fewer.
        max_train_tokens: Train on the first documents with at most so many tokens.
        max_eval_tokens: Validate and test on the first documents with at most so many tokens each.
        context: Tokens that a prediction sees at most; a block has one more.
        eval_contexts: More context lengths to evaluate at, beside `context`.
        batch_size: Blocks in a training batch of one process.
        eval_batch_size: Blocks in an evaluation batch of one process; that of training by default. At
            longer contexts fewer, so that a batch has no more tokens.
        num_workers: Worker processes that fetch batches; the order is the same for any number.
        seed: Seed of the training order; that of `seed_everything` by default, else 0.
        cache_dir: Directory of prepared data; $ILR_CACHE or ~/.cache/ilr by default.
    """

    def __init__(
        self,
        corpus: str | list[str] = "sotu",
        dataset_config: str | None = None,
        dataset_split: str = "train",
        revision: str | None = None,
        column: str = "text",
        format: Format = "auto",
        streaming: bool = False,
        max_documents: int | None = None,
        document: str = "file",
        splits: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 0,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        duplicates: Literal["keep", "drop"] = "keep",
        tokenizer: str | None = None,
        separator_token: str = "<|endoftext|>",
        vocab_size: int = 4096,
        max_train_tokens: int | None = None,
        max_eval_tokens: int | None = None,
        context: int = 256,
        eval_contexts: list[int] | None = None,
        batch_size: int = 8,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        self.recipe = Recipe(
            corpus=names_of("corpus", corpus),
            validation=names_of("validation", validation),
            test=names_of("test", test),
            dataset_config=dataset_config,
            dataset_split=dataset_split,
            revision=revision,
            column=column,
            format=format,
            streaming=streaming,
            max_documents=max_documents,
            document=document,
            splits=splits,
            split_seed=split_seed,
            tokenizer=tokenizer,
            separator_token=separator_token,
            vocab_size=vocab_size,
            duplicates=duplicates,
        )
        self.contexts = contexts_of(context, eval_contexts)
        check_least(1, max_documents=max_documents, max_train_tokens=max_train_tokens)
        check_least(1, max_eval_tokens=max_eval_tokens)
        check_least(1, LARGEST_SIZE, batch_size=batch_size, eval_batch_size=eval_batch_size)
        check_least(0, LARGEST_SEED, split_seed=split_seed, seed=seed)
        check_least(0, most_workers(), num_workers=num_workers)
        check_batches(eval_batch_size or batch_size, self.contexts)
        self.max_train_tokens, self.max_eval_tokens = max_train_tokens, max_eval_tokens
        self.context = context
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.num_workers = num_workers
        self._seed = seed
        self.cache = cache_directory(cache_dir)
        self._run_text = current_run_text()
        if self._run_text is None or self._run_text.key is None:
            # Whatever is misspelt or missing is said before anything is made.
            with needed_again(self._run_text):
                self.recipe.sources(self.cache)
                self.recipe.tokenizer_content()
        self._key: str | None = None
        self._ready = False
        self._loader: TrainLoader | None = None
        self._loader_state: dict[str, Any] = {}

    @property
    def seed(self) -> int:
        """The seed of the training order."""
        return int(os.environ.get("PL_GLOBAL_SEED", 0)) if self._seed is None else self._seed

    def prepare_data(self) -> None:
        """Make the prepared files unless they are there; Lightning calls it in one process."""
        if self._run_text is None:
            self._key = prepare(self.recipe, self.cache).key
        else:
            self.cache, self._key = fetch_run_text(self._run_text, self.recipe, self.cache)

    def setup(self, stage: str | None = None) -> None:
        """Open the prepared files; all processes those of the first one."""
        if self._ready:
            return
        if self.trainer is not None:
            self.cache, self._key = self.trainer.strategy.broadcast((self.cache, self._key))
        elif self._key is None:
            self.prepare_data()
        assert self._key is not None
        self._prepared = PreparedData(self.cache / self._key, self.max_train_tokens, self.max_eval_tokens)
        self.manifest = self._prepared.manifest
        self.tokenizer: Tokenizer = self._prepared.tokenizer
        self.vocab_size_actual = self.manifest.vocab_size
        self.separator_id = self.manifest.separator_id
        for warning in self._prepared.warnings():
            rank_zero_only(say)(warning)
        self._ready = True

    @property
    def _rank_and_world(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    @property
    def _pin_memory(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _train_loader(self) -> TrainLoader:
        rank, world = self._rank_and_world
        return TrainLoader(
            TrainingBlocks(self._prepared.streams["train"], self.context, "train"),
            batch_size=self.batch_size,
            seed=self.seed,
            rank=rank,
            world=world,
            accumulate=1 if self.trainer is None else self.trainer.accumulate_grad_batches,
            limit=1.0 if self.trainer is None else self.trainer.limit_train_batches,
            num_workers=self.num_workers,
            pin_memory=self._pin_memory,
        )

    def train_dataloader(self) -> TrainLoader:
        """The training batches; says what an epoch is made of and what it leaves out."""
        loader = self._train_loader()
        if self._loader_state:
            loader.load_state_dict(self._loader_state)
        if self.trainer is not None:
            # The loader has the limit in it; Lightning would take a share of that share.
            self.trainer.limit_train_batches = len(loader)
        self._loader, self._loader_state = loader, {}
        rank_zero_only(say)(f"data: train: {loader.describe()}")
        return loader

    def state_dict(self) -> dict[str, Any]:
        """The training loader's state, and which text it is; Lightning keeps it in checkpoints."""
        loader = {} if self._loader is None else self._loader.state_dict()
        return loader | ({TEXT: RunText.of(self._prepared.whole).state()} if self._ready else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Have the next training loader go on from there: Lightning does not after the end of an epoch."""
        self._loader_state = {name: value for name, value in state_dict.items() if name != TEXT}

    def val_dataloader(self) -> list[EvaluationLoader]:
        """One loader per context length: `context`, then `eval_contexts`."""
        return self.evaluation_loaders("validation")

    def test_dataloader(self) -> list[EvaluationLoader]:
        """As for validation."""
        return self.evaluation_loaders("test")

    def evaluation_loaders(self, split: str) -> list[EvaluationLoader]:
        """The loaders of a split, one per context length; batches of longer contexts have fewer blocks."""
        rank, world = self._rank_and_world
        return [
            EvaluationLoader(
                EvaluationBlocks(self._prepared.streams[split], self._prepared.tables[split], context, split),
                batch_size=rows,
                rank=rank,
                world=world,
                num_workers=self.num_workers,
                pin_memory=self._pin_memory,
            )
            for context, rows in zip(self.contexts, self.evaluation_rows, strict=True)
        ]

    @property
    def evaluation_rows(self) -> list[int]:
        """Blocks of an evaluation batch at each context length: fewer at longer ones."""
        size = self.eval_batch_size
        return [min(size, max(1, size * self.context // context)) for context in self.contexts]

    @property
    def train_blocks(self) -> int:
        """Whole blocks of the train split."""
        return len(TrainingBlocks(self._prepared.streams["train"], self.context, "train"))

    @property
    def dropped_blocks(self) -> int:
        """Whole blocks that an epoch leaves out, over all processes."""
        return self._train_loader().dropped_blocks

    @property
    def tokens_per_epoch(self) -> int:
        """Targets trained on in an epoch, over all processes."""
        return self._train_loader().tokens_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in an epoch."""
        return self._train_loader().steps

    def stream(self, split: str) -> NDArray[Any]:
        """The token ids of a split, (tokens,), mapped from disk, read-only."""
        return self._prepared.streams[split].array

    def documents(self, split: str) -> DocumentTable:
        """Start in the stream, tokens and bytes of each document of a split."""
        return self._prepared.tables[split]

    def bytes_scored(self, split: str) -> int:
        """UTF-8 bytes of the original text of a split: what bits per byte divides by."""
        return self.manifest.splits[split].bytes

    def share_of(self, split: str) -> float:
        """Share of a split's tokens that is used: below 1 where --data.max_eval_tokens or max_train_tokens cuts it."""
        whole = self._prepared.whole.splits[split].tokens
        return self.manifest.splits[split].tokens / whole if whole else 1.0

    def text_of(self, split: str) -> Iterator[str]:
        """The documents of a split as they were, decoded from the stream."""
        return self._prepared.texts(split)
