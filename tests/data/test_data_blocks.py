"""Blocks and loaders against the definition, written as plain Python over the stream."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from ilr.data.blocks import NO_BLOCK, EvaluationBlocks, TrainingBlocks
from ilr.data.loaders import EvaluationLoader, TrainLoader
from ilr.data.prepared import cut_at_document
from ilr.data.tokens import DocumentTable, SplitWriter, TokenFile, read_table, smallest_dtype
from ilr.errors import InputError
from ilr.model.metrics import IGNORED

LENGTHS = [3, 9, 17, 1, 40, 5]
"""Tokens of the documents, separators included."""


def table_of(lengths: list[int]) -> DocumentTable:
    tokens = np.array(lengths)
    return DocumentTable(np.cumsum(tokens) - tokens, tokens, tokens * 4)


def stream_of(directory: Path, tokens: int) -> TokenFile:
    """Ids 1000, 1001, …: each tells its own place."""
    path = directory / "s.tokens"
    (np.arange(tokens) + 1000).astype("<u2").tofile(path)
    return TokenFile(path, "<u2", tokens)


def test_1003_tokens_are_ten_training_blocks_of_100_with_two_tokens_left_out(tmp_path: Path) -> None:
    blocks = TrainingBlocks(stream_of(tmp_path, 1003), 100, "train")
    assert len(blocks) == 10
    assert blocks.dropped_tokens == 2
    batch = blocks.__getitems__([9, 0])
    assert batch["inputs"].dtype == batch["targets"].dtype == batch["blocks"].dtype == torch.int64
    assert batch["inputs"].tolist() == [list(range(1900, 2000)), list(range(1000, 1100))]
    assert batch["targets"].tolist() == [list(range(1901, 2001)), list(range(1001, 1101))]
    assert batch["blocks"].tolist() == [9, 0]
    assert set(batch) == {"inputs", "targets", "blocks"}


@pytest.mark.parametrize("context", [1, 4, 25, 74, 75, 100])
@pytest.mark.parametrize(("batch_size", "world"), [(1, 1), (3, 1), (4, 2), (2, 3)])
def test_evaluation_scores_every_token_but_the_first_once(
    tmp_path: Path, context: int, batch_size: int, world: int
) -> None:
    total = sum(LENGTHS)
    document_of = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    blocks = EvaluationBlocks(stream_of(tmp_path, total), table_of(LENGTHS), context, "validation")
    scored: dict[int, int] = {}
    shapes, counts = set(), []
    for rank in range(world):
        loader = EvaluationLoader(blocks, batch_size=batch_size, rank=rank, world=world)
        batches = list(loader)
        counts.append(len(batches))
        assert len(batches) == len(loader)
        for batch in batches:
            shapes.add((batch["inputs"].shape, batch["targets"].shape, batch["documents"].shape))
            for row in range(batch_size):
                index = int(batch["blocks"][row])
                assert index == NO_BLOCK or index % world == rank
                for column in range(context):
                    target = int(batch["targets"][row, column])
                    if target == IGNORED:
                        assert int(batch["documents"][row, column]) == NO_BLOCK
                        continue
                    place = target - 1000
                    assert place == index * context + column + 1
                    assert int(batch["inputs"][row, column]) == 1000 + place - 1
                    assert int(batch["documents"][row, column]) == document_of[place]
                    scored[place] = scored.get(place, 0) + 1
    assert scored == dict.fromkeys(range(1, total), 1)
    assert shapes == {(torch.Size([batch_size, context]),) * 3}
    assert len(set(counts)) == 1, "processes that meet in every batch have equally many"


def test_the_sum_for_a_document_does_not_depend_on_batches_order_or_processes(tmp_path: Path) -> None:
    blocks = EvaluationBlocks(stream_of(tmp_path, sum(LENGTHS)), table_of(LENGTHS), 8, "validation")

    def sums(batch_size: int, world: int) -> np.ndarray:
        total = np.zeros((2, len(LENGTHS)), dtype=np.int64)
        for rank in range(world):
            for batch in EvaluationLoader(blocks, batch_size=batch_size, rank=rank, world=world):
                scored = batch["targets"] != IGNORED
                np.add.at(total[0], batch["documents"][scored].numpy(), batch["targets"][scored].numpy())
                np.add.at(total[1], batch["documents"][scored].numpy(), 1)
        return total

    expected = sums(1, 1)
    assert expected[1].tolist() == [2, *LENGTHS[1:]], "all but the first token of the stream"
    for batch_size, world in ((16, 1), (3, 2), (1, 4)):
        np.testing.assert_array_equal(sums(batch_size, world), expected)


def test_a_split_with_nothing_to_do_is_named_with_both_lengths(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"train split has 100 tokens, fewer than one block of context 100 \+ 1"
    ):
        TrainingBlocks(stream_of(tmp_path, 100), 100, "train")
    assert len(TrainingBlocks(stream_of(tmp_path, 101), 100, "train")) == 1
    for tokens in (0, 1):
        with pytest.raises(
            InputError, match=rf"test split has {tokens} tokens, nothing to score at context 100"
        ):
            EvaluationBlocks(stream_of(tmp_path, tokens), table_of([tokens]), 100, "test")
    assert len(EvaluationBlocks(stream_of(tmp_path, 2), table_of([2]), 100, "test")) == 1
    blocks = TrainingBlocks(stream_of(tmp_path, 101), 20, "train")
    with pytest.raises(InputError, match="has 5 blocks of context 20, one step of the optimizer takes 6"):
        TrainLoader(blocks, batch_size=1, seed=0, world=2, accumulate=3)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(256, "|u1"), (257, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (70_000, "<u4")]
)
def test_the_largest_id_survives_in_the_smallest_type(tmp_path: Path, vocabulary: int, dtype: str) -> None:
    assert smallest_dtype(vocabulary).str == dtype
    writer = SplitWriter(tmp_path, "train", smallest_dtype(vocabulary))
    writer.add(np.array([0, vocabulary - 1]), 7)
    writer.add(np.array([vocabulary - 1]), 1)
    writer.end_document(3)
    writer.end_document(3)
    info = writer.close()
    stream = TokenFile(tmp_path / "train.tokens", dtype, info.tokens)
    assert stream.array.tolist() == [0, vocabulary - 1, vocabulary - 1, 3, 3]
    table = read_table(tmp_path, "train")
    assert table.start.tolist() == [0, 4]
    assert table.tokens.tolist() == [4, 1]
    assert table.bytes.tolist() == [8, 0]


def test_a_stream_is_sent_to_workers_as_its_path_not_its_content(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, 50_000)
    blocks = TrainingBlocks(stream, 100, "train")
    blocks.__getitems__([0])
    sent = pickle.dumps(blocks)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent).__getitems__([3])["inputs"], blocks.__getitems__([3])["inputs"])


@pytest.mark.parametrize(
    ("limit", "kept"), [(11, 1), (12, 2), (28, 2), (29, 3), (74, 5), (75, 6), (1000, 6), (2, 0)]
)
def test_a_limit_of_tokens_cuts_after_the_last_whole_document(tmp_path: Path, limit: int, kept: int) -> None:
    writer = SplitWriter(tmp_path, "train", np.dtype("<u2"))
    for length in LENGTHS:
        writer.add(np.arange(length - 1), length)
        writer.end_document(9)
    info = writer.close()
    stream = TokenFile(tmp_path / "train.tokens", "<u2", info.tokens)
    shorter, table, cut = cut_at_document(info, read_table(tmp_path, "train"), stream, limit)
    assert len(table) == shorter.documents == kept
    assert shorter.tokens == len(cut) == sum(LENGTHS[:kept])
    assert (shorter.hash == info.hash) == (kept == len(LENGTHS))
    assert cut.array.tolist() == stream.array[: sum(LENGTHS[:kept])].tolist()


def ids(loader: TrainLoader) -> list[list[int]]:
    return [batch["blocks"].tolist() for batch in loader]


def test_the_loader_goes_through_the_epochs_each_in_its_own_order(tmp_path: Path) -> None:
    blocks = TrainingBlocks(stream_of(tmp_path, 1101), 100, "train")
    loader = TrainLoader(blocks, batch_size=2, seed=3)
    epochs = [ids(loader) for _ in range(3)]
    assert epochs == [loader.batch_indices(epoch).tolist() for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    for workers in (1, 2):
        with_workers = TrainLoader(blocks, batch_size=2, seed=3, num_workers=workers)
        assert [ids(with_workers) for _ in range(2)] == epochs[:2]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_goes_on_after_the_batches_handed_out(tmp_path: Path, workers: int) -> None:
    blocks = TrainingBlocks(stream_of(tmp_path, 1101), 100, "train")
    straight = TrainLoader(blocks, batch_size=2, seed=3)
    expected = [ids(straight), ids(straight)]
    for stop in range(1, 6):
        first = TrainLoader(blocks, batch_size=2, seed=3, num_workers=workers)
        iterator = iter(first)
        seen = [next(iterator)["blocks"].tolist() for _ in range(stop)]
        state = first.state_dict()
        assert (state["epoch"], state["position"]) == (0, stop)
        second = TrainLoader(blocks, batch_size=2, seed=3, num_workers=workers)
        second.load_state_dict(state)
        rest = ids(second)
        assert seen + rest == expected[0] if stop < 5 else rest == expected[1]


def test_a_state_amid_an_epoch_is_refused_by_a_loader_of_another_order(tmp_path: Path) -> None:
    blocks = TrainingBlocks(stream_of(tmp_path, 1101), 100, "train")
    loader = TrainLoader(blocks, batch_size=2, seed=3)
    next(iter(loader))
    for other in (TrainLoader(blocks, batch_size=1, seed=3), TrainLoader(blocks, batch_size=2, seed=4)):
        with pytest.raises(
            InputError, match="middle of an epoch of 11 blocks in batches of 2, seed 3; this run has"
        ):
            other.load_state_dict(loader.state_dict())
    list(loader)
    TrainLoader(blocks, batch_size=1, seed=4).load_state_dict(loader.state_dict())


def test_reading_batches_leaves_the_global_generators_alone(tmp_path: Path) -> None:
    blocks = TrainingBlocks(stream_of(tmp_path, 1101), 100, "train")
    evaluation = EvaluationBlocks(stream_of(tmp_path, 1101), table_of([1101]), 100, "validation")
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1]
    ids(TrainLoader(blocks, batch_size=2, seed=3))
    list(EvaluationLoader(evaluation, batch_size=2))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)
