"""Sums over the micro-batches of an optimiser step, and over the steps between two logged points.

Everything stays a tensor on the device until a point is logged, so that no step waits for the device.
"""

from typing import Any

import torch
from torch import Tensor


class StepWindow:
    """What training has seen since the last optimiser step and since the last logged point."""

    def __init__(self) -> None:
        self.scored = torch.zeros((), dtype=torch.int64)
        self.nominal = 0
        self.nll = torch.zeros((), dtype=torch.float64)
        self.tokens = torch.zeros((), dtype=torch.int64)
        self.steps = 0
        self.clipped_steps = torch.zeros((), dtype=torch.int64)
        self.gradient_norm = torch.zeros(())

    def add(self, nll: Tensor, scored: Tensor, nominal: int) -> None:
        """A micro-batch: its summed NLL, the tokens that it scored, and the positions that it has."""
        self.scored = self.scored.to(scored.device) + scored
        self.nominal += nominal
        self.nll = self.nll.to(nll.device) + nll
        self.tokens = self.tokens.to(scored.device) + scored

    def take_step(self) -> tuple[Tensor, int]:
        """(scored tokens, positions) of the optimiser step that is about to be taken; starts the next one."""
        scored, nominal = self.scored, self.nominal
        self.scored, self.nominal = torch.zeros_like(scored), 0
        return scored, nominal

    def clip(self, norm: Tensor, limit: float) -> None:
        """The gradient norm of a step before it was clipped to ``limit``."""
        self.steps += 1
        self.gradient_norm = norm.detach()
        self.clipped_steps = self.clipped_steps.to(norm.device) + (norm > limit)

    def reset_interval(self) -> None:
        """Begin a new logged interval."""
        self.nll, self.tokens = torch.zeros_like(self.nll), torch.zeros_like(self.tokens)
        self.clipped_steps, self.steps = torch.zeros_like(self.clipped_steps), 0

    def state_dict(self) -> dict[str, Any]:
        """The open interval as plain numbers, taken at an optimiser-step boundary."""
        return {
            "nll": float(self.nll),
            "tokens": int(self.tokens),
            "steps": self.steps,
            "clipped_steps": int(self.clipped_steps),
            "gradient_norm": float(self.gradient_norm),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with an interval that `state_dict` described; a cut optimiser step is begun anew."""
        self.__init__()  # type: ignore[misc]
        self.nll += state["nll"]
        self.tokens += state["tokens"]
        self.steps = state["steps"]
        self.clipped_steps += state["clipped_steps"]
        self.gradient_norm = torch.tensor(state["gradient_norm"])
