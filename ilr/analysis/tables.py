"""The results as fixed-width text."""

from collections.abc import Sequence
from itertools import pairwise

from ilr.analysis.choice import Landscape, best_within, front
from ilr.analysis.record import Analysis
from ilr.analysis.schedules import Evaluated, Row

_COLUMNS = {
    "change": "L2 change",
    "relative_update": "relative",
    "second_difference": "2nd diff",
    "cosine_before": "cos before",
    "cosine_last": "cos last",
    "norm": "norm",
    "effective_rank": "eff. rank",
    "lens_loss": "lens loss",
    "lens_accuracy": "accuracy",
    "lens_kl": "KL final",
    "attention_entropy": "entropy",
    "attention_change": "att. moved",
    "jacobian_norm": "Jacobian",
}
_MOST_ROWS = 30


def visits_table(one: Analysis) -> str:
    """One line per visit, one column per figure, then how each repeated layer's update develops."""
    names = [name for name in _COLUMNS if name in one.figures]
    rows = [["visit", *(_COLUMNS[name] for name in names)]]
    for number, visit in enumerate(one.visits):
        rows.append([visit, *(_number(one.figures[name][number]) for name in names)])
    extents = [f"{one.tokens:,} tokens"]
    if one.attention_tokens:
        extents.append(f"attention over {one.attention_tokens:,}")
    if one.jacobian_positions:
        extents.append(f"Jacobians over {one.jacobian_positions:,} positions")
    return "\n".join([f"{one.label}: {', '.join(extents)}", _aligned(rows), *refinement(one)])


def refinement(one: Analysis) -> list[str]:
    """Whether updates fall where the same weights run again, in one layer or in several that share them."""
    lines = []
    for weights in dict.fromkeys(one.weights):
        runs = [number for number, own in enumerate(one.weights) if own == weights]
        updates = [value for value in (one.figures["relative_update"][i] for i in runs) if value is not None]
        if len(updates) < 2:
            continue
        steps = list(pairwise(updates))
        falls = sum(after < before for before, after in steps)
        trend = "falling" if falls == len(steps) else "rising" if falls == 0 else "neither falling nor rising"
        layers = list(dict.fromkeys(one.layers[i] for i in runs))
        name = f"layer {layers[0]}" if len(layers) == 1 else f"layers {', '.join(map(str, layers))} (shared)"
        lines.append(f"{name}: relative update {' → '.join(f'{u:.3f}' for u in updates)}: {trend}")
    return lines


def schedules_table(evaluated: Evaluated, landscape: Landscape, budget: float) -> str:
    """The best schedules, the trained one among them; sensitivity per layer; the best for its cost."""
    trained = evaluated.rows[0]
    ranked = sorted(evaluated.rows, key=lambda row: row.loss)
    shown = ranked[:_MOST_ROWS]
    if trained not in shown:
        shown = [*shown[:-1], trained]
    rows = [["schedule", "depth", "cost", "loss", "delta", "± se", ""]]
    rows += [_cells(row, trained) for row in shown]
    title = f"{len(ranked)} schedules of weights trained as {trained.label}, {evaluated.tokens:,} tokens"
    unit = "loss in nats/token, cost in forward FLOPs of the trained schedule"
    part = f"; the best {len(shown)}" if len(shown) < len(ranked) else ""
    lines = [f"{title}, {len(evaluated.documents)} documents; {unit}{part}:", _aligned(rows)]
    held = "-".join(map(str, landscape.held))
    for curve in landscape.curves():
        points = ", ".join(f"×{t} {loss:.4f}" for t, loss in zip(curve.times, curve.losses, strict=True))
        spread = max(curve.losses) - min(curve.losses)
        lines.append(f"layer {curve.layer} (others {held}): {points}; range {spread:.4f}")
    best = best_within(evaluated.rows, trained, budget)
    if best is None:
        lines.append(f"no schedule costs at most {budget:g}× the trained one")
    else:
        lines.append(f"best within {budget:g}× the trained cost: {best.label}, {_delta(best)} nats/token")
    ladder = ", ".join(
        f"{row.label} ({_times(row, trained)}: {row.loss:.4f})" for row in front(evaluated.rows)
    )
    lines.append(f"best for its cost: {ladder}")
    return "\n".join(lines)


def _cells(row: Row, trained: Row) -> list[str]:
    error = "-" if row.delta_se is None else f"{row.delta_se:.4f}"
    mark = "as trained" if row == trained else ""
    return [
        row.label,
        str(row.depth),
        _times(row, trained),
        f"{row.loss:.4f}",
        f"{row.delta:+.4f}",
        error,
        mark,
    ]


def _delta(row: Row) -> str:
    return f"{row.delta:+.4f}" + ("" if row.delta_se is None else f" ± {row.delta_se:.4f}")


def _times(row: Row, trained: Row) -> str:
    return f"{row.forward_flops_per_token / trained.forward_flops_per_token:.2f}×"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3e}" if value != 0 and not 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )
