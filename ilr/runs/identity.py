"""When two runs are the same but for their seeds: everything that changes a number, as plain data, and its digest.

A number is a weight, or a figure of the validation or test split. What a value is called does not count: nulls are
filled in, schedule and sharing stand as operands, text and tokenizer by their content. An option that is in no
table below counts as it is given. No torch.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan
from ilr.runs.normal_form import optimisation_of, processes_of, sizes_of, training_of
from ilr.runs.options import Options, decoder_of, defaults_of

SEEDS = {"seed_everything", "model.init_seed", "model.dropout_seed", "data.seed"}
"""What is random in a run: it stands beside the identity."""

NO_NUMBER = {
    # the same sums in another order, at most: rounding
    *("model.compile", "model.recompute", "data.eval_batch_size", "data.num_workers"),
    *("trainer.accelerator", "trainer.strategy", "trainer.deterministic", "trainer.benchmark"),
    # checked against what follows anyway
    *("model.vocab_size", "trainer.fast_dev_run", "trainer.limit_predict_batches", "trainer.barebones"),
    *("trainer.val_check_interval", "trainer.check_val_every_n_epoch", "trainer.log_every_n_steps"),
    *("trainer.gradient_clip_algorithm", "trainer.sync_batchnorm", "trainer.use_distributed_sampler"),
    *("trainer.reload_dataloaders_every_n_epochs", "trainer.inference_mode", "trainer.detect_anomaly"),
    # what is looked at, kept and shown, and where
    *("data.cache_dir", "data.eval_contexts", "trainer.num_sanity_val_steps", "trainer.default_root_dir"),
    *("trainer.logger", "trainer.profiler", "trainer.model_registry", "trainer.enable_checkpointing"),
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.enable_autolog_hparams"),
    *(
        "save_every",
        "log_every",
        "test_after_fit",
        "held_equal",
        "run_dir",
        "resume",
        "ckpt_path",
        "config",
        "trust",
    ),
}
"""Options of `ilr fit` that change no number."""

BY_CONTENT = {
    *(
        "data.corpus",
        "data.validation",
        "data.test",
        "data.dataset_config",
        "data.dataset_split",
        "data.revision",
    ),
    *(
        "data.column",
        "data.streaming",
        "data.max_documents",
        "data.document",
        "data.splits",
        "data.split_seed",
    ),
    *("data.tokenizer", "data.separator_token", "data.vocab_size", "data.duplicates", "data.format"),
    *("data.max_train_tokens", "data.max_eval_tokens"),
}
"""Options that count by the text and the tokenizer that they give."""

NORMALISED = {
    *(f"model.{name}" for name in DecoderConfig.__dataclass_fields__ if name != "vocab_size"),
    *("model.schedule", "model.sharing", "model.learning_rate", "model.lr_schedule", "model.warmup_ratio"),
    *("model.warmup_steps", "model.min_lr_ratio", "model.extra_steps", "model.betas", "model.adam_eps"),
    *("model.weight_decay", "model.repeated_weight_decay", "model.decay_norms", "model.val_precision"),
    *("data.batch_size", "val_every", "trainer.devices", "trainer.num_nodes", "trainer.precision"),
    *("trainer.callbacks", "trainer.plugins", "trainer.max_epochs", "trainer.max_steps", "trainer.max_time"),
    *("trainer.min_epochs", "trainer.min_steps", "trainer.limit_train_batches", "trainer.limit_val_batches"),
    *("trainer.limit_test_batches", "trainer.overfit_batches", "trainer.accumulate_grad_batches"),
    *("trainer.gradient_clip_val",),
}
"""Options that count, and of which `identity` knows when two values are one."""


def identity(
    options: Mapping[str, Any],
    text: Mapping[str, Any],
    processes: int | None = None,
    decoder: tuple[DecoderConfig, Plan] | None = None,
) -> dict[str, Any]:
    """What decides a run's numbers, seeds apart.

    Args:
        options: Of `ilr fit`, flat; those not given have their defaults.
        text: What is trained on and scored, by content (`by_recipe`).
        processes: That train together; by default as the options say, else one.
        decoder: What the options describe, where it is made already.
    """
    options = _filled(options)
    config, plan = decoder_of(options) if decoder is None else decoder
    same: dict[str, Any] = {
        "operands": [list(operands) for operands in plan.operands],
        "banks": [plan.sharing.num_attention, plan.sharing.num_ffn],
        **sizes_of(config, plan),
        **optimisation_of(options, plan),
        **training_of(options),
        "processes": processes_of(options) if processes is None else processes,
        "text": dict(text),
    }
    known = NO_NUMBER | BY_CONTENT | NORMALISED | SEEDS
    same |= {name: value for name, value in options.items() if name not in known and value is not None}
    plain: dict[str, Any] = json.loads(json.dumps(same, sort_keys=True))
    return plain


def digest(same: Mapping[str, Any]) -> str:
    """Equal for equal identities."""
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterable[str]:
    """Where two identities differ, in words."""
    for name in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get(name), theirs.get(name)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from (f"{name}.{one}" for one in differences(here, there))
        elif here != there:
            yield f"{name} is {there} there and {here} here"


def same_number(name: str, ours: Any, theirs: Any, options: Mapping[str, Any]) -> bool:
    """Whether two values of an option give the same numbers, beside these other options.

    A seed, and an option that counts by the text that it gives, is the same only where it is given alike.
    """
    if ours == theirs or name in NO_NUMBER:
        return True
    if name in BY_CONTENT | SEEDS:
        return False
    return identity({**options, name: ours}, {}) == identity({**options, name: theirs}, {})


def arm_hash(same: Mapping[str, Any], split_hashes: Mapping[str, str], tokenizer_hash: str) -> str:
    """Digest of an identity whose text is prepared: it counts by its streams of tokens and what they mean, however
    it was read and cut.
    """
    return digest({**same, "text": {"splits": dict(split_hashes), "tokenizer": tokenizer_hash}})


def by_recipe(options: Mapping[str, Any], corpus_hash: str, tokenizer_hash: str | None) -> dict[str, Any]:
    """A text before it is prepared: the corpora by content, and how they are cut and encoded.

    ``tokenizer_hash`` is of a given tokenizer; None where one is trained.
    """
    filled = _filled(options)
    names = (
        "document",
        "max_documents",
        "splits",
        "split_seed",
        "duplicates",
        "max_train_tokens",
        "max_eval_tokens",
    )
    trained = {"entries": filled["data.vocab_size"]}
    given = {"tokenizer": tokenizer_hash, "separator": filled["data.separator_token"]}
    return {
        "corpus": corpus_hash,
        **{name: _plain(filled[f"data.{name}"]) for name in names},
        **(trained if tokenizer_hash is None else given),
    }


def _filled(options: Mapping[str, Any]) -> Options:
    defaults = {
        f"{name}.{key}": value for name in ("model", "data") for key, value in defaults_of(name).items()
    }
    del defaults["data.context"]  # the model's
    filled = {
        **defaults,
        **{name: _plain(value) for name, value in options.items() if name != "data.context"},
    }
    for name, default in defaults.items():
        if isinstance(default, float) and isinstance(filled[name], int | str):
            filled[name] = float(filled[name])
    return filled


def _plain(value: Any) -> Any:
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value
