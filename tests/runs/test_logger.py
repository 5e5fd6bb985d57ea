"""history.jsonl is the record, and the one event file mirrors it, also after a resume."""

import json
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from ilr.runs.directory import RunDirectory, read_history
from ilr.runs.logger import FINAL_METRICS, RunLogger


def logger(path: Path, resume_step: int | None = None) -> RunLogger:
    made = RunLogger(RunDirectory(path), resume_step)
    made.start(tokens_per_step=100, flops_per_token=10**9)
    return made


def events(path: Path) -> EventAccumulator:
    return EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()


def test_a_resumed_run_is_one_line_without_a_step_twice(tmp_path: Path) -> None:
    first = logger(tmp_path)
    for step in range(1, 11):
        first.log_metrics({"train/loss": 10.0 - step}, step)
    first.log_metrics({"val/loss": 1.5}, 10)
    first.close()
    second = logger(tmp_path, resume_step=6)
    for step in range(7, 13):
        second.log_metrics({"train/loss": 10.0 - step}, step)
    second.close()
    assert [point["step"] for point in read_history(tmp_path / "history.jsonl")] == list(range(1, 13))
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1
    loss = events(tmp_path).Scalars("train/loss")
    assert [(point.step, point.value) for point in loss] == [(step, 10.0 - step) for step in range(1, 13)]
    assert "val/loss" not in events(tmp_path).Tags()["scalars"]


def test_a_new_run_forgets_what_an_unfinished_one_left(tmp_path: Path) -> None:
    for _ in range(2):
        made = logger(tmp_path)
        made.log_metrics({"train/loss": 1.0}, 1)
        made.close()
    assert len(read_history(tmp_path / "history.jsonl")) == 1


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    point = {"step": 1, "tokens": 8, "training_flops": 80}
    (tmp_path / "history.jsonl").write_text(json.dumps(point) + '\n{"step": 2, "tok')
    assert read_history(tmp_path / "history.jsonl") == [point]


def test_validation_stands_by_steps_by_tokens_and_by_gflops(tmp_path: Path) -> None:
    made = logger(tmp_path)
    made.log_metrics({"val/loss": 2.0, "val/perplexity": 7.5, "val/bits_per_byte": 1.25}, 30)
    made.close()
    seen = events(tmp_path)
    for name, value in (("loss", 2.0), ("perplexity", 7.5), ("bits_per_byte", 1.25)):
        assert [(p.step, p.value) for p in seen.Scalars(f"val/{name}")] == [(30, value)]
        assert [(p.step, p.value) for p in seen.Scalars(f"by_tokens/val_{name}")] == [(3000, value)]
        assert [(p.step, p.value) for p in seen.Scalars(f"by_flops/val_{name}")] == [(3000, value)]
    assert json.loads((tmp_path / "history.jsonl").read_text()) == {
        "step": 30, "tokens": 3000, "training_flops": 3000 * 10**9,
        "val/loss": 2.0, "val/perplexity": 7.5, "val/bits_per_byte": 1.25,
    }  # fmt: skip


def test_the_hyper_parameter_table_has_our_metrics_and_their_final_values(tmp_path: Path) -> None:
    made = logger(tmp_path)
    made.log_run({"schedule": "3-2-1-1", "sharing": "none", "seed": 1}, {"plan": "text"})
    made.log_final({name: float(number) for number, name in enumerate(FINAL_METRICS)})
    made.close()
    seen = events(tmp_path)
    experiment = seen.summary_metadata["_hparams_/experiment"].plugin_data.content
    declared = HParamsPluginData.FromString(experiment).experiment
    assert [info.name.tag for info in declared.metric_infos] == [f"final/{name}" for name in FINAL_METRICS]
    assert {info.name for info in declared.hparam_infos} == {"schedule", "sharing", "seed"}
    session = seen.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert (
        HParamsPluginData.FromString(session).session_start_info.hparams["schedule"].string_value == "3-2-1-1"
    )
    assert [seen.Scalars(f"final/{name}")[-1].value for name in FINAL_METRICS] == list(
        range(len(FINAL_METRICS))
    )
