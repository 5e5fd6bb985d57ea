"""Names and patterns of corpora: what they find, and what cannot be a corpus."""

import os
import shlex
import socket
import sys
from pathlib import Path

import pytest
from data_cases import LINES, ready, text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ilr.data.files import matching_paths
from ilr.errors import InputError


def found(folder: Path, pattern: str) -> list[str]:
    """The matches as the pattern would be written, relative to the folder."""
    return [str(path.relative_to(folder)) for path in matching_paths(str(folder / pattern))]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Folders and files whose names look like patterns, beside those that such patterns match."""
    for name in (
        "br [v1]/a.txt",
        "br [v1]/b.txt",
        "br [v1]/sub [x]/c.txt",
        "br v/d.txt",
        "a/e.txt",
        "a/.hidden.txt",
        ".git/f.txt",
        "what?/g.txt",
        "whats/h.txt",
        "st*r/i.txt",
        "star/j.txt",
        "file[1].txt",
        "file1.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("br [v1]/*.txt", ["br [v1]/a.txt", "br [v1]/b.txt"]),
        ("br [v1]/sub [x]/*.txt", ["br [v1]/sub [x]/c.txt"]),
        ("*/sub [x]/*.txt", ["br [v1]/sub [x]/c.txt"]),
        ("br [v1]/**/*.txt", ["br [v1]/a.txt", "br [v1]/b.txt", "br [v1]/sub [x]/c.txt"]),
        ("br [v1]/[ab].txt", ["br [v1]/a.txt", "br [v1]/b.txt"]),
        ("br [[]v1]/*.txt", ["br [v1]/a.txt", "br [v1]/b.txt"]),
        ("br [uv]/*", ["br v/d.txt"]),
        ("what?/*.txt", ["what?/g.txt"]),
        ("wha[t]?/*.txt", ["what?/g.txt", "whats/h.txt"]),
        ("st*r/*.txt", ["st*r/i.txt"]),
        ("s?*r/*.txt", ["st*r/i.txt", "star/j.txt"]),
        ("file[1].txt", ["file[1].txt"]),
        ("file[0-9].txt", ["file1.txt"]),
        ("a/*", ["a/e.txt"]),
        ("a/.*", ["a/.hidden.txt"]),
        ("*", ["file1.txt", "file[1].txt"]),
        ("*/*/../b.txt", ["br [v1]/sub [x]/../b.txt"]),
        ("none/*.txt", []),
        ("a/e.txt/*", []),
        ("a/[", []),
    ],
)
def test_a_part_that_exists_as_written_stands_for_itself(
    tree: Path, pattern: str, expected: list[str]
) -> None:
    """Right numbers, point 22: brackets in a directory's name are no pattern."""
    assert sorted(found(tree, pattern)) == sorted(expected)


