"""Launches: Triton's arguments become the native module's."""

# Triton's abstract methods say nothing of what they return.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import dataclasses
import re
import time
from typing import ClassVar

from openmps.triton import entry

entry.before_triton(__name__)

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.tools.tensor_descriptor import TensorDescriptor

from openmps.triton import cache
from paddle_custom_device import openmps_native

_LIMITS = {"num_warps": (1, 32), "num_stages": (1, 16), "max_threads": (32, 1024), "shared_memory": (0, 32768)}


#: Arguments of a launch that come before the kernel's own: the grid, the stream, the kernel, two kinds of metadata, two hooks.
_OWN_ARGUMENTS = 9


def launcher(source, metadata):
    """What calls one kernel: the native module's own, which is told where the arguments are that are no constants."""
    kinds = list(source.signature.values())
    if any(isinstance(kind, tuple) or str(kind).startswith("tensordesc") for kind in kinds):
        return _of_parts(kinds)
    return openmps_native.TritonLauncher([at for at, kind in enumerate(kinds) if kind != "constexpr"])


#: What this version of Triton says of a descriptor besides base, shape and strides, and what it passes for it.
_FLAGS = {
    name: says
    for name, says in {"padding": lambda padding: padding == "nan", "round_f32_to_tf32": bool}.items()
    if name in {field.name for field in dataclasses.fields(TensorDescriptor)}
}


def _rank(kind: str) -> int:
    """Dimensions of the tensor that a descriptor's type, such as ``tensordesc<fp16[16, 32]>``, is of."""
    if of_tensor := re.search(r",input_rank=(\d+)", kind):
        return int(of_tensor.group(1))
    return kind[kind.index("[") : kind.index("]")].count(",") + 1


def _decomposed(descriptor) -> list:
    flags = [says(getattr(descriptor, name)) for name, says in _FLAGS.items()]
    return [descriptor.base, *descriptor.shape, *descriptor.strides, *flags, *descriptor.shape, *descriptor.strides]


def _count(kind) -> int:
    """How many parameters of the kernel an argument becomes."""
    if isinstance(kind, tuple):
        return sum(map(_count, kind))
    if kind == "constexpr":
        return 0
    # Of a descriptor shape and strides come twice.
    return 1 + len(_FLAGS) + 4 * _rank(kind) if kind.startswith("tensordesc") else 1


def _parts(kind, argument):
    """The kernel's arguments that an argument is made of."""
    if isinstance(kind, tuple):
        for inner, part in zip(kind, argument, strict=True):
            yield from _parts(inner, part)
    elif kind.startswith("tensordesc"):
        yield from _decomposed(argument)
    elif kind != "constexpr":
        yield argument


def _of_parts(kinds: list):
    """As Triton compiles them, elements of a tuple are parameters of their own, and so are a descriptor's base, shape, strides and flags."""
    native = openmps_native.TritonLauncher(list(range(sum(map(_count, kinds)))))

    def launch(*arguments):
        own, given = arguments[:_OWN_ARGUMENTS], arguments[_OWN_ARGUMENTS:]
        return native(*own, *_parts(tuple(kinds), given))

    return launch


class Utils:
    """What Triton asks of a driver's native half."""

    @staticmethod
    def get_device_properties(device: int) -> dict:
        cores = openmps_native.device_properties(device)["cores"]
        limits = MPSDriver.kernel_config
        return {
            "max_shared_mem": limits.get("shared_memory", 32768),
            "multiprocessor_count": cores,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1,
            "mem_clock_rate": 1,
            "mem_bus_width": 64,
        }

    @staticmethod
    def load_binary(name: str, binary: bytes, shared: int, device: int):
        """Module, function, registers, spilled registers, most threads."""
        kernel = openmps_native.triton_compile(binary.decode())
        return kernel, kernel, 0, 0, 1 << 20

    @staticmethod
    def unload_module(module) -> None:
        """The kernel goes with its last reference."""


class Event:
    """A point in time; the host device has ended every command by then."""

    def __init__(self, enable_timing: bool = True):
        self.seconds = 0.0

    def record(self) -> None:
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until the other event."""
        return (end.seconds - self.seconds) * 1e3


class DeviceInterface:
    """What ``triton.testing.do_bench`` uses of a framework's device module."""

    Event = Event

    @staticmethod
    def synchronize() -> None:
        openmps_native.synchronize(0)

    @staticmethod
    def current_device() -> int:
        return 0


class MPSDriver(DriverBase):
    """The driver of target ``mps``. ``OPENMPS_TRITON=0`` keeps it inactive, ``=1`` makes it active beside another one."""

    launcher_cls = staticmethod(launcher)
    #: What ``set_kernel_config`` has set; part of each kernel's key.
    kernel_config: ClassVar[dict[str, int]] = {}

    def __init__(self):
        super().__init__()
        self.utils = Utils()
        cache.install()

    @classmethod
    def is_active(cls) -> bool:
        """Whether Triton should take this driver by itself: where no other one is active."""
        asked = openmps_native.setting("OPENMPS_TRITON")
        if asked is not None:
            return asked != "0"
        from triton.backends import backends

        return not any(backend.driver.is_active() for name, backend in backends.items() if backend.driver is not cls)

    @classmethod
    def set_kernel_config(cls, **limits: int) -> None:
        """Sets num_warps, num_stages, max_threads (of a threadgroup) or shared_memory (bytes) of the next launches."""
        for name, value in limits.items():
            if name not in _LIMITS:
                raise ValueError(f"set_kernel_config: {name!r} is no setting; there are: {', '.join(_LIMITS)}")
            low, high = _LIMITS[name]
            if not low <= value <= high:
                raise ValueError(f"set_kernel_config: {name}={value} is outside {low} to {high}")
        cls.kernel_config = {**cls.kernel_config, **limits}
        _forget_kernels()

    def memory_pool(self) -> dict[str, int]:
        """Bytes of the device in use by buffers now and at the most: current_allocated, max_allocated."""
        statistics = openmps_native.memory_statistics(0)
        return {"current_allocated": statistics["allocated"], "max_allocated": statistics["peak_allocated"]}

    def map_python_to_cpp_type(self, ty: str) -> str:
        return "void*" if ty.startswith("*") else ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("mps", "host", 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        if device != 0:
            raise ValueError(f"mps: Triton's kernels run on device 0, not {device}")

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self):
        import torch  # pyright: ignore[reportMissingImports]  (whoever asks for it has it)

        return torch.device("cpu")

    def get_benchmarker(self):
        from triton.testing import do_bench

        return do_bench

    def get_device_interface(self) -> type[DeviceInterface]:
        return DeviceInterface

    def get_empty_cache_for_benchmark(self) -> bytearray:
        return bytearray(64 << 20)

    def clear_cache(self, cache: bytearray) -> None:
        cache[:] = bytes(len(cache))


def _forget_kernels() -> None:
    """Triton's own key leaves the options' defaults out: kernels compiled so far must not answer for the new settings."""
    import gc

    from triton.runtime.jit import JITFunction

    for function in gc.get_objects():
        if type(function) is JITFunction:  # isinstance would ask every object, some of which answer with warnings
            function.device_caches.clear()
