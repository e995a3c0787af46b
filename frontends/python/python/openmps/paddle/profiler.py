"""``paddle.mps.profiler``: a trace of every command and of memory, for Chrome's ``about:tracing`` and https://ui.perfetto.dev."""

from __future__ import annotations

import os
from contextlib import contextmanager

from openmps.paddle.devices import _native, device_count

__all__ = ["profile", "start", "stop"]


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