def test_patterns_are_relative_to_where_they_are_used(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right numbers, point 22."""
    monkeypatch.chdir(tree / "br [v1]")
    assert matching_paths("*.txt") == [Path("a.txt"), Path("b.txt")]
    assert matching_paths("./[b].txt") == [Path("b.txt")]
    assert matching_paths("../br [v1]/a.*") == [Path("../br [v1]/a.txt")]
    monkeypatch.setenv("HOME", str(tree))
    assert matching_paths("~/br [v1]/*.txt") == [tree / "br [v1]/a.txt", tree / "br [v1]/b.txt"]
    assert matching_paths("~nobody-of-this-name/x.txt") == []


@pytest.mark.parametrize("ending", [".txt", ".jsonl.gz", ".JSON", "", ".[v1]"])
@pytest.mark.parametrize("deeper", ["", "one/two"])
def test_the_pattern_recommended_for_a_directory_finds_its_files(
    tmp_path: Path, ending: str, deeper: str
) -> None:
    """Right numbers, point 22: what the program recommends works as it stands, in the shell's quotes."""
    folder = tmp_path / "it's [v1] of *"
    (folder / deeper).mkdir(parents=True)
    files = [folder / deeper / f"{name}{ending}" for name in ("1.2 a", "b")]
    for path in files:
        path.write_text("text")
    with pytest.raises(InputError, match="is a directory; give its files, for example ") as raised:
        matching_paths(str(folder))
    (pattern,) = shlex.split(str(raised.value).split("for example ")[1])
    assert matching_paths(pattern) == sorted(files)


def test_an_empty_directory_and_one_of_other_files_are_refused(tmp_path: Path) -> None:
    """Right numbers, point 22."""
    with pytest.raises(InputError, match="is a directory without files"):
        matching_paths(str(tmp_path))
    for name in ("a.pdf", "b.pdf", "c.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=r"for example .*/\*\.txt'?$"):
        matching_paths(str(tmp_path))


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """Right numbers, point 22: pipes, devices and sockets would be read for ever, or only once."""
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.txt"))
    for name, kind in (
        (tmp_path / "pipe.txt", "a pipe"),
        (tmp_path / "p*.txt", "a pipe"),
        (tmp_path / "s.txt", "a socket"),
        ("/dev/zero", "a device"),
        ("/dev/null", "a device"),
    ):
        with pytest.raises(InputError, match=f"is {kind}, and text is read more than once: save it"):
            matching_paths(str(name))


def test_links_that_lead_nowhere_or_in_a_circle_are_refused(tmp_path: Path) -> None:
    """Right numbers, point 22."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "lost.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"lost\.txt is a link to a file that is not there"):
        matching_paths(str(tmp_path / "*.txt"))
    (tmp_path / "lost.txt").unlink()
    (tmp_path / "round.txt").symlink_to(tmp_path / "round.txt")
    for pattern in ("round.txt", "r*.txt"):
        with pytest.raises(InputError, match=r"cannot look for .*: Too many levels of symbolic links"):
            matching_paths(str(tmp_path / pattern))
    (tmp_path / "round.txt").unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.txt").write_text("b")
    (tmp_path / "folder" / "up").symlink_to(tmp_path)
    assert found(tmp_path, "**/*.txt") == ["a.txt", "folder/b.txt"]


@pytest.mark.parametrize(
    "name", ["a" * 300, "a" * 300 + "*", "b/" * 3000 + "*.txt", "nul\0.txt", "nul\0*.txt", "*" * 200]
)
def test_impossible_names_are_one_line_or_nothing(tmp_path: Path, name: str) -> None:
    """Right numbers, point 22."""
    try:
        assert matching_paths(str(tmp_path / name)) == []
    except InputError as error:
        message = str(error)
        assert len(message.splitlines()) == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="names there are always UTF-8")
def test_names_that_are_no_utf8_are_read_by_a_pattern_and_refused_by_name(tmp_path: Path) -> None:
    """Right numbers, point 22: no record of a run could hold such a name; the advice works."""
    name = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(name)).write_text("".join(LINES))
    with pytest.raises(
        InputError, match=r"caf\\xe9\.txt: the name is not UTF-8.*by a pattern, with \?"
    ) as raised:
        matching_paths(os.fsdecode(name))
    assert str(raised.value).encode()
    data = ready(tmp_path / "caf?.txt", tmp_path / "cache")
    assert sorted(text(data)) == sorted(LINES)
    Path(os.fsdecode(name)).write_bytes(b"\xff\n")
    with pytest.raises(InputError, match=r"caf\\xe9\.txt is not UTF-8") as raised:
        ready(tmp_path / "caf?.txt", tmp_path / "cache")
    assert str(raised.value).encode()
    with pytest.raises(InputError, match="not UTF-8"):
        matching_paths("\ud800")


def test_one_file_under_two_names_is_refused(corpus: Path, tmp_path: Path) -> None:
    """Right numbers, points 9 and 22: a link makes no second text."""
    (tmp_path / "link.txt").symlink_to(corpus)
    with pytest.raises(InputError, match="names the same text twice"):
        ready([str(corpus), str(tmp_path / "link.txt")], tmp_path / "cache")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("ab.*?[]!-/~ {}'\\$\0é\udce9"), max_size=12))
def test_any_name_finds_files_or_is_one_line(tree: Path, name: str) -> None:
    """Right numbers, point 22: as a property; a name that exists finds itself."""
    try:
        matches = matching_paths(str(tree / "br [v1]") + "/" + name)
    except InputError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert all(path.is_file() for path in matches)
