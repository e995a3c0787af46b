"""Where device mps is not available, the functions of Paddle that take a device's name say why."""

from __future__ import annotations

import functools
import sys

from openmps.paddle.devices import DEVICE_TYPE, unavailable_reason

# Functions of Paddle through which every name of a device goes.
_READERS = ("_convert_to_place", "_get_paddle_place")


def install(paddle) -> None:
    """Wraps them wherever Paddle has bound them."""
    for name in _READERS:
        original = getattr(paddle.device, name, None) or getattr(paddle.framework, name, None)
        if original is None:
            continue
        wrapped = _with_reason(original)
        original.__globals__[name] = wrapped  # paddle.device hands out copies of its functions' names
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").split(".")[0] == "paddle" and module.__dict__.get(name) is original:
                setattr(module, name, wrapped)


def _with_reason(function):
    @functools.wraps(function)
    def wrapper(place, *args, **kwargs):
        if isinstance(place, str) and place.partition(":")[0] == DEVICE_TYPE:
            raise ValueError(f"device {place} is not available: {unavailable_reason()}")
        return function(place, *args, **kwargs)

    return wrapper
