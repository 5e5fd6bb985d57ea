"""A config derives the sizes that nulls stand for, and refuses what cannot be built in words."""

import dataclasses
from typing import Any

import pytest

from ilr.model.config import DecoderConfig, Sizes


def test_nulls_follow_the_width_and_the_heads() -> None:
    config = DecoderConfig(vocab_size=10, width=48, num_heads=6)
    assert config.sizes == Sizes(head=8, kv_heads=6, kv=48, ffn=192, embedding=48)
    grouped = DecoderConfig(
        vocab_size=10, width=48, num_heads=6, num_kv_heads=2, ffn_width=7, embedding_width=5
    )
    assert grouped.sizes == Sizes(head=8, kv_heads=2, kv=16, ffn=7, embedding=5)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, ""),
        ({"positions": "alibi"}, "+alibi"),
        ({"positions": "learned", "injection": "add"}, "+learned+inject"),
        ({"positions": "none", "ffn": "gelu"}, "+nope+gelu"),
        ({"dropout": 0.5, "width": 64}, ""),
    ],
    ids=str,
)
def test_the_label_names_only_what_decides_the_function_and_differs(changes: Any, label: str) -> None:
    assert DecoderConfig(vocab_size=10, **changes).label == label


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, got 0"),
        ({"context": -1}, "context must be a whole number of at least 1, got -1"),
        ({"width": 128.0}, r"width must be a whole number of at least 1, got 128\.0"),
        ({"num_layers": True}, "num_layers must be a whole number of at least 1, got True"),
        ({"num_heads": "4"}, "num_heads must be a whole number of at least 1, got '4'"),
        ({"width": None}, "width must be a whole number of at least 1, got None"),
        ({"num_kv_heads": 0}, "num_kv_heads must be a whole number of at least 1, got 0"),
        ({"ffn_width": -3}, "ffn_width must be a whole number of at least 1, got -3"),
        ({"embedding_width": False}, "embedding_width must be a whole number of at least 1, got False"),
        ({"width": 130}, "width must be a multiple of num_heads, got 130 and 4"),
        ({"num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads, got 4 and 3"),
        ({"num_kv_heads": 8}, "num_heads must be a multiple of num_kv_heads, got 4 and 8"),
        ({"width": 12}, "rope rotates pairs of features: width / num_heads must be even, got 3"),
        ({"positions": "rotary"}, "positions must be one of rope, alibi, learned, none, got 'rotary'"),
        ({"ffn": "relu"}, "ffn must be one of swiglu, gelu, got 'relu'"),
        ({"injection": True}, "injection must be one of none, add, got True"),
        ({"residual_init": "deep"}, "residual_init must be one of plain, layers, depth, got 'deep'"),
        ({"dropout": 1.0}, r"dropout must be at least 0 and below 1, got 1\.0"),
        ({"dropout": -0.1}, r"dropout must be at least 0 and below 1, got -0\.1"),
        ({"dropout": float("nan")}, "dropout must be at least 0 and below 1, got nan"),
        ({"rope_theta": 0.0}, r"rope_theta must be above 0, got 0\.0"),
        ({"norm_eps": -1e-6}, "norm_eps must be above 0, got -1e-06"),
        ({"init_std": float("nan")}, "init_std must be above 0, got nan"),
    ],
    ids=str,
)
def test_what_cannot_be_built_is_refused_in_words(changes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DecoderConfig(**({"vocab_size": 10} | changes))


def test_odd_heads_are_allowed_where_nothing_rotates() -> None:
    assert DecoderConfig(vocab_size=10, width=12, positions="alibi").sizes.head == 3


def test_a_config_cannot_be_changed_once_made() -> None:
    config = DecoderConfig(vocab_size=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 64  # type: ignore[misc]
