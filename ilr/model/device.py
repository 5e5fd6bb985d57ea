"""A device by its name, tried before anything is made for it."""

import torch

from ilr.errors import InputError


def usable_device(name: str) -> torch.device:
    """The device called so; raises `InputError` where no number can be kept there and read back.

    Torch knows names of devices that are not there, and ``meta``, which keeps no numbers.
    """
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises any of them
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise InputError(f"--device {name!r} cannot be used: {reason}") from None
    return device
