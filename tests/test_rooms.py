import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ilr"
ROOMS = (
    "files",
    "model",
    "data",
    "training",
    "runs",
    "evaluation",
    "analysis",
    "generation",
    "bench",
    "comparison",
    "sweep",
    "commands",
)
"""In the order of dependencies: a room imports from those before it."""

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
IMPORT = re.compile(r"^\s*(?:from|import) ilr\.(\w+)", re.MULTILINE)


def test_every_folder_is_a_room() -> None:
    assert {path.parts[0] for path in FILES if len(path.parts) > 1} == set(ROOMS)


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py"], ids=str)
def test_a_file_imports_only_from_its_room_and_those_before(path: Path) -> None:
    imported = set(IMPORT.findall((PACKAGE / path).read_text())) & set(ROOMS)
    room = path.parts[0]
    # What stands beside the rooms is used by all of them and uses none.
    allowed = ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else ()
    assert imported <= set(allowed)


@pytest.mark.parametrize("room", ROOMS)
def test_the_docstring_of_a_room_names_each_of_its_files(room: str) -> None:
    documentation = (PACKAGE / room / "__init__.py").read_text().split('"""')[1]
    named = set(re.findall(r"`(\w+)`", documentation))
    assert {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"} <= named


def test_the_tree_of_the_readme_names_every_room_in_order_and_every_file_beside_them() -> None:
    tree = (ROOT / "README.md").read_text().split("## The tree")[1].split("```")[1]
    assert re.findall(r"^  (\w+)/", tree, re.MULTILINE) == list(ROOMS)
    beside = {path.name for path in FILES if len(path.parts) == 1} - {"__init__.py"}
    assert set(re.findall(r"\b(\w+\.py)\b", tree)) - {"train_lm.py"} == beside
