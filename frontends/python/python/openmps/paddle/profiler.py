"""``paddle.mps.profiler``: a trace of every command and of memory, for Chrome's ``about:tracing`` and https://ui.perfetto.dev."""

from __future__ import annotations

import os
from contextlib import contextmanager

from openmps.paddle.devices import _native, device_count

__all__ = ["profile", "start", "stop"]


def start(path: str | os.PathLike = "mps-trace.json") -> None:
    """Begins a trace, which :func:`stop` writes to a file."""
    _native().trace_start(os.fspath(path))


def stop() -> str:
    """Waits for the devices, ends the trace, writes its file and returns the file's path."""
    for index in range(device_count()):
        _native().synchronize(index)
    return os.fspath(_native().trace_stop())


@contextmanager
def profile(path: str | os.PathLike = "mps-trace.json"):
    """Traces a ``with`` block into a file."""
    start(path)
    try:
        yield
    finally:
        stop()
