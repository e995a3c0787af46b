"""Streams and events: order of work, and its time."""

from __future__ import annotations

from contextlib import contextmanager

from paddle.base import core

from openmps.paddle.devices import DEVICE_TYPE, _native, index_of


class Stream:
    """A queue of commands on one device, which run in the order of their submission."""

    def __init__(self, device=None, *, _base=None):
        self.device = index_of(device)
        self._base = _base if _base is not None else core.CustomDeviceStream(DEVICE_TYPE, self.device, 2)

    @property
    def stream_base(self):
        """Paddle's own object."""
        return self._base

    def record_event(self, event: Event | None = None) -> Event:
        """Sets an event, or a new one, when the stream comes here; returns it."""
        event = event if event is not None else Event(device=self.device)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Holds the stream's later commands until the event is reached."""
        self._base.wait_event(event._base)

    def wait_stream(self, stream: Stream) -> None:
        """Holds the stream's later commands until another stream has come as far as it is now."""
        self._base.wait_stream(stream._base)

    def query(self) -> bool:
        """Whether everything submitted has ended."""
        return self._base.query()

    def synchronize(self) -> None:
        """Waits for everything submitted."""
        self._base.synchronize()

    def __repr__(self) -> str:
        return f"<paddle.mps.Stream on mps:{self.device}>"


class Event:
    """A point in a stream's order, and the time when the stream reached it."""

    def __init__(self, enable_timing: bool = True, *, device=None):
        self.device = index_of(device)
        self.enable_timing = enable_timing
        self._base = core.CustomDeviceEvent(DEVICE_TYPE, self.device, enable_timing, False, False)
        self._recorded = False

    def record(self, stream: Stream | None = None) -> None:
        """Sets the event when the stream, or the device's current one, comes here."""
        if not isinstance(stream, Stream | None):
            raise TypeError(f"an event is recorded in a paddle.mps.Stream, not in {stream!r}")
        self._base.record(stream._base if stream is not None else current_stream(self.device)._base)
        self._recorded = True

    def query(self) -> bool:
        """Whether the work before the event has ended; true when it was never recorded."""
        return not self._recorded or self._base.query()

    def wait(self, stream: Stream | None = None) -> None:
        """Holds a stream's later commands until the event is reached."""
        (stream if stream is not None else current_stream(self.device)).wait_event(self)

    def synchronize(self) -> None:
        """Waits for the work before the event."""
        self._base.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to ``end_event``, both recorded with timing."""
        if not isinstance(end_event, Event):
            raise TypeError(f"the time to {end_event!r}, which is no paddle.mps.Event")
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("elapsed_time needs two events made with enable_timing=True")
        end_event.synchronize()
        return _native().event_elapsed_ms(self._base.raw_event, end_event._base.raw_event)

    def __repr__(self) -> str:
        return f"<paddle.mps.Event on mps:{self.device}>"


def current_stream(device=None) -> Stream:
    """The stream to which a device's kernels are submitted."""
    index = index_of(device)
    return Stream(index, _base=core._get_current_custom_device_stream(DEVICE_TYPE, index))  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def stream_guard(stream: Stream):
    """Makes a stream the current one of its device inside a ``with`` block."""
    previous = core._get_current_custom_device_stream(DEVICE_TYPE, stream.device)  # pyright: ignore[reportAttributeAccessIssue]
    core._set_current_custom_device_stream(DEVICE_TYPE, stream.device, stream._base)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield stream
    finally:
        core._set_current_custom_device_stream(DEVICE_TYPE, stream.device, previous)  # pyright: ignore[reportAttributeAccessIssue]
