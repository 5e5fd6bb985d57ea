"""One evaluation: a run, a plan, a text and a manner of scoring it, to its record."""

from dataclasses import asdict, dataclass

from ilr.evaluation.breakdown import frequencies, frequency_deciles, position_bins, position_losses
from ilr.evaluation.measure import Sums, measure
from ilr.evaluation.record import ALONE, Record
from ilr.evaluation.sequences import Sequences
from ilr.evaluation.subject import Text, logits_function, words_of
from ilr.evaluation.windows import check_windows
from ilr.model.device import usable_device
from ilr.model.inference import evaluating
from ilr.model.metrics import perplexity
from ilr.model.plan import Plan
from ilr.model.positions import check_length
from ilr.progress import progress_bar
from ilr.runs.trained_run import TrainedRun


@dataclass(frozen=True)
class Manner:
    """How a text is scored: in windows of ``window`` tokens that advance by ``stride``, over the stream or each
    document alone; in which tables besides; in what precision, batches and on what device.

    ``batch_size`` None: the run's, with as many tokens in a batch.
    """

    window: int
    stride: int
    precision: str
    documents_alone: bool = False
    by_position: bool = False
    by_frequency: bool = False
    batch_size: int | None = None
    device: str = "cpu"


def evaluate(run: TrainedRun, plan: Plan, text: Text, manner: Manner) -> Record:
    """Score the text under the plan; raises `InputError` where that is not possible."""
    check_windows(manner.window, manner.stride)
    check_length(run.decoder.positions, manner.window)
    stream, table = text.data.stream(text.split), text.data.documents(text.split)
    if manner.documents_alone:
        sequences = Sequences.documents(stream, table, text.data.separator_id)
    else:
        sequences = Sequences.whole(stream, table)
    decoder = run.decoder.to(usable_device(manner.device))
    same_tokens = max(1, text.data.eval_batch_size * decoder.config.context // manner.window)
    with evaluating(decoder), progress_bar("scoring", sequences.num_targets, " tokens") as bar:
        sums = measure(
            logits_function(decoder, plan, manner.precision),
            sequences.batches(manner.window, manner.stride, manner.batch_size or same_tokens),
            split=text.name,
            num_documents=len(table),
            window=manner.window,
            vocab_size=decoder.config.vocab_size,
            device=decoder.device,
            progress=bar.update,
        )
    assert sums.scores.scored_tokens == sequences.num_targets
    longer = int((sequences.lengths - 1 > manner.window).sum())
    return _record(run, plan, text, manner, sums, longer if manner.documents_alone else None)


def _record(
    run: TrainedRun, plan: Plan, text: Text, manner: Manner, sums: Sums, longer: int | None
) -> Record:
    manifest, info = text.data.manifest, text.data.manifest.splits[text.split]
    num_bytes, num_words = text.data.bytes_scored(text.split), words_of(text)
    counts = None
    if manner.by_frequency:
        counts = frequencies(run.data.stream("train"), run.decoder.config.vocab_size)
    return Record(
        checkpoint=str(run.checkpoint),
        step=run.step,
        trained_schedule=run.decoder.plan.label,
        schedule=plan.label,
        corpus=list(text.corpus),
        split=text.name,
        corpus_hash=manifest.corpus_hash,
        split_hash=info.hash,
        tokenizer_hash=manifest.tokenizer_hash,
        document=manifest.document,
        pseudo_documents=manifest.pseudo_documents,
        separator_token=manifest.separator_token,
        documents=info.documents,
        share_of_split=text.data.share_of(text.split),
        tokens=info.tokens,
        bytes=num_bytes,
        words=num_words,
        duplicates=asdict(manifest.duplicates[text.split]) if text.data is run.data else None,
        documents_alone=manner.documents_alone,
        trained_context=run.decoder.config.context,
        window=manner.window,
        stride=manner.stride,
        longer_documents=longer,
        precision=manner.precision,
        device=manner.device,
        scored_tokens=sums.scores.scored_tokens,
        total_nll=sums.scores.total_nll,
        figures=_figures(sums, num_bytes, num_words, manner),
        loss_by_position=position_losses(sums) if manner.by_position else None,
        position_bins=position_bins(sums) if manner.by_position else None,
        frequency_deciles=None if counts is None else frequency_deciles(sums, counts),
    )


def _figures(sums: Sums, num_bytes: int, num_words: int, manner: Manner) -> dict[str, float]:
    """The figures of `Scores`, and the perplexity per word: exp of total NLL over words of the text.

    The mean over sequences is that of the training's blocks; other windows have no such sequences.
    """
    figures = sums.scores.figures(num_bytes)
    if manner.documents_alone or manner.stride < manner.window:
        del figures["perplexity_sequence_mean"]
    if num_words:
        figures["word_perplexity"] = perplexity(sums.scores.total_nll / num_words)
    return {ALONE + name if manner.documents_alone else name: value for name, value in figures.items()}
