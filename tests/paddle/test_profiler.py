"""paddle.profiler on device mps: the commands of a profiled part, in Chrome's format and in Paddle's tables."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import paddle
from paddle import profiler

TARGETS = [profiler.ProfilerTarget.CPU, profiler.ProfilerTarget.CUSTOM_DEVICE]


def profiled(folder: pathlib.Path, work: Callable, steps: int = 1, summary: bool = False, **options) -> list[dict]:
    """The events of a profile of some steps; Paddle has one profiler at a time, which ends with this call."""
    with profiler.Profiler(targets=TARGETS, on_trace_ready=profiler.export_chrome_tracing(str(folder)), **options) as profile:
        for _ in range(steps):
            work()
            profile.step()
    if summary:
        profile.summary(op_detail=True)
    (file,) = folder.glob("*.json")
    return json.loads(file.read_text())["traceEvents"]


def named(events: list[dict], kind: str, name: str) -> list[dict]:
    return [event for event in events if event.get("cat") == kind and event["name"].startswith(name)]


def test_kernels_copies_and_fills_are_events_of_the_device(tmp_path):
    x = paddle.rand([64, 64])
    events = profiled(tmp_path, lambda: paddle.nn.functional.softmax(paddle.matmul(x, x)).numpy())
    assert [len(named(events, "Kernel", name)) for name in ("matmul", "softmax")] == [1, 1]
    (copy,) = named(events, "Memcpy", "read")
    assert copy["args"]["bytes"] == 64 * 64 * 4
    assert all(event["dur"] >= 0 for event in (*named(events, "Kernel", ""), copy))


def test_commands_lie_within_the_operator_that_made_them(tmp_path):
    x = paddle.rand([256, 256])
    events = profiled(tmp_path, lambda: paddle.matmul(x, x))
    ((operator,), (kernel,)) = named(events, "Operator", "matmul"), named(events, "Kernel", "matmul")
    # Beginnings are whole microseconds there.
    assert operator["ts"] - 1 <= kernel["ts"] and kernel["ts"] + kernel["dur"] <= operator["ts"] + operator["dur"] + 1


def test_the_backward_pass_is_there_too(tmp_path):
    x = paddle.rand([16, 16])
    x.stop_gradient = False
    events = profiled(tmp_path, lambda: paddle.matmul(x, x).sum().backward())
    (gradient,) = named(events, "Operator", "Global_MatmulGradNode")
    within = [kernel for kernel in named(events, "Kernel", "matmul") if gradient["ts"] - 1 <= kernel["ts"] <= gradient["ts"] + gradient["dur"]]
    assert len(within) == 2, "a product for each factor"


def test_paddle_s_tables_count_each_call(tmp_path, capsys):
    x = paddle.rand([32, 32])
    profiled(tmp_path, lambda: paddle.nn.functional.gelu(x), steps=3, summary=True)
    table = capsys.readouterr().out.split("Kernel Summary")[1]
    (line,) = [line for line in table.splitlines() if line.startswith("gelu")]
    assert line.split()[1] == "3", line


def test_only_the_steps_of_the_schedule_are_recorded(tmp_path):
    x = paddle.rand([32, 32])
    events = profiled(tmp_path, lambda: paddle.nn.functional.gelu(x), steps=5, scheduler=(1, 3))
    assert len(named(events, "Kernel", "gelu")) == 2


def test_a_trace_of_our_own_may_run_meanwhile(tmp_path):
    x, trace = paddle.rand([8, 8]), tmp_path / "own" / "trace.json"
    trace.parent.mkdir()
    with paddle.mps.profiler.profile(trace):
        events = profiled(tmp_path, lambda: paddle.nn.functional.gelu(x))
        paddle.nn.functional.gelu(x)
    assert len(named(events, "Kernel", "gelu")) == 1
    own = json.loads(trace.read_text())["traceEvents"]
    assert len([event for event in own if event["name"] == "gelu"]) == 2
