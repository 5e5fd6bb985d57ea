"""What our files hold, as schemas: unknown keys are kept, those that older versions did not write have a default.

Numbers that may be infinite or no number are `Figure`s: the run says so itself, and readers go on.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, le=10**36)]
"""Tokens, bytes, parameters, FLOPs: all the FLOPs of the world stay below the limit."""

Index = Annotated[int, Field(ge=0, lt=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Figure = float | None
FileName = Annotated[str, Field(pattern=r"^[^/\\\x00]+$", max_length=255)]


class Schema(BaseModel):
    """Types are exact: a text is no number, yes or no is none either."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class SeedsOfRun(Schema):
    """What was random in a run."""

    init: int
    data: int
    dropout: int | None = None


class Summary(Schema):
    """summary.json of a run that has ended."""

    status: Literal["finished", "stopped", "diverged"]
    label: str = ""
    schedule: Any = None
    operands: list[list[Index | None]] | None = None
    depth: Count | None = None
    sharing: str | dict[str, Any] | None = None
    positions: str | None = None
    injection: str | None = None
    seeds: SeedsOfRun | None = None
    steps: Count
    tokens: Count | None = None
    epochs: Finite | None = None
    training_flops: Count | None = None
    parameters: Count | None = None
    flops_per_token: Count | None = None
    learning_rate: Finite | None = None
    held_equal: str | None = None
    val_loss: Figure = None
    val_perplexity: Figure = None
    val_bits_per_byte: Figure = None
    best_val_loss: Figure = None
    best_step: Count | None = None
    test_loss: Figure = None
    test_perplexity: Figure = None
    test_bits_per_byte: Figure = None
    train_loss: Figure = None
    tokens_per_second: Figure = None
    precision: str | None = None
    command: str | None = None
    config_hash: str | None = None
    identity: dict[str, Any] | None = None
    corpus_hash: str | None = None
    split_hashes: dict[str, str] | None = None
    share_of_split: dict[str, Finite] | None = None
    tokenizer_hash: str | None = None
    world_size: Count | None = None
    vocab_size: Count | None = None


class Result(Summary):
    """summary.json with all that a comparison needs."""

    label: str
    schedule: Any
    operands: list[list[Index | None]]
    depth: Count
    sharing: str | dict[str, Any] | None
    positions: str
    injection: str | None
    seeds: SeedsOfRun
    tokens: Count
    training_flops: Count
    parameters: Count
    flops_per_token: Count
    learning_rate: Finite
    held_equal: str | None
    val_loss: Figure
    tokens_per_second: Figure
    split_hashes: dict[str, str]
    tokenizer_hash: str


class Point(Schema):
    """One line of history.jsonl: a logged point, its figures by tag."""

    __pydantic_extra__: dict[str, Figure] = Field(init=False)

    step: Count
    tokens: Count
    training_flops: Count


class LoggedStep(Schema):
    """The part of a line of history.jsonl that says how far a run is."""

    step: Count
    perplexity: Figure = Field(alias="val/perplexity", default=None)


class ValidationPoint(Point):
    """A line of history.jsonl at which the validation split was scored."""

    val_loss: Figure = Field(alias="val/loss")
    val_bits_per_byte: Figure = Field(alias="val/bits_per_byte", default=None)


class SavedCheckpoint(Schema):
    """One checkpoint in checkpoints/record.json."""

    file: FileName
    step: Count
    val_loss: Figure = None


class CheckpointRecord(Schema):
    """checkpoints/record.json."""

    last: list[SavedCheckpoint]
    best: SavedCheckpoint | None = None


class Settings(Schema):
    """config.yaml of a run, as far as its sections go; what an option may be, its parser says."""

    model: dict[str, Any] = {}
    data: dict[str, Any] = {}
    trainer: dict[str, Any] = {}
    seed_everything: Any = None


class AnalysisFile(Schema):
    """analysis.json: figures of each visit, and matrices over start state and visits."""

    label: str
    schedule: list[Any]
    layers: list[Index]
    iterations: list[Count]
    weights: list[Count]
    tokens: Count
    attention_tokens: Count
    jacobian_positions: Count
    figures: dict[str, list[Figure]]
    cosine: list[list[Figure]]
    cka: list[list[Figure]]
    checkpoint: str = ""
    step: Count | None = None

    @model_validator(mode="after")
    def _as_many_as_visits(self) -> "AnalysisFile":
        visits = len(self.layers)
        lengths = {len(self.iterations), len(self.weights), *map(len, self.figures.values())}
        if lengths != {visits}:
            raise ValueError(
                f"as many entries as the {visits} layers, in iterations, weights and each figure"
            )
        for matrix in (self.cosine, self.cka):
            if [len(row) for row in matrix] not in ([], [visits + 1] * (visits + 1)):
                raise ValueError(f"matrices of {visits + 1} rows and columns")
        return self


class SweepNote(Schema):
    """What a sweep notes of one run: what it is, and how its last start ended."""

    identity: dict[str, Any] | None = None
    label: str | None = None
    note: str | None = None
    command: str | None = None
    state: str | None = None
    reason: str | None = None
    host: str | None = None
    started: Finite | None = None
    exit_code: int | None = None


Names = str | list[str] | None


class SweepTree(Schema):
    """A sweep file, as far as types go; which words and numbers are allowed, `ilr.sweep.file` says."""

    base: str | list[str] | None = None
    arms: list[Any] | None = None
    set: dict[str, Any] | None = None
    baseline: str | int | float | None = None
    learning_rates: float | str | list[float | str] | None = None
    anchors: Names = None
    held_equal: str = "tokens"


class ArmTree(Schema):
    """An arm of a sweep file that is a mapping."""

    schedules: list[Any] | None = None
    generate: str | None = None
    depth: int | None = None
    sublayers: str = "both"
    positions: Names = None
    injection: Names = None
    set: dict[str, Any] | None = None
    anchors: Names = None
