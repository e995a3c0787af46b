"""Which operators Paddle computed on the CPU because device ``mps`` has no kernel of that name and element type.

A fallback calls nothing of ours. Paddle says it in its log, at levels that are not shown; while fallbacks are recorded, these are on for the
two files of Paddle's that write such lines, and the log goes to a file that is read here and deleted. What Paddle shows on standard error
stays as it was.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from openmps.paddle.devices import DEVICE_TYPE, _native

__all__ = ["Fallback", "FallbackReport", "fallback_report", "record_fallbacks"]

# Seconds after which the log's file is read and deleted again, so that it stays small.
_INTERVAL = 5.0
# What is called one by one: a line for each call.
_CALL = re.compile(rf"missing {DEVICE_TYPE} kernel: ([^\s,]+), expected_kernel_key:\({DEVICE_TYPE}, .*, ([^\s,]+)\), fallback")
# What stands in a static program: two lines of one thread when the program is compiled.
_PLACED = re.compile(r" (\d+) pd_op_to_kernel_pass\.cc:\d+\] (?:(kernel backend must be on CPU when need fallback)|\[(\S+)\] selected kernel.*, ([^\s,]+)\)$|(op name ))")
# The files of Paddle's that write them, and their levels.
_MODULES = {b"kernel_factory": 3, b"pd_op_to_kernel_pass": 8}
# What OPENMPS_LOG may name beside levels for all.
_TARGET = "openmps::fallbacks"
_NAMED = 5  # operators in the line at exit
_INFO = 0  # Paddle's severities begin here
# Flags of glog, which writes Paddle's log, by the names of its symbols.
_FLAGS = {
    "minloglevel": ("_ZN3fLI17FLAGS_minloglevelE", ctypes.c_int),
    "logtostderr": ("_ZN3fLB17FLAGS_logtostderrE", ctypes.c_bool),
    "stderrthreshold": ("_ZN3fLI21FLAGS_stderrthresholdE", ctypes.c_int),
    "logbuflevel": ("_ZN3fLI17FLAGS_logbuflevelE", ctypes.c_int),
}


class Fallback(NamedTuple):
    """An operator that was computed on the CPU."""

    operator: str
    """Paddle's name of the kernel, as in docs/paddle-kernels.md; gradients end in ``_grad``."""
    dtype: str
    calls: int
    """How often it was called by itself."""
    in_programs: int
    """How often it stands in static programs that were compiled. How often those ran, nobody counts."""


