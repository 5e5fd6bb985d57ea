"""The logit lens: what the final norm and head would predict after every visit."""

import torch
from torch import Tensor

from ilr.analysis.trace import Trace
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan

QUANTITIES = ("lens_loss", "lens_accuracy", "lens_kl")
_LOGITS_AT_ONCE = 2**20


class Lens:
    """NLL and accuracy of each visit's prediction, and its KL divergence from the final one, as token means.

    *lens_kl* is Σ p log(p / q) in nats, p the model's own distribution, q the visit's. After the last visit
    the loss is the model's and the divergence 0.
    """

    def __init__(self, decoder: Decoder, plan: Plan) -> None:
        self.decoder = decoder
        self.tokens = 0
        self._sums = torch.zeros(len(QUANTITIES), plan.depth, dtype=torch.float64, device=decoder.device)

    def update(self, trace: Trace, targets: Tensor) -> None:
        """Add the tokens of a batch; ``targets`` (N,) of the traced positions."""
        self.tokens += len(targets)
        # Small pieces: logits of a whole batch would leave the processor's cache, once per visit.
        size = max(1, _LOGITS_AT_ONCE // self.decoder.config.vocab_size)
        for start in range(0, len(targets), size):
            piece = slice(start, start + size)
            self._update(tuple(state[piece] for state in trace.after), targets[piece])

    def means(self) -> dict[str, list[float | None]]:
        """Token mean of each quantity at each visit."""
        return dict(zip(QUANTITIES, (self._sums / self.tokens).tolist(), strict=True))

    def _update(self, states: tuple[Tensor, ...], targets: Tensor) -> None:
        final = self._log_probabilities(states[-1])
        weights = final.exp()
        negative_entropy = torch.linalg.vecdot(weights, final)
        for number, state in enumerate(states):
            log = final if number == len(states) - 1 else self._log_probabilities(state)
            values = [
                -log.gather(-1, targets[:, None])[:, 0],
                (log.argmax(dim=-1) == targets).to(log.dtype),
                negative_entropy - torch.linalg.vecdot(weights, log),
            ]
            self._sums[:, number] += torch.stack(values).double().sum(dim=1)

    def _log_probabilities(self, state: Tensor) -> Tensor:
        logits = self.decoder.predict(state)
        return torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
