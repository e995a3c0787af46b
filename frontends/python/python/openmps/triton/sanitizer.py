"""The sanitizer of launches: switched on by ``OPENMPS_SANITIZE=1`` or here, and told what a kernel may touch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from paddle_custom_device import openmps_native

_REACHABLE: ContextVar[tuple] = ContextVar("openmps_reachable", default=())


def sanitize(on: bool = True) -> None:
    """Checks every access of later launches, or no longer. Launches take long then: they run in an interpreter."""
    openmps_native.sanitizer_set(on)


@contextmanager
def reachable(*tensors) -> Iterator[None]:
    """Lets checked launches touch these too: tensors whose addresses a kernel finds in memory, not among its arguments."""
    token = _REACHABLE.set(_REACHABLE.get() + tensors)
    try:
        yield
    finally:
        _REACHABLE.reset(token)


def extents(arguments: list) -> list[tuple[int | None, int, int]]:
    """What a launch may touch: (position among the arguments or None, address, bytes)."""
    places = [(place, value) for place, value in enumerate(arguments) if hasattr(value, "data_ptr")]
    return [(place, *_extent(value)) for place, value in [*places, *((None, value) for value in _REACHABLE.get())]]


def _extent(tensor) -> tuple[int, int]:
    """Address and bytes of the elements of a tensor, from the lowest to the highest."""
    strides = getattr(tensor, "strides", None)  # NumPy has none here: Array and torch have a method stride, Paddle a list
    if strides is None and hasattr(tensor, "stride"):
        strides = [tensor.stride(axis) for axis in range(len(tensor.shape))]
    if strides is None:
        raise TypeError(f"mps: {type(tensor).__name__} has data_ptr() but neither strides nor stride(axis), which tell its extent")
    strides = list(strides() if callable(strides) else strides)  # pyright: ignore[reportArgumentType]  (whatever tensor it is)
    size = _element_size(tensor)
    if 0 in tensor.shape:
        return tensor.data_ptr(), 0
    steps = [(length - 1) * stride * size for length, stride in zip(tensor.shape, strides, strict=True)]
    low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    return tensor.data_ptr() + low, high - low + size


def _element_size(tensor) -> int:
    size = getattr(tensor, "element_size", None)
    return tensor.dtype.itemsize if size is None else size()
