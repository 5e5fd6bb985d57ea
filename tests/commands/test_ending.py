"""How commands end where machine and user are against them: a line and a status, no traceback, nothing half-made."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilr.ending import NO_READER, in_one_line
from ilr.errors import InputError
from ilr.files.places import naming, output_directory
from ilr.runs.directory import atomic_write

PLACES = {
    errno.ENOSPC: "No space left on device",
    errno.EROFS: "Read-only file system",
    errno.EACCES: "Permission denied",
    errno.EPERM: "Operation not permitted",
    errno.ENOTDIR: "Not a directory",
    errno.EISDIR: "Is a directory",
    errno.ENAMETOOLONG: "File name too long",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EMFILE: "Too many open files",
    errno.ELOOP: "Too many levels of symbolic links",
    errno.EIO: "Input/output error",
    errno.EFBIG: "File too large",
}


def ended(raised: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and standard error of a command in which this is raised."""

    @in_one_line
    def main(argv: list[str]) -> int:
        raise raised

    status = main([])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("number", PLACES, ids=errno.errorcode.get)
def test_a_place_that_cannot_be_used_is_said_in_one_line(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input, point 22: path and reason, status 2."""
    status, said = ended(OSError(number, os.strerror(number), "/some/where"), capsys)
    assert (status, said) == (2, f"error: cannot read or write /some/where: {PLACES[number]}\n")


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (MemoryError(), "memory does not suffice"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            "9 bytes",
        ),
        (ValueError("embedded null byte"), "a file name holds a NUL"),
        (Exception("No space left on device (os error 28)"), "No space left on device"),
        (UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"), r"as utf-8: 'a\udcff'"),
        (OSError(errno.ENOENT, "No such file or directory", "a\udcff"), r"a\udcff: No such file"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_machine_refuses_is_said_in_one_line(
    raised: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input, points 21 and 22: memory, names, libraries that raise what they like."""
    status, said = ended(raised, capsys)
    assert status == 2
    assert said.count("\n") == 1
    assert words in said


@pytest.mark.parametrize(
    "raised", [ValueError("a slip"), RuntimeError("a slip"), InputError("x"), KeyError("x")]
)
def test_other_errors_are_not_hidden(raised: Exception) -> None:
    """Bad input, point 22: what only a mistake in the program raises keeps its traceback."""

    @in_one_line
    def main(argv: list[str]) -> int:
        raise raised

    with pytest.raises(type(raised)):
        main([])


def run(words: list[str], **streams: Any) -> subprocess.CompletedProcess[str]:
    """`ilr` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ilr.cli", *words], check=False, text=True, timeout=120, **streams
    )


def test_a_full_output_is_one_line_and_status_2() -> None:
    """Bad input, point 22: results to /dev/full, short and long, and the help that a library prints."""
    for words in (["plan", "[3,2,1,1]"], ["plan", "[9000,1,1,1]"], ["plan", "--help"]):
        with open("/dev/full", "w") as full:
            done = run(words, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 2, words
        assert done.stderr == "error: cannot write the standard output: No space left on device\n"


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    """Bad input, point 22: `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(["plan", "[9000,1,1,1]"], stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (NO_READER, "")


def test_streams_that_are_closed_or_full_or_narrow_raise_nothing(tmp_path: Path) -> None:
    """Bad input, point 22: no standard output, errors to /dev/full, names beyond the terminal's encoding."""
    shell = f"{sys.executable} -m ilr.cli plan"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words, status in (
        ("'[3,1]' >&-", 0),
        ("'[3,1' 2>/dev/full", 2),
        ("--config Δ.yaml", 2),
        ("--config $'\\xff.yaml'", 2),
        ("'[3,1]' --sharing $'\\xff'", 2),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {words}"], cwd=tmp_path, env=ascii_only, capture_output=True, check=False
        )
        assert done.returncode == status, words
        assert b"Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == (status == 2 and b"full" not in words.encode()), words


def test_a_file_that_cannot_be_written_whole_is_not_there_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input, point 22: the disk fills up at the last moment; the earlier file stays."""
    path = tmp_path / "summary.json"
    path.write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*summary\.json'"),
        atomic_write(path) as file,
    ):
        file.write("after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_names_can_be_written(tmp_path: Path) -> None:
    """Bad input, point 22: a name as long as the system takes leaves room for the temporary one."""
    path = tmp_path / ("x" * 255)
    with atomic_write(path) as file:
        file.write("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def at_a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


@pytest.mark.parametrize(
    "place",
    [
        at_a_file,
        lambda folder: at_a_file(folder) / "below",
        lambda folder: folder / "new" / ("x" * 300),
        lambda folder: Path("/proc/new/below"),
        lambda folder: Path("/sys/new"),
        lambda folder: Path("/dev/null"),
        lambda folder: folder / "nul\0",
    ],
    ids=["file", "below file", "long", "proc", "sys", "device", "nul"],
)
def test_a_place_for_results_that_cannot_be_made_is_refused_with_its_option(
    place: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Bad input, point 22: and no folder on the way stays."""
    directory = place(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="--output"), output_directory(directory, "--output"):
        pytest.fail("nothing may be done in there")
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_made_for_results_that_do_not_come_is_removed(tmp_path: Path) -> None:
    """Bad input, point 22: nothing half-made, and nothing of others is taken away."""
    new = tmp_path / "new" / "results"

    def half_of_it() -> None:
        (new / "half").touch()
        raise InputError("no")

    with pytest.raises(InputError, match="no"), output_directory(new, "--output"):
        half_of_it()
    assert list(tmp_path.iterdir()) == []
    (new.parent).mkdir()
    with pytest.raises(InputError, match="no"), output_directory(new, "--output"):
        raise InputError("no")
    assert list(tmp_path.iterdir()) == [new.parent]
    with output_directory(new, "--output"):
        (new / "result").touch()
    with pytest.raises(InputError, match="no"), output_directory(new, "--output"):
        raise InputError("no")
    assert [path.name for path in new.iterdir()] == ["result"]


def test_a_name_that_an_error_has_is_kept(tmp_path: Path) -> None:
    """Bad input, point 22: the inner file is the one that cannot be read."""
    with pytest.raises(FileNotFoundError) as caught, naming(tmp_path / "outer"):
        (tmp_path / "inner").read_text()
    assert caught.value.filename == str(tmp_path / "inner")


def test_a_reader_that_has_gone_is_known_though_rich_has_replaced_the_output() -> None:
    """Bad input, point 22: `ilr compare | head` ended with status 2: rich puts /dev/null in place."""
    program = (
        "from ilr.ending import in_one_line\n"
        "@in_one_line\n"
        "def main():\n"
        "    from rich.console import Console\n"
        "    console = Console(width=80)\n"
        "    for number in range(20000): console.print('a line of a table')\n"
        "    return 0\n"
        "raise SystemExit(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(), said) == (NO_READER, b"")
