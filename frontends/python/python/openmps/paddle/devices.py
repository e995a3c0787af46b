"""Devices: which there are, which is current, what they are."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import paddle
from paddle.base import core

DEVICE_TYPE = "mps"


def _native():
    from paddle_custom_device import openmps_native

    return openmps_native


@dataclass(frozen=True)
class DeviceProperties:
    """What a device says about itself."""

    name: str
    """The processor's model name."""
    backend: str
    """What executes the commands: ``metal``, ``host`` or ``cuda``."""
    cores: int
    """Physical cores."""
    threads: int
    """Threads that one kernel may use."""
    total_memory: int
    """The device's memory in bytes."""
    vector_level: str
    """The instructions in use, such as ``avx512``, or ``amx`` where they include those of Intel's matrix unit."""
    simd_width: int
    """32-bit lanes that run in step."""
    unified_memory: bool
    """Whether the host reads and writes the device's memory without a copy."""
    max_buffer_length: int
    """The largest buffer in bytes."""


def is_compiled_with_mps() -> bool:
    """Whether openmps is installed, and its native module with it. Says nothing about the device: see :func:`is_available`."""
    try:
        _native()
    except ImportError:
        return False
    return True


def is_available() -> bool:
    """Whether this PaddlePaddle has taken the plug-in and there is a device."""
    return unavailable_reason() is None


def unavailable_reason() -> str | None:
    """Why device mps is not available; None when it is."""
    try:
        state, reason = _native().plugin_state()
    except ImportError as error:
        return f"the native module of openmps cannot be imported: {error}"
    if state == "refused":
        return reason
    if state == "not loaded":
        if not hasattr(core, "CustomPlace") or not hasattr(core, "get_all_custom_device_type"):
            return "this PaddlePaddle is built without plug-in devices (WITH_CUSTOM_DEVICE=OFF), as its wheels for macOS are"
        return "PaddlePaddle did not load the plug-in: is CUSTOM_DEVICE_ROOT set to another folder?"
    return None if DEVICE_TYPE in core.get_all_custom_device_type() else "PaddlePaddle has no device type mps"


def device_count() -> int:
    """How many devices there are; 0 when mps is not available."""
    return _native().device_count() if is_available() else 0


def require() -> None:
    """Raises the reason where device mps is not available."""
    reason = unavailable_reason()
    if reason is not None:
        raise RuntimeError(f"device mps is not available: {reason}")


def MPSPlace(device_id=0) -> core.CustomPlace:
    """The place of a device, as ``paddle.CUDAPlace`` is for GPUs."""
    return core.CustomPlace(DEVICE_TYPE, index_of(device_id))


def _is_mps(place) -> bool:
    if hasattr(place, "is_custom_place"):
        return place.is_custom_place() and place.custom_device_type() == DEVICE_TYPE
    return isinstance(place, core.CustomPlace) and place.get_device_type() == DEVICE_TYPE


def _index_of(place) -> int:
    return place.get_device_id() if isinstance(place, core.CustomPlace) else place.custom_device_id()


_chosen = 0


def index_of(device) -> int:
    """The number that a *device* argument means."""
    require()
    if device is None:
        return current_device()
    if isinstance(device, bool):
        raise ValueError(f"{device!r} is no device of type mps")
    if isinstance(device, Integral):
        index = int(device)
    elif isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind != DEVICE_TYPE or (number and not number.isdigit()):
            raise ValueError(f"{device!r} is no device of type mps: write 'mps' or 'mps:0'")
        index = int(number or 0)
    elif isinstance(device, (core.Place, core.CustomPlace)) and _is_mps(device):
        index = _index_of(device)
    else:
        raise ValueError(f"{device!r} is no device of type mps: expected a number, 'mps', 'mps:0' or the place of a tensor on mps")
    count = _native().device_count()
    if not 0 <= index < count:
        raise ValueError(f"device mps:{index} does not exist: there are {count}")
    return index


def set_device(device=0) -> None:
    """Makes a device the current one: new tensors are made there."""
    global _chosen
    index = index_of(device)
    paddle.device.set_device(f"{DEVICE_TYPE}:{index}")
    _chosen = index


def current_device() -> int:
    """The number of the current device. Where Paddle's current device is of another type: the one chosen last."""
    place = paddle.framework._current_expected_place_()  # pyright: ignore[reportPrivateImportUsage]
    return _index_of(place) if _is_mps(place) else _chosen


def get_device_properties(device=None) -> DeviceProperties:
    """What a device says about itself."""
    properties: dict[str, Any] = _native().device_properties(index_of(device))
    return DeviceProperties(**properties)


def get_device_name(device=None) -> str:
    """The model name of a device's processor."""
    return get_device_properties(device).name


def synchronize(device=None) -> None:
    """Waits for everything that was submitted to a device; an error of a command is raised here."""
    index = index_of(device)
    core._synchronize_custom_device(DEVICE_TYPE, index)  # pyright: ignore[reportAttributeAccessIssue]
    _native().synchronize(index)


def kernels() -> dict[str, list[str]]:
    """The kernels that run on device mps, by Paddle's names, with their element types."""
    result: dict[str, list[str]] = {}
    for name, data_types in _native().plugin_kernels():
        result.setdefault(name, []).extend(data_types)
    return result


def install(paddle) -> None:
    """``paddle.device("mps:0")``, ``paddle.get_default_device()`` and ``paddle.device(x.place)``: Paddle's list of types for these knows its own only."""
    device = paddle.device.Device
    device._SUPPORTED_TYPES = device._SUPPORTED_TYPES | {DEVICE_TYPE}
    place_of_paddles = device._to_place

    def _to_place(self):
        return MPSPlace(self.index) if self.type == DEVICE_TYPE else place_of_paddles(self)

    device._to_place = _to_place
    # A tensor's place is of this class, which lacks what Paddle asks the places of plug-ins for.
    for name, own in (("get_device_type", "custom_device_type"), ("get_device_id", "custom_device_id")):
        setattr(core.Place, name, getattr(core.Place, own))
