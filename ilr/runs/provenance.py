"""Where a number comes from: command, code, versions and machine of a run."""

import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import ilr

PACKAGES = ("torch", "lightning", "jsonargparse", "datasets", "tokenizers", "torchmetrics", "tensorboard")


def command_line() -> str:
    """The command that started this process, as one could type it."""
    return shlex.join([Path(sys.argv[0]).name if sys.argv[0].endswith("ilr") else sys.argv[0], *sys.argv[1:]])


def git_state() -> dict[str, Any]:
    """Commit of the code that runs and whether it was changed since; nulls outside a repository."""
    folder = Path(ilr.__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # Only a repository that holds this package speaks for it.
    if git("ls-files", "--error-unmatch", "__init__.py") is None:
        return {"git_commit": None, "git_dirty": None}
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": bool(git("status", "--porcelain", "--", "..")),
    }


def versions() -> dict[str, str]:
    """Python, this package and the packages that results depend on."""
    return {
        "python": platform.python_version(),
        "ilr": ilr.__version__,
        **{name: version(name) for name in PACKAGES},
    }


def machine(device: torch.device) -> dict[str, Any]:
    """Device type and model, and the threads that torch uses."""
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_model()
    return {"device": device.type, "device_model": model, "threads": torch.get_num_threads()}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
