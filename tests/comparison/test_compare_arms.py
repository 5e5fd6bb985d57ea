"""Which runs belong together, which arm is the baseline, and which texts may be compared."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_cases import write_run

from ilr.comparison.analysis import Comparison, compare
from ilr.comparison.arms import choose_baseline, group
from ilr.comparison.notes import notes
from ilr.comparison.runs import find_runs
from ilr.errors import InputError

DOCUMENTS = 3.0 + 0.1 * np.random.default_rng(0).normal(size=30)


def sweep(root: Path, labels: list[str], seeds: int = 2, **changes: object) -> Path:
    generator = np.random.default_rng(1)
    for i, label in enumerate(labels):
        for seed in range(1, seeds + 1):
            nll = DOCUMENTS - 0.05 * i + 0.002 * generator.normal() + 0.01 * generator.normal(size=30)
            write_run(root / f"{label}-s{seed}", label, (seed, seed), nll, **changes)
    return root


def row(comparison: Comparison, label: str) -> pd.Series:
    return comparison.table.set_index("label").loc[label]


def test_runs_that_differ_by_seed_alone_are_one_arm(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1", "3-2-1-1"], seeds=3)
    arms, repeated = group(find_runs([tmp_path]).runs)
    assert {arm.label: len(arm.runs) for arm in arms} == {"1-1-1-1": 3, "3-2-1-1": 3}
    assert not repeated


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", 0.001), ("positions", "alibi"), ("injection", "start"), ("tokens", 7)],
)
def test_runs_that_differ_in_a_setting_are_two_arms_whose_labels_say_which(
    tmp_path: Path, key: str, value: object
) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", **{key: value})
    arms, _ = group(find_runs([tmp_path]).runs)
    assert len(arms) == 2
    assert arms[1].label == f"1-1-1-1 [{key}={value}]"


def test_an_option_that_only_the_configuration_knows_is_named_from_it(tmp_path: Path) -> None:
    for name, decay in (("a", 0.1), ("b", 0.01)):
        run = write_run(tmp_path / name, config_hash=name)
        options = (
            f"seed_everything: {len(name)}\nrun_dir: {run}\nmodel: {{width: 64, weight_decay: {decay}}}\n"
        )
        (run / "config.yaml").write_text(options)
    arms, _ = group(find_runs([tmp_path]).runs)
    assert [arm.label for arm in arms] == ["1-1-1-1 [weight_decay=0.1]", "1-1-1-1 [weight_decay=0.01]"]


def test_a_long_value_is_named_by_its_digest_and_labels_stay_unique(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_run(tmp_path / name, config_hash=name * 64)
    labels = [arm.label for arm in group(find_runs([tmp_path]).runs)[0]]
    assert len(set(labels)) == 3
    assert all(len(label) < 40 for label in labels)


def test_two_spellings_of_one_function_are_one_arm_and_the_same_seeds_count_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "2-2")
    write_run(tmp_path / "b", "2-2", label="(0)x2_(1)x2")
    arms, repeated = group(find_runs([tmp_path]).runs)
    assert [arm.label for arm in arms] == ["2-2"]
    assert [path.name for path in repeated] == ["b"]


def test_seeds_are_paired_by_init_and_data_seed(tmp_path: Path) -> None:
    for seed, shift in (((1, 1), 0.0), ((1, 2), 0.5)):
        write_run(tmp_path / f"base-{seed}", "1-1", seed, DOCUMENTS + shift)
        write_run(tmp_path / f"other-{seed}", "2-1", seed, DOCUMENTS + shift - 0.1)
    comparison = compare([tmp_path])
    assert row(comparison, "2-1")["delta"] == pytest.approx(-0.1)
    assert comparison.noise.residual_variance == pytest.approx(0, abs=1e-20)  # 0.5 is the seeds' own


def test_the_plain_model_is_the_baseline_and_anchors_are_not(tmp_path: Path) -> None:
    sweep(tmp_path, ["3-2-1-1", "1-1-1-1-1-1-1", "1-1-1-1", "2-2-2-2"], seeds=1)
    for label in ("1-1-1-1-1-1-1",):
        summary = tmp_path / f"{label}-s1" / "summary.json"
        summary.write_text(summary.read_text().replace("1180800", "2000000"))
    assert compare([tmp_path]).baseline_arm.label == "1-1-1-1"
    assert compare([tmp_path], baseline="2-2-2-2").baseline_arm.label == "2-2-2-2"


def test_without_a_plain_model_the_first_arm_is_the_baseline_and_a_wrong_name_lists_the_right_ones(
    tmp_path: Path,
) -> None:
    sweep(tmp_path, ["3-2-1-1", "1-1-1-1+attention"], seeds=1)
    arms, _ = group(find_runs([tmp_path]).runs)
    assert choose_baseline(arms, None) == arms[0]
    with pytest.raises(InputError, match=r"no arm is called '1-1'; there are: 1-1-1-1\+attention, 3-2-1-1"):
        choose_baseline(arms, "1-1")


def test_an_arm_with_a_diverged_seed_is_listed_and_not_averaged_over_the_others(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1", "2-2-2-2", "3-3-3-3"], seeds=2)
    write_run(
        tmp_path / "x", "2-2-2-2", (9, 9), status="diverged", tokens=500_000, val_loss=None, test_loss=None
    )
    comparison = compare([tmp_path])
    assert sorted(comparison.table["label"]) == ["1-1-1-1", "3-3-3-3"]
    assert comparison.diverged["label"].tolist() == ["2-2-2-2"]
    assert "Diverged, listed and not ranked: 2-2-2-2 (1 of 3 seeds)." in notes(comparison)
    with pytest.raises(InputError, match="has a diverged seed"):
        compare([tmp_path], baseline="2-2-2-2")


def test_another_evaluation_text_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", "2-1-1-1", split_hashes={"train": "t", "validation": "v", "test": "other"})
    with pytest.raises(
        InputError, match=r"different evaluation text: the test split of .*b is not that of .*a"
    ):
        compare([tmp_path])
    assert len(compare([tmp_path], split="validation").table) == 2


def test_with_another_tokenizer_the_text_is_known_by_its_corpus(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    other = {"tokenizer_hash": "bpe-8192", "split_hashes": {"train": "T", "validation": "V", "test": "E"}}
    write_run(tmp_path / "b", "2-1-1-1", **other)
    assert len(compare([tmp_path]).table) == 2
    write_run(tmp_path / "c", "2-2-1-1", **other, corpus_hash="another")
    with pytest.raises(InputError, match="different evaluation text"):
        compare([tmp_path])


def test_documents_that_do_not_match_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", nll=(3.0, 4.0))
    write_run(tmp_path / "b", "2-1-1-1", nll=(3.0, 4.0, 5.0))
    with pytest.raises(InputError, match="different evaluation text"):
        compare([tmp_path])


def test_other_tokenizers_are_ranked_by_bits_per_byte_only_and_warned_of(tmp_path: Path) -> None:
    write_run(tmp_path / "a", nll=DOCUMENTS)
    b = write_run(tmp_path / "b", nll=DOCUMENTS, tokenizer_hash="bpe-8192")
    # Half as many tokens for the same text, each 1.8 times as hard: better per byte, worse per token.
    documents = pd.read_parquet(b / "documents.parquet")
    documents["tokens"] //= 2
    documents["nll"] *= 0.9
    documents.to_parquet(b / "documents.parquet")
    comparison = compare([tmp_path])
    table = comparison.table
    assert table["label"].tolist() == [
        "1-1-1-1 [tokenizer_hash=bpe-8192]",
        "1-1-1-1 [tokenizer_hash=bpe-4096]",
    ]
    assert table["nll_mean"].isna().all()
    assert table["perplexity"].isna().all()
    expected = documents[documents["split"] == "test"]
    assert table["bits_per_byte"][0] == pytest.approx(
        expected["nll"].sum() / math.log(2) / expected["bytes"].sum()
    )
    assert table["delta"].abs().max() == pytest.approx(0.1 * table["bits_per_byte"][1])
    assert any("ranked by bits per byte only" in note for note in notes(comparison))


def test_the_test_split_is_used_only_where_every_run_was_tested(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert compare([tmp_path]).evaluation.split == "test"
    write_run(tmp_path / "b", "2-1-1-1", test_loss=None)
    assert compare([tmp_path]).evaluation.split == "validation"
    with pytest.raises(InputError, match="--split test"):
        compare([tmp_path], split="test")


def test_documents_that_contradict_the_summary_are_warned_of(tmp_path: Path) -> None:
    write_run(tmp_path / "a", nll=(3.0, 4.0), test_loss=3.6)
    assert any(
        "give 3.5000 nats per token, its summary 3.6000" in note for note in notes(compare([tmp_path]))
    )


def test_nothing_finished_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}")
    with pytest.raises(InputError, match=r"no finished run found \(1 unfinished\)"):
        compare([tmp_path])
