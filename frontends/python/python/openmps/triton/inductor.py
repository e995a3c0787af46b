"""``torch.compile`` for tensors of the CPU through this backend: PyTorch's compiler writes kernels in Triton's language where it finds a backend."""

from __future__ import annotations

import contextlib

from openmps.triton.backend import MPSBackend
from openmps.triton.launch import MPSDriver

#: PyTorch's name of the backend and of its target.
_NAME = "cpu"


class CPUDriver(MPSDriver):
    """This backend's driver under the name by which PyTorch asks for one. Triton by itself takes the other one."""

    @classmethod
    def is_active(cls) -> bool:
        return False


class CPUBackend(MPSBackend):
    """This backend for PyTorch's target."""

    @staticmethod
    def supports_target(target) -> bool:
        return target.backend == _NAME


def install() -> None:
    """Makes this backend the one for the CPU, unless there is one, and PyTorch's compiler ask for it."""
    import torch._inductor.config as config  # pyright: ignore[reportMissingImports]  (whoever compiles has it)
    from triton.backends import Backend, backends

    found = backends.setdefault(_NAME, Backend(CPUBackend, CPUDriver))
    if found.driver is not CPUDriver:
        raise RuntimeError(f"openmps: Triton's backend {_NAME!r} is {found.compiler.__module__} here, which torch.compile takes already")
    config.cpu_backend = "triton"
    _let_kernels_be_measured()
    # Its own processes for compiling would not know of this; to compile a kernel takes no longer than to ask one of them.
    config.compile_threads = 1


def _let_kernels_be_measured() -> None:
    """For ``mode="max-autotune"`` PyTorch makes a kernel's device the current one, which its interface of the CPU cannot do."""
    try:
        from torch._dynamo.device_interface import CpuInterface, DeviceInterface  # pyright: ignore[reportMissingImports]
    except ImportError:
        return  # an earlier PyTorch, which has no such interface
    if CpuInterface.device is DeviceInterface.device:
        CpuInterface.device = staticmethod(contextlib.nullcontext)
