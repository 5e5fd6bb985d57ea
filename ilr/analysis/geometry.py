"""How alike the states are, and how many directions each one uses: matrices over a whole run."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 1024


class Geometry:
    """Sums over tokens from which cosines, linear CKA and effective ranks of S states follow, in float64.

    Kept: the S × S sum of cosines, each state's sum, and the D × D products of every two states, which is
    S (S + 1) / 2 · D² numbers, whatever the number of tokens.
    """

    def __init__(self, num_states: int, width: int, device: torch.device) -> None:
        self.num_states, self.width = num_states, width
        self.tokens = 0
        self._cosines = torch.zeros(num_states, num_states, dtype=torch.float64, device=device)
        self._sums = torch.zeros(num_states, width, dtype=torch.float64, device=device)
        # Row i: products of state i with states i, i + 1, …, side by side.
        self._products = [
            torch.zeros(width, (num_states - i) * width, dtype=torch.float64, device=device)
            for i in range(num_states)
        ]

    def update(self, states: Sequence[Tensor]) -> None:
        """Add the tokens of a batch: one (N, D) per state."""
        self.tokens += len(states[0])
        for parts in zip(*(torch.split(state, _CHUNK) for state in states), strict=True):
            stacked = torch.stack(parts, dim=1).double()  # (n, S, D)
            units = F.normalize(stacked, dim=-1).transpose(0, 1).flatten(1)  # (S, n·D)
            self._cosines += units @ units.T
            self._sums += stacked.sum(dim=0)
            flat = stacked.flatten(1)
            for i, products in enumerate(self._products):
                at = i * self.width
                products.addmm_(flat[:, at : at + self.width].T, flat[:, at:])

    def cosine(self) -> Tensor:
        """Token mean of the cosine between every two states, (S, S)."""
        return self._cosines / self.tokens

    def cka(self) -> Tensor:
        """Linear CKA between every two states (arXiv 1905.00414), (S, S), tokens as examples.

        ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) of the centred states, in Frobenius norms.
        """
        means = self._sums / self.tokens
        alike = torch.zeros_like(self._cosines)
        for i in range(self.num_states):
            for j in range(i, self.num_states):
                centred = self._product(i, j) / self.tokens - torch.outer(means[i], means[j])
                alike[i, j] = alike[j, i] = centred.square().sum()
        scale = alike.diagonal().sqrt()
        return alike / torch.outer(scale, scale)

    def effective_ranks(self) -> list[float]:
        """Exp of the entropy of σ/Σσ for each state, σ the singular values of its N × D matrix, uncentred.

        (Roy and Vetterli, "The effective rank", 2007.) Between 1 and D.
        """
        return [self._effective_rank(self._product(i, i)) for i in range(self.num_states)]

    def _product(self, i: int, j: int) -> Tensor:
        at = (j - i) * self.width
        return self._products[i][:, at : at + self.width]

    def _effective_rank(self, moment: Tensor) -> float:
        singular = torch.linalg.eigvalsh(moment).clamp(min=0).sqrt()
        shares = singular / singular.sum()
        return float(torch.special.entr(shares).sum().exp())
