"""Kernels of one's own in Metal's language, as ``torch.mps.compile_shader`` has them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
import paddle

from openmps.paddle.devices import MPSPlace, _is_mps, _native, get_device_properties, index_of
from openmps.paddle.streams import current_stream

_TYPES = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "fp16": np.float16,
    "fp32": np.float32,
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}

# The longest vector of Metal's, `long4`; a value of three numbers is read as one of four.
_LONGEST_VALUE = 32


def compile_shader(source: str, *, device=None) -> ShaderLibrary:
    """Compiles kernels that are written in the Metal Shading Language, for a device that runs it (``OPENMPS_DEVICE=metal``, or
    ``metal-emulated``, which executes it on the CPU).

    Args:
        source: the text.
        device: the device, or None for the current one.

    Returns:
        A library, which has each ``kernel`` of the text as a function (:class:`ShaderKernel`).

    Raises:
        RuntimeError: the device does not run Metal's language.
        SyntaxError: the text does not compile; says what the compiler says.

    Example::

        library = paddle.mps.compile_shader('''
            kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) { out[i] = value; }
        ''')
        x = paddle.zeros([16])
        library.full(x, 3.14)
    """
    if not isinstance(source, str):
        raise TypeError(f"a shader is a text, not {type(source).__name__}")
    index = index_of(device)
    backend = get_device_properties(index).backend
    if backend != "metal":
        raise RuntimeError(
            f"Metal's language runs on Metal's devices, and mps:{index} computes on {backend}; "
            "with OPENMPS_DEVICE=metal-emulated a C++ compiler executes it on the CPU"
        )
    return ShaderLibrary(_native().Shaders(index, source), index)


class ShaderLibrary:
    """What :func:`compile_shader` gives: the text's kernels by their names."""

    def __init__(self, native, device: int):
        self._native, self._device = native, device

    def __getattr__(self, name: str) -> ShaderKernel:
        if name.startswith("_") or name not in self._native.functions:
            known = ", ".join(self._native.functions) or "none"
            raise AttributeError(f"the shader has no kernel {name!r}; it has {known}")
        kernel = ShaderKernel(self._native, self._device, name)
        setattr(self, name, kernel)
        return kernel

    def __dir__(self):
        return sorted({*super().__dir__(), *self._native.functions})

    def __repr__(self) -> str:
        return f"<paddle.mps.ShaderLibrary of {', '.join(self._native.functions) or 'no kernels'}>"


class ShaderKernel:
    """A kernel of a :class:`ShaderLibrary`; calling it puts it into the device's current stream."""

    def __init__(self, native, device: int, name: str):
        self._native, self._device, self._name = native, device, name
        self._limits = native.limits(name)

    @property
    def max_threads_per_threadgroup(self) -> int:
        """``maxTotalThreadsPerThreadgroup`` of its pipeline."""
        return self._limits[0]

    @property
    def thread_execution_width(self) -> int:
        """Threads of a simdgroup."""
        return self._limits[1]

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that the text declares."""
        return self._limits[2]

    def __call__(self, *args, threads=None, group_size=None, arg_casts=None) -> None:
        """Runs the kernel.

        Args:
            args: what it takes at ``[[buffer(0)]]``, ``[[buffer(1)]]`` and so on. A tensor of the device gives the memory that it lies in, strided or
                not; a number is ``constant T&`` of 64-bit integers or of float, a NumPy number of its own type, several numbers a vector or an array.
            threads: threads in all, along up to three axes; as many as the first tensor has elements if None. Threadgroups at the edges are cut off.
            group_size: threads of a threadgroup, along as many axes; if None as many as there may be, along the first.
            arg_casts: the type of numbers, such as ``'int32'`` or ``'fp16'``: one for all, or by index.
        """
        casts = arg_casts if isinstance(arg_casts, dict) else dict.fromkeys(range(len(args)), arg_casts)
        # The tensors that are made of several numbers are kept until the kernel is in the stream.
        given = [self._argument(index, value, casts.get(index)) for index, value in enumerate(args)]
        if threads is None:
            first = next((tensor for tensor in args if isinstance(tensor, paddle.Tensor) and _is_mps(tensor.place)), None)
            if first is None:
                raise ValueError(f"{self._name}: threads is None, and there is no tensor whose elements tell how many")
            threads = int(first.size)
        threads = _axes("threads", threads)
        group = (min(self._limits[0], max(threads[0], 1)),) if group_size is None else _axes("group_size", group_size)
        if group_size is not None and len(group) != len(threads):
            raise ValueError(f"{self._name}: threads have {len(threads)} axes, group_size has {len(group)}")
        if min(group) < 1:
            raise ValueError(f"{self._name}: group_size is {group}, expected at least 1 along each axis")
        passed = [value.data_ptr() if isinstance(value, paddle.Tensor) else value for value in given]
        stream = current_stream(self._device)._base.raw_stream
        self._native.dispatch(self._name, stream, _three(threads), _three(group), passed)

    def _argument(self, index: int, value, cast):
        if cast is not None and cast not in _TYPES:
            raise ValueError(f"{self._name}: arg_casts is {cast!r}, expected one of {', '.join(_TYPES)}")
        if isinstance(value, paddle.Tensor):
            if _is_mps(value.place) and index_of(value.place) == self._device:
                return value
            if not value.place.is_cpu_place() or value.ndim != 0:
                raise ValueError(f"{self._name}: argument {index} lies on {value.place}, expected mps:{self._device}")
            value = value.item() if value.dtype == paddle.bfloat16 else value.numpy()[()]
            cast = cast or ("bfloat16" if isinstance(value, float) else None)
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes) and np.ndim(value) == 1 and len(value) > 0:
            values = b"".join(_bytes_of(self._name, index, one, cast) for one in value)
            padded = np.frombuffer(values.ljust(_LONGEST_VALUE, b"\0"), np.uint8)
            return paddle.to_tensor(padded, place=MPSPlace(self._device))
        return _bytes_of(self._name, index, value, cast)

    def __repr__(self) -> str:
        return f"<paddle.mps.ShaderKernel {self._name}>"


def _bytes_of(kernel: str, index: int, value, cast) -> bytes:
    """A number as it lies in memory."""
    if isinstance(value, np.generic) and cast is None:
        return value.tobytes()
    if isinstance(value, bool | np.bool_):
        kind = cast or "bool"
    elif isinstance(value, Integral):
        kind = cast or "int64"
    elif isinstance(value, Real):
        kind = cast or "float32"
    else:
        raise TypeError(f"{kernel}: argument {index} is of type {type(value).__name__}, expected a tensor, a number or several numbers")
    if _TYPES[kind] == "bfloat16":
        return paddle.to_tensor(float(value), "bfloat16", place=paddle.CPUPlace()).view("int16").numpy().tobytes()
    try:
        return np.array(value, _TYPES[kind]).tobytes()
    except OverflowError:
        raise ValueError(f"{kernel}: argument {index} is {value}, which {kind} does not hold") from None


def _axes(what: str, value) -> tuple[int, ...]:
    given = (value,) if isinstance(value, Integral) else tuple(value)
    axes = tuple(int(axis) for axis in given if isinstance(axis, Integral))
    if len(axes) != len(given) or not 1 <= len(axes) <= 3 or min(axes) < 0:
        raise ValueError(f"{what} is {value!r}, expected one to three numbers that are not negative")
    return axes


def _three(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*axes, 1, 1)[:3]
