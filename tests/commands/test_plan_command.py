"""`ilr plan`: what it prints, without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ilr import DecoderConfig, cost, make_plan
from ilr.cli import main

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_paper_s_small_model_has_the_paper_s_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[4,2,1,1]", "--config", str(CONFIGS / "paper-small.yaml"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["label"] == "4-2-1-1"
    assert printed["cost"]["parameters"] == printed["all_ones"]["parameters"] == 1_180_800
    assert (printed["cost"]["macs_per_token"], printed["all_ones"]["macs_per_token"]) == (
        4_325_376,
        2_228_224,
    )
    assert [visit["layer"] for visit in printed["visits"]] == [0, 0, 0, 0, 1, 1, 2, 3]


def test_the_paper_s_large_model_has_the_paper_s_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(CONFIGS / "paper-large.yaml"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cost"]["parameters"] == 100_086_528
    assert (printed["cost"]["macs_per_token"], printed["all_ones"]["macs_per_token"]) == (
        123_666_432,
        112_656_384,
    )


def test_options_win_over_files_and_later_files_over_earlier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(
        "model: {schedule: [2, 1], num_layers: 2, width: 64}\ndata: {vocab_size: 100}"
    )
    (tmp_path / "b.yaml").write_text("model: {width: 32}")
    files = ["--config", str(tmp_path / "a.yaml"), "--config", str(tmp_path / "b.yaml")]
    assert (
        main(["plan", *files, "--model.num_heads", "2", "--context", "7", "--sharing", "all", "--json"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    config = DecoderConfig(vocab_size=100, width=32, num_layers=2, num_heads=2)
    assert printed["cost"] == cost(config, make_plan([2, 1], 2, "all"), 7).as_dict()
    assert printed["all_ones"] == cost(config, make_plan([1, 1]), 7).as_dict()


def test_parameters_saved_are_not_compute_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[1,1,1,1]", "--sharing", "all"]) == 0
    out = capsys.readouterr().out
    assert "Compute: 1.000 of the unrepeated stack's" in out
    assert "Sharing saves parameters and no compute" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["[0,1]"], "got 0 in [0, 1]"),
        (["3,2"], "such as [3,2,1,1]"),
        ([], "no schedule given"),
        (["[1,1]", "--sharing", "some"], "none, attention, ffn, all"),
        (["[1,1]", "--config", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["[1,1]", "--js"], "--js"),
        (["[1,1]", "--context", "0"], "context must be a whole number of at least 1"),
        (["[1,1"], "the schedule is not YAML"),
    ],
)
def test_wrong_use_gets_one_message(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["plan", *arguments])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert named in error
    assert len(error.splitlines()) == 1


def test_an_unknown_command_is_named_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "no command 'trian'; the commands are fit, validate" in capsys.readouterr().err


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys; from ilr.cli import main; main(['plan', '[3,2,1,1]']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'lightning', 'datasets')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
