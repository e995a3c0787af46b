"""What openmps adds to PaddlePaddle in Python.

:func:`install` runs once, when ``import paddle`` has ended. The device itself, its memory and its kernels are the plug-in's and need
none of this.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["install"]


def install(paddle) -> None:
    """Gives the module ``paddle`` the attributes of device ``mps``; a second call changes nothing."""
    if getattr(paddle, "mps", None) is not None:
        return
    from openmps.paddle import (
        algebra,
        amp,
        averages,
        complex,
        creation,
        devices,
        embedding,
        exchange,
        experts,
        fallbacks,
        inference,
        levels,
        linear,
        moving,
        mps,
        random,
        reading,
        sparse,
        static,
        unavailable,
    )

    paddle.mps = mps
    sys.modules["paddle.mps"] = mps
    paddle.is_compiled_with_mps = mps.is_compiled_with_mps
    paddle.MPSPlace = mps.MPSPlace
    paddle.device.is_compiled_with_mps = mps.is_compiled_with_mps
    creation.install(paddle)
    if mps.is_available():
        algebra.install(paddle)
        amp.install(paddle)
        averages.install(paddle)
        complex.install(paddle)
        devices.install(paddle)
        embedding.install(paddle)
        exchange.install(paddle)
        experts.install(paddle)
        fallbacks.install()
        levels.install(paddle)
        linear.install(paddle)
        moving.install(paddle)
        random.install(paddle)
        reading.install(paddle)
        sparse.install(paddle)
        static.install(paddle)
    else:
        unavailable.install(paddle)
    inference.install(paddle, has_device=mps.is_available())


# Whoever begins here gets Paddle first: its import ends with `install`, which must not meet the modules beside this one half imported.
importlib.import_module("paddle")
