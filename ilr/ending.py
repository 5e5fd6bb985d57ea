"""How a command ends, whatever user and machine do to it: one line and a status, never a traceback. No torch.

Status 2 and one line on standard error where a file or the output cannot be read or written, or memory ends.
Status 141 without a word where the reader of the output has gone, as `head` does: 128 + SIGPIPE, what the shell
says of a program that the signal ends. A training that ends so goes on with ``--resume auto``.
"""

import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import IO, ParamSpec

Arguments = ParamSpec("Arguments")

NO_READER = 141
"""Status where nobody reads the output any more."""


def in_one_line(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """A command's `main` whose failures at files, streams and memory are one line and a status."""

    @wraps(main)
    def ended(*arguments: Arguments.args, **named: Arguments.kwargs) -> int:
        _ready_streams()
        try:
            try:
                return main(*arguments, **named)
            finally:
                # Now: what fails while the interpreter shuts down is said in two lines of its own.
                sys.stdout.flush()
                if (failure := _failure_of_output()) is not None:
                    raise failure
        except BrokenPipeError as error:
            # A library that prints may have met it first, and put another stream in the place of the output.
            if not isinstance(_failure_of_output(), BrokenPipeError) and not _has_no_reader(sys.stdout):
                return _ends_with(_said(error))
            _drop(sys.stdout)
            return NO_READER
        except OSError as error:
            return _ends_with(_said(error))
        except UnicodeEncodeError as error:
            return _ends_with(f"a name or text cannot be written as {error.encoding}: {error.object!a}")
        except MemoryError as error:
            return _ends_with(
                f"memory does not suffice: {str(error) or 'smaller sizes or batches need less'}"
            )
        except Exception as error:
            if (message := _of_the_machine(error)) is None:
                raise
            return _ends_with(message)

    return ended


class _Output(io.TextIOWrapper):
    """Standard output that remembers how it failed, also where a library passes over that (the help of options)."""

    failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write, or remember why not."""
        try:
            return super().write(text)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        """Flush, or remember why not."""
        try:
            super().flush()
        except OSError as error:
            self.failure = error
            raise


def _ready_streams() -> None:
    """Streams that can be written: one that was closed before the start would let the next file take its place,
    and one of a narrow encoding would fail at the first name or sign that it lacks.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for the rest of the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _Output(
            sys.stdout.buffer,
            sys.stdout.encoding,
            "backslashreplace",
            line_buffering=sys.stdout.line_buffering,
        )


def _failure_of_output() -> OSError | None:
    return sys.stdout.failure if isinstance(sys.stdout, _Output) else None


def _said(error: OSError) -> str:
    reason = error.strerror or str(error)
    if _failure_of_output() is not None:
        return f"cannot write the standard output: {reason}"
    return (
        reason if error.filename is None else f"cannot read or write {os.fsdecode(error.filename)}: {reason}"
    )


def _of_the_machine(error: Exception) -> str | None:
    """The line for an error of a general type that a file name or the end of memory raises, else None."""
    text = " ".join(str(error).split())
    if "embedded null" in text:
        return "a file name holds a NUL character"
    if isinstance(error, UnicodeDecodeError):
        return f"a file that should be text is not UTF-8: {text}"
    if "(os error " in text:  # of libraries written in Rust
        return f"cannot read or write a file: {text}"
    if "can't allocate memory" in text or type(error).__name__ == "OutOfMemoryError":
        return f"memory does not suffice: {text}"
    return None


def _ends_with(message: str) -> int:
    """Status 2 after one line; nothing is written later to an output that cannot take it."""
    _drop(sys.stdout)
    with suppress(OSError):
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _has_no_reader(stream: IO[str]) -> bool:
    """Whether what is written there goes to a pipe or socket that nobody reads."""
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return False


def _drop(stream: IO[str]) -> None:
    """Where the stream cannot be flushed, let what it still holds go nowhere."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except ValueError:
        pass  # closed
    if isinstance(stream, _Output):
        stream.failure = None