class FallbackReport(list[Fallback]):
    """What fell back, the most calls first. It prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no operator was computed on the CPU for want of a kernel"
        rows = [("operator", "dtype", "calls", "in programs"), *((*row[:2], str(row.calls), str(row.in_programs)) for row in self)]
        name, dtype, *numbers = (max(map(len, column)) for column in zip(*rows))
        return "\n".join("  ".join([f"{row[0]:{name}}", f"{row[1]:{dtype}}", *(f"{text:>{width}}" for text, width in zip(row[2:], numbers))]) for row in rows)


class record_fallbacks:
    """Counts fallbacks from now on, beginning at none; ``record_fallbacks(False)`` ends it, and so does the end of a ``with`` block.

    A call that falls back takes a few microseconds more, others nothing. Gradients are counted, and what every thread calls. For static
    programs (``paddle.static``, ``to_static``) Paddle decides when it compiles them, so an operator counts once there, however often it
    runs. Not counted is what was called or compiled before, what a forked process calls, and programs of a process that compiled its first one
    before: what Paddle logs of them is settled then.
    """

    def __init__(self, on: bool = True):
        self._before = _State.recorder is not None
        _switch(on)

    def __enter__(self) -> record_fallbacks:
        return self

    def __exit__(self, *_) -> None:
        _switch(self._before)


def fallback_report() -> FallbackReport:
    """What was computed on the CPU since :func:`record_fallbacks` began; afterwards, what it has counted."""
    if _State.recorder is not None:
        _State.recorder.read()
    if _State.counts is None:
        raise RuntimeError("no fallbacks were recorded: paddle.mps.record_fallbacks() begins to, or OPENMPS_LOG=info from the start")
    counts = _State.counts
    rows = (Fallback(*key, counts.calls[key], counts.in_programs[key]) for key in {*counts.calls, *counts.in_programs})
    return FallbackReport(sorted(rows, key=lambda row: (-row.calls, -row.in_programs, row)))


def install() -> None:
    """Begins at once where ``OPENMPS_LOG`` asks for it, and says at exit what was counted."""
    if not _logs_information(_native().setting("OPENMPS_LOG") or "off"):
        return
    try:
        _switch(True)
    except RuntimeError as error:
        print(f"openmps: {error}", file=sys.stderr)
    else:
        atexit.register(_say, os.getpid())


class _Counts:
    """By operator and element type."""

    def __init__(self):
        self.calls: Counter[tuple[str, str]] = Counter()
        self.in_programs: Counter[tuple[str, str]] = Counter()
        self._falling: set[str] = set()  # threads that have just said that the next operator falls back

    def take(self, line: str) -> None:
        """Counts what a line of the log says."""
        if found := _CALL.search(line):
            self.calls[found[1], found[2]] += 1
        elif found := _PLACED.search(line):
            thread, falls, operator, dtype, _ = found.groups()
            if falls:
                self._falling.add(thread)
                return
            if operator and thread in self._falling:
                self.in_programs[operator, dtype] += 1
            self._falling.discard(thread)


class _State:
    recorder: _Recorder | None = None
    counts: _Counts | None = None


class _Log:
    """The logger within Paddle: its flags, and two of its functions."""

    def __init__(self):
        from paddle.base import libpaddle

        try:
            library = ctypes.CDLL(libpaddle.__file__)
            self.flags = {name: kind.in_dll(library, symbol) for name, (symbol, kind) in _FLAGS.items()}
            self.set_destination = library._ZN6google17SetLogDestinationEiPKc
            self.set_level = library._ZN6google12SetVLOGLevelEPKci
        except (OSError, AttributeError, ValueError) as error:
            raise RuntimeError(f"fallbacks cannot be recorded, the log of this PaddlePaddle is another one: {error}") from error
        self.set_destination.argtypes, self.set_destination.restype = (ctypes.c_int, ctypes.c_char_p), None
        self.set_level.argtypes, self.set_level.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_int
        self.found = self.values()

    def values(self) -> dict[str, int]:
        return {name: flag.value for name, flag in self.flags.items()}

    def set(self, values: dict[str, int]) -> None:
        for name, value in values.items():
            self.flags[name].value = value


class _Recorder:
    """Paddle's log in files of ours, from which a thread takes what is counted."""

    def __init__(self, counts: _Counts):
        self.counts, self.log = counts, _Log()
        if not self.log.found["logtostderr"]:
            raise RuntimeError("fallbacks cannot be recorded while PaddlePaddle's log goes to files (GLOG_logtostderr=0)")
        self.folder = Path(tempfile.mkdtemp(prefix="openmps-fallbacks-"))
        self.files, self.lock, self.ended = 0, threading.Lock(), threading.Event()
        for severity in range(_INFO + 1, _INFO + 4):
            self.log.set_destination(severity, b"")
        self._next_file()
        # What was shown is what was not suppressed; nothing is suppressed now, and what is not written at once a forked process would write again.
        shown = self.log.found["minloglevel"]
        self.log.set({"stderrthreshold": shown, "logbuflevel": -1, "logtostderr": False, "minloglevel": _INFO})
        self.levels = {module: self.log.set_level(module, level) for module, level in _MODULES.items()}
        threading.Thread(target=self._read_now_and_then, name="openmps-fallbacks", daemon=True).start()

    def _next_file(self) -> list[Path]:
        """From here on Paddle writes another file; those that it has written are complete."""
        self.files += 1
        prefix = f"{self.files}."
        self.log.set_destination(_INFO, os.fsencode(self.folder / prefix))
        return [path for path in self.folder.iterdir() if path.name[0].isdigit() and not path.name.startswith(prefix)]

    def read(self) -> None:
        """Counts what was logged until now."""
        with self.lock:
            if self.ended.is_set() or not any(self.folder.iterdir()):
                return
            for path in self._next_file():
                if not path.is_symlink():
                    with path.open(errors="replace") as lines:
                        for line in lines:
                            self.counts.take(line)
                path.unlink()

    def _read_now_and_then(self) -> None:
        while not self.ended.wait(_INTERVAL):
            self.read()

    def leave(self) -> None:
        """Gives Paddle its flags back, which takes no lock."""
        self.log.set(self.log.found)

    def stop(self) -> None:
        for module, level in self.levels.items():
            self.log.set_level(module, level)
        self.leave()
        self.read()
        self.ended.set()
        with self.lock:
            shutil.rmtree(self.folder, ignore_errors=True)


def _switch(on: bool) -> None:
    if on and _State.recorder is None:
        counts = _Counts()
        _State.recorder = _Recorder(counts)
        _State.counts = counts
    elif not on and _State.recorder is not None:
        recorder, _State.recorder = _State.recorder, None
        recorder.stop()


def _forget() -> None:
    """In a forked process, where the thread is not, and the files are the parent's."""
    if _State.recorder is not None:
        _State.recorder.leave()
    _State.recorder = _State.counts = None


def _say(process: int) -> None:
    """The line at exit."""
    if os.getpid() != process or _State.counts is None:
        return
    operators: dict[str, list[int]] = {}
    for row in fallback_report():
        calls, placed = operators.get(row.operator, (0, 0))
        operators[row.operator] = [calls + row.calls, placed + row.in_programs]
    named = []
    for name, (calls, placed) in sorted(operators.items(), key=lambda item: [-number for number in item[1]])[:_NAMED]:
        words = [f"{calls} call{'s' * (calls != 1)}"] * (calls > 0) + [f"{placed} in programs"] * (placed > 0)
        named.append(f"{name} ({', '.join(words)})")
    rest = [f"{len(operators) - _NAMED} more"] if len(operators) > _NAMED else []
    number = {0: "no operator was", 1: "1 operator was"}.get(len(operators), f"{len(operators)} operators were")
    text = f"openmps: {number} computed on the CPU for want of a kernel"
    print(": ".join([text, ", ".join(named + rest)] if named else [text]), file=sys.stderr)


def _logs_information(setting: str) -> bool:
    """Whether OPENMPS_LOG lets lines of information through: the longest target that fits decides, a level alone is for all."""
    levels = {"off": 0, "error": 1, "warn": 2, "info": 3, "debug": 4, "trace": 5}
    chosen = ("", 0)
    for part in filter(None, (part.strip() for part in setting.split(","))):
        target, separator, level = part.partition("=")
        if not separator and part.lower() in levels:
            target, level = "", part
        if _TARGET.startswith(target) and len(target) >= len(chosen[0]):
            chosen = (target, levels.get(level.lower(), 5))
    return chosen[1] >= levels["info"]


# A process that ends stops writing the files before it deletes them; registered first, it runs after the line at exit.
atexit.register(_switch, False)
os.register_at_fork(after_in_child=_forget)
