"""From a trained run to tables, files and TensorBoard; the report during training; generation by command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import lightning as L
import pytest
import torch
from pyarrow import parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ilr.analysis import Analysis, Extent, VisitReport, analyse, evaluate_schedules
from ilr.analysis.output import write_schedules
from ilr.cli import main as ilr
from ilr.commands import analyse as command
from ilr.commands import generate as generate_command
from ilr.errors import InputError
from ilr.generation.decode import Predictor
from ilr.model.plan import make_plan
from ilr.runs.trained_run import TrainedRun

VERSES = "".join(
    f"{n} green bottles hanging on the wall, and if {n} should fall — größer.\n" for n in range(400)
)
FEW = ("--lens", "false", "--attention_tokens", "0", "--jacobian_positions", "0")
PICTURES = {"change", "relative_update", "cosine", "cka", "lens_loss"}


def fit(directory: Path, corpus: Path, *options: str, code: int = 0) -> None:
    found = ilr(
        [
            "fit",
            *(
                "--run_dir",
                str(directory),
                "--data.corpus",
                str(corpus),
                "--data.cache_dir",
                str(corpus.parent),
            ),
            *(
                "--data.document",
                "line",
                "--data.vocab_size",
                "280",
                "--model.context",
                "24",
                "--model.width",
                "16",
            ),
            *(
                "--model.num_heads",
                "2",
                "--model.num_layers",
                "2",
                "--trainer.max_steps",
                "6",
                "--val_every",
                "2",
            ),
            *("--save_every", "2", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"),
            *options,
        ]
    )
    assert found == code


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("runs")
    corpus = root / "verses.txt"
    corpus.write_text(VERSES, encoding="utf-8")
    report = ("--trainer.callbacks+=ilr.analysis.VisitReport", "--trainer.callbacks.every", "2")
    few = ("--trainer.callbacks.tokens", "100", "--trainer.callbacks.attention_tokens", "0")
    fit(root / "looped", corpus, "--model.schedule", "[2,1]", *report, *few)
    fit(root / "plain", corpus, "--model.schedule", "[1,1]")
    return root / "looped", root / "plain"


def images_of(directory: Path) -> tuple[EventAccumulator, set[str]]:
    board = EventAccumulator(str(directory), size_guidance={"images": 0, "scalars": 0})
    board.Reload()
    return board, {tag.removeprefix("visits/") for tag in board.Tags()["images"]}


def test_the_report_draws_every_second_validation_into_the_runs_board(runs: tuple[Path, Path]) -> None:
    board, images = images_of(runs[0])
    assert images >= PICTURES
    assert [image.step for image in board.Images("visits/cosine")] == [2, 6]
    assert [point.step for point in board.Scalars("by_visit/relative_update/0.1")] == [2, 6]
    for step in (2, 6):
        folder = runs[0] / "analysis" / f"step-{step:08}"
        assert {path.stem for path in folder.glob("*.png")} == images
        assert Analysis.read(folder / "analysis.json").step == step
    points = [json.loads(line) for line in (runs[0] / "history.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points if "by_visit/lens_loss/1.0" in point] == [2, 6]


def test_training_with_a_report_equals_training_without(runs: tuple[Path, Path], tmp_path: Path) -> None:
    fit(tmp_path / "same", runs[0].parent / "verses.txt", "--model.schedule", "[2,1]")
    one, other = (TrainedRun.load(run, "last").decoder.state_dict() for run in (runs[0], tmp_path / "same"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_analysing_a_run_writes_table_figures_data_and_board(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(runs[0]), "--tokens", "300", "--jacobian_positions", "24"]) == 0
    printed = capsys.readouterr()
    assert "2-1: 300 tokens" in printed.out
    assert "layer 0: relative update" in printed.out
    assert "step 6, schedule 2-1" in printed.err
    directory = runs[0] / "analysis"
    result = Analysis.read(directory / "analysis.json")
    assert (result.visits, result.step, result.tokens) == (["0.0", "0.1", "1.0"], 6, 300)
    board, images = images_of(directory)
    assert images >= PICTURES
    assert {path.stem for path in directory.glob("*.png")} == images
    assert board.Scalars("by_visit/change/0.1")[0].value == pytest.approx(result.figures["change"][1])
    assert len(list(runs[0].glob("events.out.tfevents.*"))) == 1


def test_the_loss_over_all_tokens_is_the_validation_loss_of_training(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    run = TrainedRun.load(runs[0], "last")
    batches = run.data.evaluation_loaders("validation")[0]
    summary = json.loads((runs[0] / "summary.json").read_text())
    result = analyse(run.decoder, batches, Extent(10**9, True, 0, 0))
    assert result.loss == pytest.approx(summary["val_loss"], rel=1e-6)
    evaluated = evaluate_schedules(run.decoder, batches, [make_plan([1, 1])], 10**9)
    assert evaluated.rows[0].loss == pytest.approx(summary["val_loss"], rel=1e-6)
    assert evaluated.tokens == result.tokens == summary["scored_tokens"]
    write_schedules(evaluated, tmp_path)
    trained = parquet.read_table(
        tmp_path / "schedules.parquet", filters=[("schedule", "=", "2-1")]
    ).to_pydict()
    documents = parquet.read_table(
        runs[0] / "documents.parquet", filters=[("split", "=", "validation")]
    ).to_pydict()
    known = dict(zip(documents["document"], documents["nll"], strict=True))
    assert trained["nll"] == pytest.approx([known[document] for document in trained["document"]], rel=1e-5)


def test_a_grid_makes_a_table_maps_and_documents(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tokens", "200", *FEW, "--output", str(tmp_path)]
    assert command.main([str(runs[0]), "--grid", "1..3", "--budget", "1.2", *options]) == 0
    printed = capsys.readouterr().out
    assert "9 schedules of weights trained as 2-1, 200 tokens" in printed
    assert "best within 1.2× the trained cost" in printed
    for name in ("schedules_cost", "schedules_layers", "schedules_layers_0_1"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert len(json.loads((tmp_path / "schedules.json").read_text())["schedules"]) == 9


def test_two_checkpoints_stand_side_by_side(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*map(str, runs), "--tokens", "200", *FEW]) == 0
    printed = capsys.readouterr()
    assert "2-1: 200 tokens" in printed.out
    assert "1-1: 200 tokens" in printed.out
    assert "not comparable" not in printed.err
    directory = runs[0] / "analysis-against-plain"
    assert {path.name for path in directory.glob("*.json")} == {"analysis-0-2-1.json", "analysis-1-1-1.json"}
    assert images_of(directory)[1] >= PICTURES - {"lens_loss"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "no checkpoint file or run directory nowhere"),
        (["RUN", "--grid", "3"], "--grid must be FIRST..LAST"),
        (["RUN", "--grid", "1..2", "--schedules", "[[1,1]]"], "not both"),
        (["RUN", "RUN", "--grid", "1..2"], "take one checkpoint"),
        (["RUN", "--schedules", "[[1,1,1]]"], "one entry per layer"),
        (["RUN", "--output", "RUN"], "is a training run's directory"),
        (["RUN", "--schedules", "[]"], "schedule is empty"),
        (["RUN", "--schedules", "1,1"], "schedules"),
        (["RUN", "--grid", "1..2", "--budget", "0"], "--budget must be above 0, got 0"),
        (["RUN", "--tokens", "0"], "tokens must be a whole number of at least 1, got 0"),
        (["RUN", "--token", "10"], "--token"),
    ],
)
def test_wrong_use_of_analyse_ends_in_one_line(
    runs: tuple[Path, Path], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(runs[0]) if option == "RUN" else option for option in options]) == 2
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert message in lines[-1]
    assert lines[-1].startswith("ilr analyse: error: ")
    assert not printed.out, "found wrong only after the work"


def generated(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, str]:
    assert generate_command.main(list(options)) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_generation_streams_prompt_and_text_and_says_which_weights(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs[0])
    ask = (run, "--prompt", "12 green größer", "--max-new-tokens", "40", "--temperature", "0")
    text, said = generated(capsys, *ask)
    assert text.startswith("12 green größer")
    assert "step 6, schedule 2-1" in said
    assert text == generated(capsys, *ask, "--cache", "false")[0]
    other, said = generated(capsys, *ask, "--schedule", "[1,3]")
    assert "schedule 1-3 (trained under 2-1)" in said
    assert other.startswith("12 green größer")


def test_prompts_of_a_file_are_written_together_as_alone(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(
        "\ufeff1 green\r\n\n22 green\u2028bottles\x0c hanging on\nif\n", encoding="utf-8", newline=""
    )
    options = ("--num-samples", "2", "--max_new_tokens", "30", "--ignore_end")
    together, _ = generated(capsys, str(runs[0]), "--prompts_file", str(file), *options)
    assert together.count("=== prompt") == 6
    apart, _ = generated(capsys, str(runs[0]), "--prompts_file", str(file), *options, "--batch_size", "1")
    assert together == apart
    alone, _ = generated(capsys, str(runs[0]), "--prompt", "if", *options)
    assert alone.replace("prompt 1", "prompt 3") in together


def test_no_more_texts_are_written_together_than_the_batch_size_allows(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    next_logits = Predictor.next_logits

    def counted(predictor: Predictor, rows: list[list[int]]) -> torch.Tensor:
        together.append(len(rows))
        return next_logits(predictor, rows)

    monkeypatch.setattr(Predictor, "next_logits", counted)
    ask = (str(runs[0]), "--prompt", "1", "22 green", "if", "--num_samples", "5", "--max_new_tokens", "9")
    texts = {}
    for size in (1, 2, 4, 5, 7, 11, 99):
        together.clear()
        texts[size], _ = generated(capsys, *ask, "--batch_size", str(size))
        assert max(together) <= size
    assert max(together) == 15
    assert texts[1].count("=== prompt") == 15
    assert "=== prompt 3, sample 5" in texts[1]
    assert set(texts.values()) == {texts[1]}


def test_without_a_prompt_a_document_begins(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text, said = generated(capsys, str(runs[1]), "--max_new_tokens", "5", "--ignore_end")
    assert "5 tokens in" in said
    assert text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-p", "0"], "top_p must be above 0"),
        (["--schedule", "[1,2,3]"], "one entry per layer"),
        (["--prompts_file", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--prompt", "bad \udcff byte"], "--prompt must be UTF-8 text, got ['bad \\udcff byte']"),
        (["--schedule", "2,1"], "schedule"),
        (["--max-tokens", "3"], "--max-tokens"),
        (["--temperature", "warm"], "temperature"),
        (["--batch_size", "0"], "--batch_size must be a whole number of at least 1, got 0"),
        (["--compile", "--cache", "false"], "--compile is for the pass with the cache"),
        (["--num-samples", "0"], "--num_samples must be a whole number of at least 1, got 0"),
        (["--device", "warp"], "--device 'warp' cannot be used"),
    ],
)
def test_wrong_use_of_generate_ends_in_one_line(
    runs: tuple[Path, Path], options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_command.main([str(runs[0]), *options]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert message in lines[-1]
    assert lines[-1].startswith("ilr generate: error: ")


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from ilr.cli import main\ntry: main([sys.argv[1], '--help'])\nexcept SystemExit: pass\n"
    )
    code += "sys.exit(3 if 'torch' in sys.modules or 'matplotlib' in sys.modules else 0)"
    for word in ("generate", "analyse"):
        done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_without_matplotlib_both_say_what_to_install(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "figures need matplotlib, which is not installed: pip install 'ilr\\[demo]'"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=message):
        VisitReport()
    assert command.main([str(runs[0])]) == 2
    VisitReport(figures=False)


def test_a_command_that_is_interrupted_says_so_in_a_line(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ilr.analysis.measure.analyse", interrupted)
    assert ilr(["analyse", str(runs[0])]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "ilr analyse: interrupted"


def test_a_report_on_a_run_that_diverges_leaves_it_to_training_to_say_so(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    corpus = runs[0].parent / "verses.txt"
    report = ("--trainer.callbacks+=ilr.analysis.VisitReport", "--trainer.callbacks.figures", "false")
    with pytest.warns(UserWarning, match="no report of the visits at step 2: the states are not finite"):
        fit(
            tmp_path / "run",
            corpus,
            *("--model.schedule", "[2,1]", "--model.learning_rate", "1e38"),
            *report,
            code=3,
        )


def test_what_an_earlier_analysis_left_is_gone_and_other_files_stay(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = [str(runs[0]), "--tokens", "100", "--jacobian_positions", "0", "--output", str(tmp_path)]
    assert command.main([*ask, "--grid", "1..2"]) == 0
    (tmp_path / "mine.png").write_bytes(b"mine")
    assert {"schedules.json", "schedules_layers_0_1.png", "lens_loss.png"} <= set(os.listdir(tmp_path))
    assert command.main([*ask, "--lens", "false", "--attention_tokens", "0"]) == 0
    left = set(os.listdir(tmp_path))
    assert {path.stem for path in tmp_path.glob("*.png")} == images_of(tmp_path)[1] | {"mine"}
    assert {name for name in left if not name.endswith(".png")} == {
        "analysis.json",
        *(name for name in left if name.startswith("events.out")),
    }


def test_one_token_has_no_alikeness_of_states_and_the_file_is_json(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(runs[0]), "--tokens", "1", "--output", str(tmp_path)]) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads((tmp_path / "analysis.json").read_text(), parse_constant=refuse)
    assert Analysis.read(tmp_path / "analysis.json").cka == [[None] * 4] * 4


def test_a_report_counts_validations_over_a_resume() -> None:
    report = VisitReport(every=3)
    report.load_state_dict({"validations": 4})
    assert report.state_dict() == {"validations": 4}
    assert isinstance(report, L.Callback)
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        VisitReport(every=0)
