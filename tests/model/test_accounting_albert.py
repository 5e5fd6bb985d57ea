"""Parameters differ from the published ones of ALBERT (arXiv 1909.11942) by terms written out here."""

import pytest

from ilr.model.config import DecoderConfig
from ilr.model.cost import cost
from ilr.model.plan import make_plan


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize(
    ("sharing", "embedding", "with_pooler", "without_pooler"),
    [
        ("none", 128, 89_650_176, 89_059_584),
        ("attention", 128, 63_647_232, 63_056_640),
        ("ffn", 128, 37_686_528, 37_095_936),
        ("all", 128, 11_683_584, 11_092_992),
        ("none", 768, 109_081_344, 108_490_752),
        ("attention", 768, 83_078_400, 82_487_808),
        ("ffn", 768, 57_117_696, 56_527_104),
        ("all", 768, 31_114_752, 30_524_160),
    ],
)
def test_parameters_reconcile_with_albert_term_by_term(
    sharing: str, embedding: int, with_pooler: int, without_pooler: int, pooler: bool
) -> None:
    width, ffn_width, layers, longest, types = 768, 3072, 12, 512, 2
    factorised = embedding != width
    config = DecoderConfig(
        vocab_size=30_000,
        context=longest,
        width=width,
        num_layers=layers,
        num_heads=12,
        ffn="gelu",
        ffn_width=ffn_width,
        positions="learned",
        embedding_width=embedding,
    )
    plan = make_plan([1] * layers, sharing=sharing)
    ours_only = [
        width,  # the final norm: ALBERT is post-norm
        longest * (width - embedding),  # positions at the model's width, ALBERT's at the table's
        width * embedding if factorised else 0,  # the tied head's way back, in ALBERT part of another head
    ]
    lacking_once = [
        types * embedding,  # segment types
        2 * embedding,  # LayerNorm of the embeddings: weight and bias
        width if factorised else 0,  # bias of the widening
        width**2 + width if pooler else 0,
    ]
    lacking_per_attention = [
        4 * width,  # biases of query, key, value and output
        width,  # bias of the LayerNorm (its weight is our RMSNorm's)
    ]
    lacking_per_ffn = [
        ffn_width + width,  # biases of the two matrices
        width,  # bias of the LayerNorm
    ]
    albert = (
        cost(config, plan).parameters
        - sum(ours_only)
        + sum(lacking_once)
        + plan.sharing.num_attention * sum(lacking_per_attention)
        + plan.sharing.num_ffn * sum(lacking_per_ffn)
    )
    assert albert == (with_pooler if pooler else without_pooler)
