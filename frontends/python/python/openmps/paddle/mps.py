"""``paddle.mps``: the device ``mps`` of PaddlePaddle, in the manner of ``torch.mps`` and ``paddle.device.cuda``.

A *device* argument is a number, ``'mps'``, ``'mps:1'``, a place such as that of a tensor on mps, or None for the current device.
"""

from __future__ import annotations

from openmps.paddle import profiler
from openmps.paddle.devices import (
    DeviceProperties,
    MPSPlace,
    current_device,
    device_count,
    get_device_name,
    get_device_properties,
    is_available,
    is_compiled_with_mps,
    kernels,
    set_device,
    synchronize,
    unavailable_reason,
)
from openmps.paddle.fallbacks import Fallback, FallbackReport, fallback_report, record_fallbacks
from openmps.paddle.memory import (
    current_allocated_memory,
    driver_allocated_memory,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    recommended_max_memory,
    reset_max_memory_allocated,
    reset_max_memory_reserved,
    set_per_process_memory_fraction,
)
from openmps.paddle.random import get_rng_state, manual_seed, seed, set_rng_state
from openmps.paddle.shaders import ShaderKernel, ShaderLibrary, compile_shader
from openmps.paddle.streams import Event, Stream, current_stream, stream_guard

__all__ = [
    "DeviceProperties",
    "Event",
    "Fallback",
    "FallbackReport",
    "MPSPlace",
    "ShaderKernel",
    "ShaderLibrary",
    "Stream",
    "compile_shader",
    "current_allocated_memory",
    "current_device",
    "current_stream",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "fallback_report",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "is_available",
    "is_compiled_with_mps",
    "kernels",
    "manual_seed",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "profiler",
    "recommended_max_memory",
    "record_fallbacks",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "seed",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "stream_guard",
    "synchronize",
    "unavailable_reason",
]
