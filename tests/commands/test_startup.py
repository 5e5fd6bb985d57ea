"""What makes the start quick changes nothing else."""

import gc

import pytest

from ilr.commands.train import main
from ilr.startup import uncollected


def test_garbage_is_collected_again_after_imports_that_fail() -> None:
    with pytest.raises(ModuleNotFoundError), uncollected():
        import no_such_module  # noqa: F401
    assert gc.isenabled()
    gc.unfreeze()


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_without_a_command_all_three_are_offered(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(words)
    said = capsys.readouterr().out
    assert all(f"    {command} " in said for command in ("fit", "validate", "test"))


def test_a_misspelt_command_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["fitt"])
    said = capsys.readouterr().err
    assert all(word in said for word in ("fitt", "'fit'", "'validate'", "'test'")), said
