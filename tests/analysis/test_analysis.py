"""Every per-visit figure against a written-out oracle in float64, on batches of uneven rows."""

import math

import pytest
import torch
from analysis_cases import CPU, PLANS, batches, states_of, tiny_decoder
from torch import Tensor

from ilr.analysis.measure import Extent, analyse
from ilr.errors import InputError
from ilr.model.decoder import Decoder
from ilr.model.metrics import IGNORED, token_nll
from ilr.model.plan import Plan
from ilr.model.positions import Span


@torch.no_grad()
def gathered(decoder: Decoder, plan: Plan) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Before and after every visit (N, D) and targets (N,), all scored tokens of all batches in one piece."""
    befores, afters, targets = [], [], []
    for batch in batches():
        scored = batch["targets"] != IGNORED
        before, after = states_of(decoder, plan, batch["inputs"])
        befores.append([x[scored] for x in before])
        afters.append([x[scored] for x in after])
        targets.append(batch["targets"][scored])
    return (
        [torch.cat(p) for p in zip(*befores, strict=True)],
        [torch.cat(p) for p in zip(*afters, strict=True)],
        torch.cat(targets),
    )


def close(actual: list[float | None], expected: list[float | None]) -> None:
    assert [value is None for value in actual] == [value is None for value in expected]
    assert [v for v in actual if v is not None] == pytest.approx(
        [v for v in expected if v is not None], abs=1e-9
    )


CASES = [(plan, "none") for plan in PLANS] + [(PLANS[0], "add"), (PLANS[2], "add")]


@pytest.mark.parametrize(("plan", "injection"), CASES, ids=lambda case: getattr(case, "label", case))
def test_movement_equals_the_written_out_distances(plan: Plan, injection: str) -> None:
    decoder = tiny_decoder(plan, injection=injection)
    figures = analyse(decoder, batches(), Extent(attention_tokens=0, jacobian_positions=0)).figures
    before, after, _ = gathered(decoder, plan)

    def mean(values: list[float]) -> float:
        return math.fsum(values) / len(values)

    def norm(x: Tensor) -> float:
        return math.sqrt(math.fsum(value * value for value in x.tolist()))

    def cosine(x: Tensor, y: Tensor) -> float:
        return float(x @ y) / (norm(x) * norm(y))

    iterations = {layer: [i for i, v in enumerate(plan.visits) if v.layer == layer] for layer in range(4)}
    for i, visit in enumerate(plan.visits):
        a, b = after[i], before[i]
        last = after[iterations[visit.layer][-1]]
        tokens = range(len(a))
        expected = {
            "change": mean([norm(a[n] - b[n]) for n in tokens]),
            "relative_update": mean([2 * norm(a[n] - b[n]) / (norm(a[n]) + norm(b[n])) for n in tokens]),
            "cosine_before": mean([cosine(a[n], b[n]) for n in tokens]),
            "cosine_last": mean([cosine(a[n], last[n]) for n in tokens]),
            "norm": mean([norm(a[n]) for n in tokens]),
        }
        for name, value in expected.items():
            assert figures[name][i] == pytest.approx(value, abs=1e-11), (name, i)
        if visit.iteration == 0:
            assert figures["second_difference"][i] is None
        else:
            p = iterations[visit.layer][visit.iteration - 1]
            value = mean([norm((a[n] - b[n]) - (after[p][n] - before[p][n])) for n in tokens])
            assert figures["second_difference"][i] == pytest.approx(value, abs=1e-11)


@pytest.mark.parametrize(("plan", "injection"), CASES, ids=lambda case: getattr(case, "label", case))
def test_matrices_and_ranks_equal_those_of_the_stacked_states(plan: Plan, injection: str) -> None:
    decoder = tiny_decoder(plan, injection=injection)
    result = analyse(decoder, batches(), Extent(attention_tokens=0, jacobian_positions=0))
    before, after, _ = gathered(decoder, plan)
    states = [before[0], *after]
    assert result.tokens == len(states[0]) == 53
    assert result.states == ["start", *(f"{v.layer}.{v.iteration}" for v in plan.visits)]
    for i, x in enumerate(states):
        for j, y in enumerate(states):
            cosine = torch.nn.functional.cosine_similarity(x, y, dim=-1).mean()
            assert result.cosine[i][j] == pytest.approx(float(cosine), abs=1e-11)
            # By the N × N Gram matrices: another road to CKA than the D × D products.
            centre = torch.eye(len(x), dtype=torch.float64) - 1 / len(x)
            k, m = (centre @ z @ z.T @ centre for z in (x, y))
            cka = (k * m).sum() / (k.norm() * m.norm())
            assert result.cka[i][j] == pytest.approx(float(cka), abs=1e-10)
    for i, x in enumerate(after):
        singular = torch.linalg.svdvals(x)
        shares = singular / singular.sum()
        rank = float(torch.exp(-(shares * shares.log()).sum()))
        assert result.figures["effective_rank"][i] == pytest.approx(rank, abs=1e-6)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("plan", PLANS[:3], ids=lambda plan: plan.label)
def test_the_lens_equals_norm_and_head_written_out_and_ends_at_the_models_loss(plan: Plan, tie: bool) -> None:
    decoder = tiny_decoder(plan, tie_embeddings=tie, embedding_width=5)
    result = analyse(decoder, batches(), Extent(attention_tokens=0, jacobian_positions=0))
    with torch.no_grad():
        states = widened(decoder, plan)
        targets = torch.cat([batch["targets"][batch["targets"] != IGNORED] for batch in batches()])
        head = decoder.embedding.weight @ decoder.narrow.weight if tie else decoder.head.weight
        final = torch.softmax(normed(decoder, states[-1]) @ head.T, dim=-1)
        for i, state in enumerate(states):
            p = torch.softmax(normed(decoder, state) @ head.T, dim=-1)
            rows = range(len(targets))
            loss = -sum(math.log(p[n, targets[n]]) for n in rows) / len(rows)
            hits = sum(int(p[n].argmax() == targets[n]) for n in rows) / len(rows)
            kl = float((final * (final / p).log()).sum() / len(rows))
            assert result.figures["lens_loss"][i] == pytest.approx(loss, abs=1e-10)
            assert result.figures["lens_accuracy"][i] == pytest.approx(hits, abs=1e-12)
            assert result.figures["lens_kl"][i] == pytest.approx(kl, abs=1e-10)
        nll = sum(float(token_nll(decoder(b["inputs"]), b["targets"]).sum()) for b in batches())
    assert result.loss == pytest.approx(nll / 53, abs=1e-12)
    assert result.figures["lens_kl"][-1] == 0


def normed(decoder: Decoder, x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + decoder.config.norm_eps).sqrt() * decoder.norm.weight


def widened(decoder: Decoder, plan: Plan) -> list[Tensor]:
    """After every visit, observed: the factorised embedding is beside the point here."""
    seen: list[list[Tensor]] = [[] for _ in plan.visits]
    for batch in batches():
        numbers = iter(range(plan.depth))
        decoder(
            batch["inputs"],
            observe=lambda v, b, a, n=numbers, m=batch["targets"] != IGNORED: seen[next(n)].append(a[m]),
        )
    return [torch.cat(parts) for parts in seen]


@pytest.mark.parametrize("positions", ["rope", "alibi", "none"])
@pytest.mark.parametrize("plan", [PLANS[0], PLANS[3]], ids=lambda plan: plan.label)
def test_attention_figures_equal_the_written_out_maps(plan: Plan, positions: str) -> None:
    decoder = tiny_decoder(plan, positions=positions, num_kv_heads=1)
    result = analyse(decoder, batches(), Extent(attention_tokens=10_000, jacobian_positions=0))
    assert result.attention_tokens == 53
    entropy, change = [0.0] * plan.depth, [0.0] * plan.depth
    with torch.no_grad():
        for batch in batches():
            before, _ = states_of(decoder, plan, batch["inputs"])
            maps: dict[int, list[Tensor]] = {}
            for i, visit in enumerate(plan.visits):
                if visit.attention is None:
                    continue
                index = decoder.positions.index(Span(0, 12, None, CPU, torch.float64))
                p = decoder.attention[visit.attention].probabilities(before[i], index)
                maps.setdefault(visit.layer, []).append(p)
                for b, t in (batch["targets"] != IGNORED).nonzero().tolist():
                    for h in range(2):
                        row = p[b, h, t, : t + 1].tolist()
                        entropy[i] -= math.fsum(w * math.log(w) for w in row) / 2 / 53
                        if len(maps[visit.layer]) > 1:
                            previous = maps[visit.layer][-2][b, h, t].tolist()
                            pairs = zip(p[b, h, t].tolist(), previous, strict=True)
                            change[i] += math.fsum(abs(w - v) for w, v in pairs) / 2 / 2 / 53
    attends = [visit.attention is not None for visit in plan.visits]
    seen: set[int] = set()
    moves = [a and (v.layer in seen or seen.add(v.layer)) for a, v in zip(attends, plan.visits, strict=True)]
    close(
        result.figures["attention_entropy"], [e if a else None for e, a in zip(entropy, attends, strict=True)]
    )
    close(result.figures["attention_change"], [c if m else None for c, m in zip(change, moves, strict=True)])


def test_weights_that_diverged_are_refused_in_words() -> None:
    decoder = tiny_decoder(PLANS[0])
    with torch.no_grad():
        decoder.attention[0].output.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="the states are not finite: these weights have diverged"):
        analyse(decoder, batches())
