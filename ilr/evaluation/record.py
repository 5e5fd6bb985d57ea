"""The result of an evaluation as plain data, and as the text that the terminal shows. No torch."""

from dataclasses import asdict, dataclass
from typing import Any

from ilr.evaluation.breakdown import Decile, PositionBin
from ilr.files import plain_json

TITLES = {
    "loss": "loss (nats per token)",
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
    "word_perplexity": "word perplexity",
    "perplexity_sequence_mean": "perplexity, mean over sequences",
}
ALONE = "doc_"
"""Before the names of figures where each document was scored by itself: they are other figures."""


@dataclass(frozen=True)
class Record:
    """Everything that was evaluated, how, and what came out. ``figures``: by the names of `TITLES`, with
    `ALONE` before them for documents alone. ``duplicates``: documents of the split that also stand in train,
    with their tokens and bytes; None for a text other than the run's. ``loss_by_position[p]``: of tokens
    predicted from p + 1 tokens.
    """

    checkpoint: str
    step: int
    trained_schedule: str
    schedule: str
    corpus: list[str]
    split: str
    corpus_hash: str
    split_hash: str
    tokenizer_hash: str
    document: str
    pseudo_documents: bool
    separator_token: str
    documents: int
    share_of_split: float
    tokens: int
    bytes: int
    words: int
    duplicates: dict[str, int] | None
    documents_alone: bool
    trained_context: int
    window: int
    stride: int
    longer_documents: int | None
    precision: str
    device: str
    scored_tokens: int
    total_nll: float
    figures: dict[str, float]
    loss_by_position: list[float | None] | None = None
    position_bins: list[PositionBin] | None = None
    frequency_deciles: list[Decile] | None = None

    def as_json(self) -> str:
        """All of it; figures stand beside the rest."""
        content = asdict(self)
        figures = content.pop("figures")
        return plain_json.dumps(content | figures, indent=1)

    def as_text(self) -> str:
        """What was evaluated, the figures, and the tables that there are."""
        facts = self._facts()
        width = max(map(len, facts))
        lines = [f"{name:{width}}  {value}" for name, value in facts.items()] + [""]
        for name, value in self.figures.items():
            title = name.removeprefix(ALONE)
            after = ", documents alone" if self.documents_alone else ""
            lines.append(f"{TITLES[title] + after:<42}{value:>20,.4f}")
        if self.position_bins is not None:
            lines += ["", *_position_table(self.position_bins)]
        if self.frequency_deciles is not None:
            lines += ["", *_frequency_table(self.frequency_deciles)]
        return "\n".join(lines)

    def _facts(self) -> dict[str, Any]:
        under = "as trained" if self.schedule == self.trained_schedule else "other than trained"
        cut = "pseudo-documents" if self.pseudo_documents else f"a document is a {self.document}"
        if self.document not in ("file", "line", "paragraph") and not self.pseudo_documents:
            cut = f"documents begin at {self.document!r}"
        return {
            "checkpoint": f"{self.checkpoint}, step {self.step}",
            "schedule": f"{self.schedule} ({under}: {self.trained_schedule})",
            "text": f"{self.split} of {', '.join(self.corpus)}: {self.documents:,} documents, "
            f"{self.tokens:,} tokens, {self.bytes:,} bytes, {self.words:,} words{self._part()}",
            **self._leaked(),
            "prepared": f"original text, {cut}, {self.separator_token} after each",
            "hashes": f"corpus {self.corpus_hash[:12]}, split {self.split_hash[:12]}, "
            f"tokenizer {self.tokenizer_hash[:12]}",
            "windows": self._windows(),
            "scored": f"{self.scored_tokens:,} tokens, {self.precision} on {self.device}",
        }

    def _part(self) -> str:
        return (
            "" if self.share_of_split == 1 else f"; the first {100 * self.share_of_split:.3g} % of the split"
        )

    def _leaked(self) -> dict[str, str]:
        if self.duplicates is None or not self.duplicates["documents"]:
            return {}
        share = self.duplicates["tokens"] / self.tokens
        return {
            "duplicates": f"{self.duplicates['documents']:,} of these documents ({share:.1%} of the tokens) also "
            "stand in train"
        }

    def _windows(self) -> str:
        beyond = f", beyond the trained context of {self.trained_context}"
        text = f"{self.window} tokens, stride {self.stride}{beyond if self.window > self.trained_context else ''}"
        if self.longer_documents is None:
            blocks = ", disjoint blocks" if self.stride == self.window else ""
            return f"{text}{blocks}, over the stream of all documents"
        longer = f"; {self.longer_documents:,} of {self.documents:,} are longer and take several windows"
        return f"each document alone from {self.separator_token}; {text}{longer}"


def _position_table(bins: list[PositionBin]) -> list[str]:
    lines = ["by position in the window", f"{'tokens seen':>14}{'scored':>12}{'nats/token':>12}"]
    return lines + [f"{one.label:>14}{one.tokens:>12,}{_loss(one.loss):>12}" for one in bins]


def _frequency_table(deciles: list[Decile]) -> list[str]:
    total = sum((one.loss or 0.0) * one.tokens for one in deciles)
    lines = [
        "by training frequency: each decile a tenth of the training stream, 1 the most frequent tokens (equal",
        "frequencies in the order of their ids; no id is cut, it goes where the middle of its occurrences lies)",
        f"{'decile':>8}{'ids':>8}{'in training':>18}{'share':>8}{'scored':>12}{'nats/token':>12}{'of the NLL':>12}",
    ]
    for one in deciles:
        count = f"{one.most:,}-{one.least:,}" if one.types else "-"
        part = f"{(one.loss or 0.0) * one.tokens / total:.1%}" if total else "-"
        lines.append(
            f"{one.number:>8}{one.types:>8,}{count:>18}{one.train_share:>8.1%}{one.tokens:>12,}"
            f"{_loss(one.loss):>12}{part:>12}"
        )
    return lines


def _loss(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4f}"
