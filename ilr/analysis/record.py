"""The result of an analysis as plain data: what files, figures and tables are made from. No torch."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ilr.files import plain_json
from ilr.files.readers import read_json
from ilr.runs.directory import atomic_write

START = "start"


@dataclass(frozen=True)
class Quantity:
    """What a per-visit figure is called and measured in."""

    title: str
    unit: str

    @property
    def axis(self) -> str:
        """Label of its axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


QUANTITIES = {
    "change": Quantity("L2 change", "residual units"),
    "relative_update": Quantity("relative update", "0 to 2"),
    "second_difference": Quantity("second difference", "residual units"),
    "cosine_before": Quantity("cosine to the state before", ""),
    "cosine_last": Quantity("cosine to layer's last iteration", ""),
    "norm": Quantity("norm", "residual units"),
    "effective_rank": Quantity("effective rank", "directions"),
    "lens_loss": Quantity("logit-lens loss", "nats/token"),
    "lens_accuracy": Quantity("logit-lens accuracy", "share"),
    "lens_kl": Quantity("KL from final prediction", "nats"),
    "attention_entropy": Quantity("attention entropy", "nats"),
    "attention_change": Quantity("attention change", "total variation"),
    "jacobian_norm": Quantity("Jacobian norm", "spectral, row mean"),
    "jacobian_norm_max": Quantity("Jacobian norm", "spectral, largest row"),
}


@dataclass(frozen=True)
class Analysis:
    """Figures of each visit, in the order in which they run, and matrices over start state and visits.

    ``tokens``, ``attention_tokens`` and ``jacobian_positions`` are how many positions stand behind them.
    ``weights`` numbers the distinct weights that the visits run: equal numbers, equal function.
    ``figures[quantity][visit]`` is None where the quantity does not exist, an entry of a matrix where it is
    0/0. ``loss`` is the model's own, in nats per token, over the same tokens (None without the lens).
    """

    label: str
    schedule: list[Any]
    layers: list[int]
    iterations: list[int]
    weights: list[int]
    tokens: int
    attention_tokens: int
    jacobian_positions: int
    figures: dict[str, list[float | None]]
    cosine: list[list[float | None]]
    cka: list[list[float | None]]
    checkpoint: str = ""
    step: int | None = None

    @property
    def visits(self) -> list[str]:
        """Each visit's name, ``layer.iteration``."""
        return [f"{layer}.{iteration}" for layer, iteration in zip(self.layers, self.iterations, strict=True)]

    @property
    def states(self) -> list[str]:
        """Names of the rows of the matrices."""
        return [START, *self.visits]

    @property
    def loss(self) -> float | None:
        """The model's own loss over the analysed tokens."""
        return self.figures["lens_loss"][-1] if "lens_loss" in self.figures else None

    def scalars(self) -> dict[str, float]:
        """Each existing figure under ``by_visit/QUANTITY/LAYER.ITERATION``."""
        return {
            f"by_visit/{quantity}/{visit}": value
            for quantity, values in self.figures.items()
            for visit, value in zip(self.visits, values, strict=True)
            if value is not None
        }

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        with atomic_write(path) as file:
            file.write(plain_json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Analysis":
        """Read back what `write` wrote; raises `InputError` for another file."""
        from ilr.runs.schema import AnalysisFile  # only here, as pydantic takes time to load

        found = read_json(path, AnalysisFile)
        return cls(**{field.name: getattr(found, field.name) for field in fields(cls)})
