"""Peak memory of this process: resident memory on the processor, allocated tensors on a GPU."""

import resource
import sys
from pathlib import Path
from typing import Literal

import torch

MemoryKind = Literal["resident growth", "allocated"]
"""Growth of the process's peak resident memory over what it held before the model was built; or the largest
sum of tensors on the device."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Bytes at the peak since the last `reset`, over those held when this object was made."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before = 0 if self.on_gpu else _resident()

    @property
    def on_gpu(self) -> bool:
        """Whether the device counts its own memory."""
        return self.device.type == "cuda"

    @property
    def kind(self) -> MemoryKind:
        """What is counted."""
        return "allocated" if self.on_gpu else "resident growth"

    def reset(self) -> None:
        """Begin anew from what is held now. Without /proc the peak stays that of the whole process."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        elif _CLEAR.exists():
            _CLEAR.write_text("5", encoding="ascii")

    def bytes(self) -> int:
        """The peak so far."""
        if self.on_gpu:
            return torch.cuda.max_memory_allocated(self.device)
        return max(0, _largest() - self.before)


def _resident() -> int:
    return _status("VmRSS") if _STATUS.exists() else _process_peak()


def _largest() -> int:
    return _status("VmHWM") if _STATUS.exists() else _process_peak()


def _status(name: str) -> int:
    """Bytes of an entry of /proc/self/status, which counts KiB."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _process_peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
