"""`ilr compare` and `ilr board` as they are called."""

import itertools
import json
import re
import resource
import subprocess
import sys
import urllib.request
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from compare_cases import write_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_compare_arms import sweep

from ilr.commands import board
from ilr.commands.compare import main
from ilr.comparison.analysis import compare
from ilr.comparison.plots import draw, effect_intervals, pareto_front

PLOTS = ["effects", "perplexity_by_flops", "perplexity_by_parameters", "perplexity_by_tokens"]


def test_a_directory_of_runs_gets_a_table_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, ["1-1-1-1", "2-1-1-1"])
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Seed noise floor")
    assert "2-1-1-1" in printed
    output = tmp_path / "comparison"
    assert sorted(path.name for path in output.iterdir()) == sorted(
        ["comparison.csv", "comparison.md", *(f"{name}.png" for name in PLOTS)]
    )
    assert all(matplotlib.image.imread(output / f"{name}.png").shape[1] >= 900 for name in PLOTS)
    assert main([str(tmp_path)]) == 0, "what a comparison wrote is not taken for a run"


def test_options_reach_the_comparison(tmp_path: Path) -> None:
    sweep(tmp_path / "runs", ["1-1-1-1", "2-1-1-1"])
    options = [
        "--baseline",
        "2-1-1-1",
        "--split",
        "validation",
        "--delta",
        "1.0",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main([str(tmp_path / "runs"), *options]) == 0
    table = pd.read_csv(tmp_path / "out" / "comparison.csv").set_index("label")
    assert table.loc["2-1-1-1", "verdict"] == "baseline"
    assert table.loc["1-1-1-1", "verdict"] == "no difference"
    assert set(table["split"]) == {"validation"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: runs"),
        (["nowhere"], "nowhere is not a directory"),
        (["."], "no finished run found"),
        ([".", "--base", "1-1"], "unrecognized arguments: --base"),
        ([".", "--split", "train"], "Expected a"),
        ([".", "--delta", "0"], "--delta must be above 0"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ilr compare: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_missing_package_is_one_line_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("ilr.comparison.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert main([str(tmp_path)]) == 2
    assert 'is missing: pip install "ilr[compare]"' in capsys.readouterr().err


def test_a_summary_run_holds_figures_and_table_in_one_event_file(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1", "2-1-1-1"])
    for _ in range(2):
        assert main([str(tmp_path), "--tensorboard"]) == 0
    assert len(list((tmp_path / "comparison").glob("events.out.tfevents.*"))) == 1
    events = EventAccumulator(str(tmp_path / "comparison"))
    events.Reload()
    assert sorted(events.Tags()["images"]) == [f"comparison/{name}" for name in PLOTS]
    assert all(
        events.Images(tag)[0].encoded_image_string.startswith(b"\x89PNG") for tag in events.Tags()["images"]
    )
    text = events.Tensors("comparison/table")[0].tensor_proto.string_val[0].decode()
    assert "| 2-1-1-1 |" in text


@pytest.mark.parametrize("count", [1, 2, 7, 8, 60])
def test_a_legend_names_few_arms_and_counts_the_others(tmp_path: Path, count: int) -> None:
    labels = ["-".join(map(str, times)) for times in itertools.product((1, 2, 3), repeat=4)][:count]
    for i, label in enumerate(labels):
        write_run(tmp_path / label, label, nll=(3.0 + 0.01 * i, 4.0))
    figure = draw(compare([tmp_path]))["perplexity_by_tokens"]
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(figure.axes[0].lines) - (count > 7) == count
    assert named == (labels if count <= 7 else [*labels[:6], f"{count - 6} other arms"])


def test_an_effect_figure_for_a_card_leaves_out_the_middle_and_says_so(tmp_path: Path) -> None:
    comparison = compare([sweep(tmp_path, [f"{times}-1-1-1" for times in range(1, 10)], seeds=1)])
    axes = effect_intervals(comparison, most=4).axes[0]
    shown = [tick.get_text() for tick in axes.get_yticklabels()]
    assert shown == ["9-1-1-1", "8-1-1-1", "3-1-1-1", "2-1-1-1"]
    assert "4 arms left out" in axes.get_xlabel()


def test_the_pareto_front_is_what_nothing_beats_in_both() -> None:
    cost, score = np.array([1, 1, 2, 3, 3, 4.0]), np.array([5, 4, 6, 3, 2, 2.0])
    assert pareto_front(cost, score).tolist() == [1, 4]


def test_300_runs_of_1000_points_take_under_10_seconds_and_no_torch(tmp_path: Path) -> None:
    labels = ["-".join(map(str, times)) for times in itertools.product((1, 2, 3), repeat=5)][:100]
    generator = np.random.default_rng(0)
    history = None
    for label in labels:
        for seed in (1, 2, 3):
            nll = 3 + 0.1 * generator.normal(size=50)
            run = write_run(
                tmp_path / f"{label}-s{seed}", label, (seed, seed), nll, points=1000 if not history else 1
            )
            history = history or (run / "history.jsonl").read_text()
            (run / "history.jsonl").write_text(history)
    code = "; ".join(
        [
            "import sys",
            "from ilr.commands.compare import main",
            f"code = main([{str(tmp_path)!r}])",
            "loaded = {'torch', 'lightning', 'tensorboard'} & set(sys.modules)",
            "print(sorted(loaded), file=sys.stderr)",
            "sys.exit(code)",
        ]
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    assert result.stderr.strip() == "[]"
    assert len(pd.read_csv(tmp_path / "comparison" / "comparison.csv")) == 100
    # Processor time, which a busy machine does not change; one thread does nearly all of it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


def test_a_link_opens_the_curves_unsmoothed() -> None:
    expected = "http://localhost:6006/?smoothing=0&tagFilter=perplexity%7Ccomparison#timeseries"
    assert board.link("http://localhost:6006/") == expected
    assert board.link("http://localhost:6006", "hparams").endswith("#hparams")


def test_a_board_answers_on_this_machine_only(tmp_path: Path) -> None:
    sweep(tmp_path, ["1-1-1-1"])
    main([str(tmp_path), "--tensorboard"])
    code = f"from ilr.commands.board import main; main([{str(tmp_path)!r}, '--port', '0'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = re.search(r"http://localhost:\d+/", process.stdout.readline())
            assert url is not None
            with urllib.request.urlopen(f"{url.group()}data/environment") as answer:
                assert str(tmp_path) in json.load(answer)["data_location"]
        finally:
            process.terminate()


def test_a_board_on_nothing_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert board.main(["nowhere"]) == 2
    assert capsys.readouterr().err == "ilr board: error: nowhere is not a directory\n"
