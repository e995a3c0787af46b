"""Launches: Triton's arguments become the native module's."""

# Triton's abstract methods say nothing of what they return.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from typing import ClassVar

from openmps.triton import entry

entry.before_triton(__name__)

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.tools.tensor_descriptor import TensorDescriptor

from openmps.triton import cache, limits
from paddle_custom_device import openmps_native

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
        config = MPSDriver.kernel_config
        return {
            "max_shared_mem": config.get("shared_memory", limits.RANGES["shared_memory"][1]),
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
        text = binary.decode()
        kernel = openmps_native.triton_compile(text, **limits.read(text))
        return kernel, kernel, 0, 0, 1 << 20

    @staticmethod
    def unload_module(module) -> None:
        """The kernel goes with its last reference."""


class Event(openmps_native.TritonEvent):
    """A point in a stream's order, timed where the kernels run: by the GPU, where there is one."""

    def record(self, stream=None) -> None:
        """Sets the event when the stream, or the one that launches go to, comes here."""
        self.record_on(_current_stream() if stream is None else stream.cuda_stream)


def _current_stream() -> int:
    """PyTorch's stream on a GPU that both use; 0 is openmps's own, which is in order with PyTorch's default one."""
    if _kind() != "cuda":
        return 0
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return torch._C._cuda_getCurrentRawStream(0)  # as Triton's own driver asks; GPU 0 is the one that kernels run on


@functools.cache
def _kind() -> str:
    """The kind of the device that kernels run on: host, metal, cuda."""
    return str(openmps_native.device_properties(0)["backend"])


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
    """The driver of target ``mps``. ``OPENMPS_TRITON=0`` keeps it inactive, ``=1`` makes it active beside another one, as does Triton's own
    ``TRITON_DEFAULT_BACKEND=mps``, which versions before 3.7 do not read."""

    launcher_cls = staticmethod(launcher)
    #: What ``set_kernel_config`` has set; part of each kernel's key.
    kernel_config: ClassVar[dict[str, int]] = {}

    def __init__(self):
        super().__init__()
        self.utils = Utils()
        cache.install()

    @classmethod
    def is_asked_for(cls) -> bool:
        """Whether the environment chooses it, whatever other drivers there are."""
        asked = openmps_native.setting("OPENMPS_TRITON")
        return asked == "1" or (asked is None and os.environ.get("TRITON_DEFAULT_BACKEND") == "mps")

    @classmethod
    def is_active(cls) -> bool:
        """Whether Triton should take this driver by itself: where no other one is active."""
        asked = openmps_native.setting("OPENMPS_TRITON")
        if asked is not None:
            return asked != "0"
        if cls.is_asked_for():
            return True
        from triton.backends import backends

        return not any(backend.driver.is_active() for name, backend in backends.items() if backend.driver is not cls)

    @classmethod
    def set_kernel_config(cls, **settings: int) -> None:
        """Sets num_warps, num_stages, max_threads (of a threadgroup) or shared_memory (bytes) of the next launches."""
        for name, value in settings.items():
            limits.check(name, value)
        # Of the class that is asked for options, whichever name this driver goes by.
        MPSDriver.kernel_config = {**MPSDriver.kernel_config, **settings}
        _forget_kernels()

    def memory_pool(self) -> dict[str, int]:
        """Bytes of the device in use by buffers now and at the most: current_allocated, max_allocated."""
        statistics = openmps_native.memory_statistics(0)
        return {"current_allocated": statistics["allocated"], "max_allocated": statistics["peak_allocated"]}

    def map_python_to_cpp_type(self, ty: str) -> str:
        return "void*" if ty.startswith("*") else ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("mps", _kind(), 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        if device != 0:
            raise ValueError(f"mps: Triton's kernels run on device 0, not {device}")

    def get_current_stream(self, device: int) -> int:
        return _current_stream()

    def get_active_torch_device(self):
        import torch  # pyright: ignore[reportMissingImports]  (whoever asks for it has it)

        return torch.device("cuda" if _kind() == "cuda" and torch.cuda.is_available() else "cpu")

    def get_benchmarker(self):
        from triton.testing import do_bench

        return do_bench

    def get_device_interface(self) -> type[DeviceInterface]:
        return DeviceInterface

    def get_empty_cache_for_benchmark(self):
        """Memory larger than the last cache, where kernels run."""
        torch = sys.modules.get("torch")
        if torch is not None and self.get_active_torch_device().type == "cuda":
            return torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        return bytearray(64 << 20)

    def clear_cache(self, cache) -> None:
        if isinstance(cache, bytearray):
            cache[:] = bytes(len(cache))
        else:
            cache.zero_()


def _forget_kernels() -> None:
    """Triton's own key leaves the options' defaults out: kernels compiled so far must not answer for the new settings."""
    import gc

    from triton.runtime.jit import JITFunction

    for function in gc.get_objects():
        if type(function) is JITFunction:  # isinstance would ask every object, some of which answer with warnings
            function.device_caches.clear()
