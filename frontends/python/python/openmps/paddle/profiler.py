"""``paddle.mps.profiler``: a trace of every command and of memory, for Chrome's ``about:tracing`` and https://ui.perfetto.dev; on Apple's GPUs
captures for Xcode."""

from __future__ import annotations

import os
from contextlib import contextmanager

from openmps.paddle.devices import _native, device_count, get_device_properties
from openmps.paddle.streams import current_stream

__all__ = ["is_capturing_metal", "is_metal_capture_enabled", "metal_capture", "profile", "start", "stop"]


# What `torch.mps.profiler` records by these names, a trace has anyhow: every command's beginning and end.
_MODES = ("interval", "event", "interval,event", "event,interval")


def start(path: str | os.PathLike = "mps-trace.json", *, mode: str = "interval", wait_until_completed: bool = False) -> None:
    """Begins a trace, which :func:`stop` writes to a file. A trace has intervals and events whatever the ``mode``, and times commands
    where they run, so that they need not be waited for one by one."""
    if mode not in _MODES:
        raise ValueError(f"the mode is {mode!r}, expected one of {', '.join(map(repr, _MODES[:3]))}")
    _native().trace_start(os.fspath(path))


def stop() -> str:
    """Waits for the devices, ends the trace, writes its file and returns the file's path."""
    for index in range(device_count()):
        _native().synchronize(index)
    return os.fspath(_native().trace_stop())


@contextmanager
def profile(path: str | os.PathLike = "mps-trace.json", *, mode: str = "interval", wait_until_completed: bool = False):
    """Traces a ``with`` block into a file; the arguments are those of :func:`start`."""
    start(path, mode=mode, wait_until_completed=wait_until_completed)
    try:
        yield
    finally:
        stop()


_capturing = False


def is_metal_capture_enabled() -> bool:
    """Whether this process may capture: it computes on a GPU of Apple's, and was started with ``MTL_CAPTURE_ENABLED=1``."""
    return os.environ.get("MTL_CAPTURE_ENABLED") == "1" and get_device_properties().backend == "metal"


def is_capturing_metal() -> bool:
    """Whether a :func:`metal_capture` is under way."""
    return _capturing


@contextmanager
def metal_capture(fname: str | os.PathLike):
    """Captures the commands that a ``with`` block gives the current stream of the current device into ``fname``, which must end in ``.gputrace``, for
    Xcode. Type-checked and linked; not yet run on Apple hardware.

    Raises:
        RuntimeError: the device has no captures, or the process was not started with ``MTL_CAPTURE_ENABLED=1``.
        ValueError: ``fname`` has another ending.
    """
    global _capturing
    file = os.fspath(fname)
    if not file.endswith(".gputrace"):
        raise ValueError(f"a capture is written to a file that ends in .gputrace, not to {file!r}")
    if _capturing:
        raise RuntimeError("a capture is under way already")
    stream = current_stream()._base.raw_stream
    _native().capture_begin(stream, file)
    _capturing = True
    try:
        yield
    finally:
        _capturing = False
        _native().capture_end(stream)
