"""Triton's backend ``mps``: kernels of ``@triton.jit`` on openmps's devices.

Triton finds it by the entry point ``triton.backends``. Kernels take Paddle tensors of device ``mps``, PyTorch tensors of the CPU, NumPy
arrays through :func:`array`, and anything else with ``data_ptr()`` and ``dtype``; nothing is copied.
"""

from __future__ import annotations

from openmps.triton.arrays import Array, array
from openmps.triton.sanitizer import reachable, sanitize

__all__ = ["Array", "activate", "array", "install", "reachable", "sanitize"]


def activate() -> None:
    """Makes this backend the active one, where another (CUDA's, say) is active by itself."""
    import triton

    from openmps.triton.driver import MPSDriver

    triton.runtime.driver.set_active(MPSDriver())


def install(triton) -> None:
    """Adds ``triton.runtime.driver.MPSDriver``; called when ``import triton`` has ended."""
    from openmps.triton.driver import MPSDriver

    triton.runtime.driver.MPSDriver = MPSDriver
