"""Memory: what tensors hold, what is reserved, peaks and limits.

*Allocated* is what live tensors hold; Paddle counts it. *Reserved* is what the device has taken from the system for them: tensors, what
Paddle caches, what the device's own allocator caches.
"""

from __future__ import annotations

import sys

from paddle.base import core

from openmps.paddle.devices import _native, index_of, is_available


def memory_allocated(device=None) -> int:
    """Bytes in live tensors."""
    return _current("Allocated", index_of(device))


#: The names of ``torch.mps``.
current_allocated_memory = memory_allocated


def max_memory_allocated(device=None) -> int:
    """The highest :func:`memory_allocated` since the start or the last :func:`reset_max_memory_allocated`."""
    index = index_of(device)
    current = _current("Allocated", index)
    return max(core.device_memory_stat_peak_value("Allocated", index) + _forgotten["Allocated", index], current)


def reset_max_memory_allocated(device=None) -> None:
    """Starts the peak of allocated memory anew from what is allocated now."""
    core.device_memory_stat_reset_peak_value("Allocated", index_of(device))


def memory_reserved(device=None) -> int:
    """Bytes that the device has taken from the system."""
    return _native().memory_statistics(index_of(device))["reserved"]


driver_allocated_memory = memory_reserved


def max_memory_reserved(device=None) -> int:
    """The highest :func:`memory_reserved` since the start or the last :func:`reset_max_memory_reserved`."""
    return _native().memory_statistics(index_of(device))["peak_reserved"]


def reset_max_memory_reserved(device=None) -> None:
    """Starts the peak of reserved memory anew from what is reserved now."""
    index = index_of(device)
    core.device_memory_stat_reset_peak_value("Reserved", index)
    _native().reset_peak_reserved(index)


def memory_stats(device=None) -> dict[str, int]:
    """Every figure: the device's allocator (``allocated`` counts what Paddle has asked it for, cached or in use), and Paddle's own
    under ``paddle.*``."""
    index = index_of(device)
    stats = dict(_native().memory_statistics(index))
    stats["limit"] = _native().memory_limit(index)
    for name in ("Allocated", "Reserved"):
        stats[f"paddle.{name.lower()}"] = _current(name, index)
        stats[f"paddle.peak_{name.lower()}"] = core.device_memory_stat_peak_value(name, index)
    return stats


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the system, on every device; does nothing where there is none."""
    if not is_available():
        return
    core.device_empty_cache()
    for index in range(_native().device_count()):
        _native().empty_cache(index)


def recommended_max_memory(device=None) -> int:
    """How much memory a process should use at most: the device's, or ``OPENMPS_MEMORY_LIMIT``."""
    index = index_of(device)
    if index not in _recommended:
        _recommended[index] = _native().memory_limit(index)
    return _recommended[index]


_recommended: dict[int, int] = {}


def _current(name: str, index: int) -> int:
    """Paddle's figure. It counts by thread and forgets what a thread has allocated when the thread ends, but not what other threads free of
    that: as soon as the figure is below zero, as much was forgotten and is added from then on."""
    value = core.device_memory_stat_current_value(name, index)
    forgotten = max(_forgotten.get((name, index), 0), -value)
    _forgotten[name, index] = forgotten
    return value + forgotten


_forgotten: dict[tuple[str, int], int] = {}


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """Limits the device's memory to a fraction, up to 2, of :func:`recommended_max_memory`. What goes beyond it is an out-of-memory
    error; what is allocated already stays. 0 takes the limit away."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool) or not 0 <= fraction <= 2:
        raise ValueError(f"the fraction is {fraction!r}, expected a number from 0 to 2")
    index = index_of(device)
    _native().set_memory_limit(index, int(recommended_max_memory(index) * fraction) if fraction else sys.maxsize)
