"""The smallest true difference that a planned sweep would find, from how many seeds and documents it has."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

POWER = 0.8
LEVEL = 0.05


@dataclass(frozen=True)
class Noise:
    """What moves a score besides the arm, in nats per token, and where these figures come from.

    ``seed_sd`` is between runs of one arm; ``document_sd`` is of one document's paired difference between two
    arms. The documents count alike.
    """

    seed_sd: float
    document_sd: float
    source: str


def detectable(noise: Noise, arms: int, seeds: int, documents: int | None) -> float:
    """Difference from the baseline, in nats per token, found with a probability of 80 %.

    As `ilr compare` tests it: variance 2·MSE/S of seeds with (A-1)(S-1) degrees of freedom plus that of the
    documents with N-1, Satterthwaite, Holm's first step over the A-1 arms. Without a second seed it is NaN:
    such a sweep cannot tell an arm from a seed.
    """
    if seeds < 2 or arms < 2:
        return float("nan")
    by_seeds = 2 * noise.seed_sd**2 / seeds
    by_documents = noise.document_sd**2 / documents if documents and documents > 1 else 0.0
    spread = by_seeds**2 / ((arms - 1) * (seeds - 1))
    if documents and documents > 1:
        spread += by_documents**2 / (documents - 1)
    variance = by_seeds + by_documents
    degrees = variance**2 / spread if spread else np.inf
    level = LEVEL / (arms - 1)
    quantiles = stats.t.ppf(1 - level / 2, degrees) + stats.t.ppf(POWER, degrees)
    return float(quantiles * np.sqrt(variance))
