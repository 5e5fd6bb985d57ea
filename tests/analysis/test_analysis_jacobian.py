"""The spectral norm of a Jacobian: known singular values, and the full matrix of a tiny decoder's visit."""

import torch

from ilr.analysis.jacobian import spectral_norms, visit_norms
from ilr.model.compilation import execute
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Context, Decoder
from ilr.model.plan import make_plan
from ilr.model.positions import Span


def test_a_linear_layer_has_its_largest_singular_value() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))[0] for _ in range(2)
    )
    singular = torch.tensor([2.5, 1.25, 0.7, 0.5, 0.1, 0.0], dtype=torch.float64)
    matrix = left @ torch.diag(singular) @ right
    x = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    norms = spectral_norms(lambda x: x @ matrix.T + 3, x)
    torch.testing.assert_close(norms, torch.full((4,), 2.5, dtype=torch.float64), rtol=1e-4, atol=0)
    assert (norms <= 2.5 + 1e-12).all()


def test_a_contraction_is_below_one_and_rows_are_apart() -> None:
    scale = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)[:, None]
    norms = spectral_norms(lambda x: scale * x, torch.ones(3, 5, dtype=torch.float64))
    torch.testing.assert_close(norms, scale[:, 0])


def test_a_visit_has_the_norm_of_its_full_jacobian() -> None:
    plan = make_plan([2, 1])
    for positions in ("rope", "alibi"):
        config = DecoderConfig(
            20, context=6, width=8, num_layers=2, num_heads=2, positions=positions, init_std=0.4
        )
        decoder = Decoder(config, plan).double()
        tokens = torch.randint(20, (2, 6), generator=torch.Generator().manual_seed(1))
        before: list[torch.Tensor] = []
        with torch.no_grad():
            decoder(tokens, observe=lambda visit, x, _, seen=before: seen.append(x))
            norms = visit_norms(decoder, plan, tuple(before))
        context = Context(decoder.positions.index(Span(0, 6, None, decoder.device, torch.float64)))
        for visit, x, measured in zip(plan.visits, before, norms, strict=True):
            for row in range(2):
                full = torch.autograd.functional.jacobian(
                    lambda z, v=visit, c=context, d=decoder: d.run(z[None], (v,), c)[0], x[row]
                )
                expected = torch.linalg.matrix_norm(full.reshape(48, 48), ord=2)
                torch.testing.assert_close(measured[row], expected, rtol=3e-3, atol=0)
                assert measured[row] <= expected * (1 + 1e-9)


def test_a_row_that_nothing_moves_has_the_norm_zero() -> None:
    scale = torch.tensor([0.0, 3.0], dtype=torch.float64)[:, None]
    norms = spectral_norms(lambda x: scale * x, torch.ones(2, 5, dtype=torch.float64))
    torch.testing.assert_close(norms, scale[:, 0])


def test_norms_are_the_same_where_training_recomputes_activations() -> None:
    tokens = torch.randint(20, (2, 6), generator=torch.Generator().manual_seed(1))
    found: list[torch.Tensor] = []
    for recompute in ("none", "selective", "full"):
        plan = make_plan([2, 1])
        decoder = Decoder(DecoderConfig(20, context=6, width=8, num_layers=2, num_heads=2), plan).double()
        execute(decoder, recompute=recompute)  # type: ignore[arg-type]
        before: list[torch.Tensor] = []
        with torch.no_grad():
            decoder(tokens, observe=lambda visit, x, _, seen=before: seen.append(x))
            found.append(torch.cat(visit_norms(decoder, plan, tuple(before))))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
