"""Values of options in one form: equal where they give the same numbers. No torch."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ilr.model.config import DecoderConfig
from ilr.model.plan import Plan
from ilr.runs.options import Options

ONLY_LOOKS = {
    *("LearningRateMonitor", "DeviceStatsMonitor", "ThroughputMonitor", "ModelSummary", "RichModelSummary"),
    *("ProgressBar", "TQDMProgressBar", "RichProgressBar", "ModelCheckpoint", "OnExceptionCheckpoint"),
    *("ilr.analysis.VisitReport", "ilr.analysis.callback.VisitReport"),
    *("AsyncCheckpointIO", "TorchCheckpointIO", "XLACheckpointIO"),
    *("LightningEnvironment", "SLURMEnvironment", "TorchElasticEnvironment", "MPIEnvironment"),
}
"""Callbacks and plugins that change no number; those of Lightning by their bare names."""

_OF_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.", "lightning.fabric.")
_PRECISIONS: dict[Any, str] = {
    **dict.fromkeys((None, 32, "32", "32-true"), "32-true"),
    **dict.fromkeys((16, "16", "16-mixed"), "16-mixed"),
    **dict.fromkeys((64, "64", "64-true"), "64-true"),
    "bf16": "bf16-mixed",
}


def sizes_of(config: DecoderConfig, plan: Plan) -> Options:
    """The decoder's fields with every null filled in, without those that the operands say or that decide nothing."""
    floats = {one.name for one in fields(config) if isinstance(one.default, float)}
    sizes = {
        name: float(value) if name in floats else value
        for name, value in vars(config).items()
        if name not in ("vocab_size", "num_layers")
    }
    sizes |= {
        "num_kv_heads": config.sizes.kv_heads,
        "ffn_width": config.sizes.ffn,
        "embedding_width": config.sizes.embedding,
    }
    if config.residual_init == "layers":
        sizes["num_layers"] = config.num_layers
    if config.positions != "rope":
        del sizes["rope_theta"]
    del sizes["injection"]
    same = {f"model.{name}": value for name, value in sizes.items()}
    if config.injection != "none" and plan.injections:
        same["injections"] = [config.injection, [list(pair) for pair in plan.injections]]
    return same


def optimisation_of(options: Options, plan: Plan) -> Options:
    """What the optimiser and its learning rate depend on."""
    names = ["learning_rate", "lr_schedule", "betas", "adam_eps", "weight_decay"]
    if options["model.lr_schedule"] == "cosine":
        names += ["min_lr_ratio", "extra_steps"]
    if options["model.weight_decay"]:
        names.append("decay_norms")
    same = {f"model.{name}": options[f"model.{name}"] for name in names}
    same |= _warmup_of(options)
    same["model.betas"] = [float(beta) for beta in same["model.betas"]]
    repeated = options["model.repeated_weight_decay"]
    if repeated is not None and float(repeated) != options["model.weight_decay"] and _repeats(plan):
        same["model.repeated_weight_decay"] = float(repeated)
    return same


def _warmup_of(options: Options) -> Options:
    """The warm-up in steps, or as a share where the number of steps depends on the text."""
    steps, ratio = options["model.warmup_steps"], options["model.warmup_ratio"]
    length, epochs = _length_of(options)
    if steps is None and (length is None or epochs is not None):
        return {"model.warmup_ratio": ratio}
    warmup = int(steps) if steps is not None else round(ratio * length)
    # A first step at the whole rate is none, where nothing else depends on its length.
    flat = warmup == 1 and options["model.lr_schedule"] == "constant"
    return {"model.warmup_steps": 0 if flat else warmup}


def _length_of(options: Options) -> tuple[int | None, int | None]:
    """Limits of steps and of epochs, None where there is none."""
    steps = options.get("trainer.max_steps")
    length = None if steps is None or int(steps) < 0 else int(steps)
    # Null is Lightning's: no limit beside one of steps, else 1,000.
    epochs = options.get("trainer.max_epochs", 1)
    if epochs is None:
        epochs = -1 if length is not None else 1000
    return length, epochs if epochs >= 0 else None


def _repeats(plan: Plan) -> bool:
    """Whether some matrix runs more than once."""
    for banks in zip(*((visit.attention, visit.ffn) for visit in plan.visits), strict=True):
        used = [bank for bank in banks if bank is not None]
        if len(set(used)) < len(used):
            return True
    return False


def training_of(options: Options) -> Options:
    """Batches, length, stops, and what acts on them; what is absent does nothing."""

    def given(name: str, default: Any = None) -> Any:
        value = options.get(f"trainer.{name}")
        return default if value is None else value

    steps, epochs = _length_of(options)
    precision = _PRECISIONS.get(given("precision"), given("precision"))
    val_every = options.get("val_every", 200)
    same: Options = {
        "data.batch_size": options["data.batch_size"],
        "trainer.max_steps": steps,
        "trainer.max_epochs": epochs,
        "trainer.accumulate_grad_batches": given("accumulate_grad_batches", 1),
        "trainer.gradient_clip_val": float(options.get("trainer.gradient_clip_val", 1.0) or 0) or None,
        "trainer.precision": precision,
        "val_every": min(val_every, steps) if steps else val_every,  # the last step is validated anyway
        "trainer.overfit_batches": given("overfit_batches", 0.0) or None,
        "trainer.callbacks": _acting(given("callbacks")),
        "trainer.plugins": _acting(given("plugins")),
        "trainer.max_time": given("max_time"),
    }
    for split in ("train", "val", "test"):
        limit = given(f"limit_{split}_batches")
        # The whole number 1 is one batch, 1.0 is all of them.
        same[f"trainer.limit_{split}_batches"] = None if isinstance(limit, float) and limit == 1 else limit
    if options["model.val_precision"] not in ("same", precision):
        same["model.val_precision"] = options["model.val_precision"]
    if same["trainer.callbacks"] or same["trainer.max_time"]:  # else nothing stops before its end
        same |= {f"trainer.{name}": given(name) for name in ("min_steps", "min_epochs")}
    return {name: value for name, value in same.items() if value is not None}


def _acting(value: Any) -> list[Any] | None:
    """The callbacks or plugins that may change a number: class and options each; None where there are none."""
    found = []
    for one in [] if value is None else value if isinstance(value, list) else [value]:
        described = dict(one) if isinstance(one, Mapping) else {"class_path": one}
        path = str(described.get("class_path"))
        if path.startswith(_OF_LIGHTNING):
            path = path.rsplit(".", 1)[-1]
        if path not in ONLY_LOOKS and not (
            path == "Timer" and not described.get("init_args", {}).get("duration")
        ):
            found.append({**described, "class_path": path})
    return found or None


def processes_of(options: Options) -> int:
    """That train together, as far as the options say; one where the machine decides."""
    devices = options.get("trainer.devices")
    if isinstance(devices, list):
        number = len(devices)
    else:
        number = int(str(devices)) if str(devices).isdecimal() and int(str(devices)) > 0 else 1
    return number * int(options.get("trainer.num_nodes") or 1)
