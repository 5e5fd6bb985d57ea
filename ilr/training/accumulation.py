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
        self.skipped_steps = torch.zeros((), dtype=torch.int64)
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

    def clip(self, norm: Tensor, limit: float, scaled: bool = False) -> None:
        """The gradient norm of a step before it was clipped to ``limit``.

        ``scaled``: a gradient scaler skips the update of a step whose gradient overflowed, which has no norm.
        """
        norm = norm.detach()
        updates = norm.isfinite() if scaled else torch.ones_like(norm, dtype=torch.bool)
        self.steps += 1
        self.skipped_steps = self.skipped_steps.to(norm.device) + ~updates
        self.gradient_norm = torch.where(updates, norm, self.gradient_norm.to(norm.device))
        self.clipped_steps = self.clipped_steps.to(norm.device) + ((norm > limit) & updates)

    def health(self, scaled: bool = False) -> dict[str, float]:
        """Norm of the newest gradient, and the share of steps that were clipped; with a gradient scaler also
        the share of those that it skipped. What no step of the interval has is left out.
        """
        skipped = int(self.skipped_steps)
        updates = self.steps - skipped
        figures = {"health/skipped_steps": skipped / max(self.steps, 1)} if scaled else {}
        if updates == 0:
            return figures
        return figures | {
            "health/gradient_norm": float(self.gradient_norm),
            "health/clipped_steps": float(self.clipped_steps) / updates,
        }

    def reset_interval(self) -> None:
        """Begin a new logged interval."""
        self.nll, self.tokens = torch.zeros_like(self.nll), torch.zeros_like(self.tokens)
        self.clipped_steps, self.steps = torch.zeros_like(self.clipped_steps), 0
        self.skipped_steps = torch.zeros_like(self.skipped_steps)

    def state_dict(self) -> dict[str, Any]:
        """The open interval as plain numbers, taken at an optimiser-step boundary."""
        return {
            "nll": float(self.nll),
            "tokens": int(self.tokens),
            "steps": self.steps,
            "clipped_steps": int(self.clipped_steps),
            "skipped_steps": int(self.skipped_steps),
            "gradient_norm": float(self.gradient_norm),
        }

    @staticmethod
    def describes(state: Any) -> bool:
        """Whether plain data, as of a checkpoint, are what `state_dict` gives; older checkpoints have no skips."""
        needed = {"nll", "tokens", "steps", "clipped_steps", "gradient_norm"}
        return (
            isinstance(state, dict)
            and needed <= state.keys()
            and all(isinstance(value, int | float) for value in state.values())
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with an interval that `state_dict` described; a cut optimiser step is begun anew."""
        self.__init__()  # type: ignore[misc]
        self.nll += state["nll"]
        self.tokens += state["tokens"]
        self.steps = state["steps"]
        self.clipped_steps += state["clipped_steps"]
        self.skipped_steps += state.get("skipped_steps", 0)  # older checkpoints have none
        self.gradient_norm = torch.tensor(state["gradient_norm"])
