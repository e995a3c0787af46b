"""``paddle.linalg.lstsq``: Paddle's Python has drivers for its CPU and for CUDA, and refuses every other device. Those of the CPU are device mps's too."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType

from openmps.paddle.devices import DEVICE_TYPE


def install(paddle) -> None:
    """Gives the function a ``paddle`` of its own, whose current device is the CPU where it is mps."""
    shown = paddle.linalg.lstsq
    original = inspect.unwrap(shown)
    own = FunctionType(original.__code__, {**original.__globals__, "paddle": _OnCpu(paddle)}, original.__name__, original.__defaults__)
    lstsq = functools.wraps(shown)(own)
    for module in (paddle.linalg, paddle.tensor.linalg, paddle.tensor, paddle):
        if getattr(module, "lstsq", None) is shown:
            module.lstsq = lstsq
    if hasattr(paddle.Tensor, "lstsq"):
        paddle.Tensor.lstsq = lstsq


class _OnCpu:
    """The module, but for the name of the current device."""

    def __init__(self, paddle):
        self._paddle = paddle

    def __getattr__(self, name: str):
        return getattr(self._paddle, name)

    def get_device(self) -> str:
        device = self._paddle.get_device()
        return "cpu" if device.partition(":")[0] == DEVICE_TYPE else device
