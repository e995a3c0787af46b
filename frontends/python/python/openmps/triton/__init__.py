"""Triton's backend ``mps``: kernels of ``@triton.jit`` on openmps's devices.

Triton finds it by the entry point ``triton.backends``. Kernels take Paddle tensors of device ``mps``, PyTorch tensors of the CPU, NumPy
arrays through :func:`array`, and anything else with ``data_ptr()`` and ``dtype``; nothing is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openmps.triton.arrays import Array, array

if TYPE_CHECKING:
    from openmps.triton.sanitizer import reachable, sanitize

__all__ = ["Array", "activate", "array", "install", "reachable", "sanitize", "use_in_torch_compile"]


def __getattr__(name: str):
    # Later, since it needs the native module: what Triton's import meets first must not fail.
    if name in ("reachable", "sanitize"):
        from openmps.triton import sanitizer

        return getattr(sanitizer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def activate() -> None:
    """Makes this backend the active one, where another (CUDA's, say) is active by itself."""
    import triton

    from openmps.triton.driver import MPSDriver

    triton.runtime.driver.set_active(MPSDriver())


def use_in_torch_compile() -> None:
    """Makes ``torch.compile`` write its kernels for tensors of the CPU in Triton's language, which this backend runs, instead of C++."""
    from openmps.triton import inductor

    inductor.install()


def install(triton) -> None:
    """Adds ``triton.runtime.driver.MPSDriver``; called when ``import triton`` has ended."""
    from openmps.triton import refused
    from openmps.triton.driver import MPSDriver

    triton.runtime.driver.MPSDriver = MPSDriver
    refused.install(triton.testing)
    if MPSDriver.is_asked_for():
        # Triton itself refuses to choose between two.
        activate()
