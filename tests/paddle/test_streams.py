"""Streams, events, traces."""

import json

import paddle
import pytest


def test_events_measure_time():
    begin, end = paddle.mps.Event(), paddle.mps.Event()
    begin.record()
    x = paddle.ones([256, 256])
    for _ in range(20):
        x = x + x * 0.5
    end.record()
    end.synchronize()
    assert begin.query() and end.query()
    assert 0 < begin.elapsed_time(end) < 60_000
    assert end.elapsed_time(begin) < 0


def test_elapsed_time_needs_recorded_events():
    with pytest.raises(RuntimeError, match="recorded"):
        paddle.mps.Event().elapsed_time(paddle.mps.Event())
    with pytest.raises(ValueError, match="enable_timing"):
        paddle.mps.Event(enable_timing=False).elapsed_time(paddle.mps.Event())
    with pytest.raises(TypeError, match="3, which is no paddle.mps.Event"):
        paddle.mps.Event().elapsed_time(3)
    with pytest.raises(TypeError, match="not in 3"):
        paddle.mps.Event().record(3)


def test_streams_wait_for_each_other():
    stream = paddle.mps.Stream()
    with paddle.mps.stream_guard(stream):
        x = paddle.full([1000], 2.0)
        event = stream.record_event()
    paddle.mps.current_stream().wait_event(event)
    paddle.mps.current_stream().wait_stream(stream)
    event.wait()
    assert (x + x).numpy().sum() == 4000
    stream.synchronize()
    assert stream.query()


def test_a_trace_holds_the_commands(tmp_path):
    path = tmp_path / "trace.json"
    with paddle.mps.profiler.profile(path):
        x = paddle.full([64], 2.0)
        (x + x).numpy()
    trace = json.loads(path.read_text())
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "add" in names, names


def test_a_trace_that_is_not_on_cannot_stop():
    with pytest.raises(RuntimeError, match="tracing"):
        paddle.mps.profiler.stop()
