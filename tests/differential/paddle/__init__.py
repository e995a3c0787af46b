"""Random calls of Paddle's public functions, values and gradients, on device mps against Paddle's CPU device and against float64."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import pathlib
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from .found import FOUND
from .judge import Case, Outcome, case_of, judge
from .result import Result
from .row import Row
from .table import ROWS as ROWS
from .worker import serve

LOST = "lost to a crash of Paddle's CPU"
# A case that takes longer hangs.
PATIENCE = 60


class Died(Exception):
    """A worker's process ended, or had to be ended, within a case."""


class Device:
    """A process that evaluates on one device, and is started anew after it died."""

    def __init__(self, name: str, folder: str):
        self.name, self.log, self.process = name, pathlib.Path(folder, name), None

    def ask(self, case: Case, noisy: int | None) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.connection, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other, self.name, str(self.log)), daemon=True)
            self.process.start()
            other.close()
        with contextlib.suppress(OSError):  # the answer says why
            self.connection.send((case.text, case.gradients, noisy))

    def answer(self) -> list[Result]:
        try:
            if self.connection.poll(PATIENCE):
                return self.connection.recv()
            reason = f"hang: no answer within {PATIENCE} seconds"
            self.process.kill()
        except (EOFError, OSError):
            self.process.join()
            status = self.process.exitcode
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if "Error" in line or "panicked" in line]
            reason = f"crash: {signal.Signals(-status).name if status < 0 else f'exit status {status}'} {' '.join(lines[-1:])[:200]}"
        self.close()
        raise Died(reason)

    def close(self) -> None:
        if self.process is not None:
            self.connection.close()
            self.process.join(5)
            self.process.kill()
            self.process = None


@dataclass
class Report:
    """What the cases of a run came to."""

    seed: int
    kinds: dict[str, int] = field(default_factory=dict)
    without_kernel: dict[str, int] = field(default_factory=dict)
    on_purpose: dict[str, int] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    findings: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.findings and self.kinds.get("right", 0) > self.kinds.get(LOST, 0)

    def add(self, case: Case, outcome: Outcome) -> None:
        self.kinds[outcome.kind] = self.kinds.get(outcome.kind, 0) + 1
        self.rows.add(case.row.call)
        for kind, counts in (("missing", self.without_kernel), ("different", self.on_purpose)):
            if outcome.kind == kind:
                counts[outcome.detail] = counts.get(outcome.detail, 0) + 1
        if outcome.kind == "wrong":
            self.findings += 1
            line = f"from differential.paddle import show; show({case.text!r}, gradients={case.gradients})"
            print(f"wrong: {outcome.detail}\n  {line}  # seed {self.seed}, case {case.number}", flush=True)

    def summary(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        lines = [f"{sum(self.kinds.values())} cases of {len(self.rows)} calls: {kinds}"]
        if self.on_purpose:
            lines.append("different on purpose: " + ", ".join(f"{title} ({count})" for title, count in sorted(self.on_purpose.items())))
        if self.without_kernel:
            lines.append(f"not compared, {len(self.without_kernel)} kernels are missing: " + ", ".join(sorted(self.without_kernel)))
        return "\n".join(lines)


def compared(case: Case, ours: Device, theirs: Device) -> Outcome:
    """One case on both devices, at the same time."""
    ours.ask(case, None)
    theirs.ask(case, case.noisy)
    died = None
    try:
        [mine] = ours.answer()
    except Died as error:
        died = error
    try:
        peer, *doubles = theirs.answer()
    except Died:
        return Outcome("wrong", str(died)) if died else Outcome(LOST)
    return Outcome("wrong", str(died)) if died else judge(case, mine, peer, doubles[0] if doubles else None, doubles[1:])


def run(seconds: float, seed: int) -> bool:
    """Runs random cases for so long; after a crash, which is a finding, the next case follows."""
    return report_of_random(seconds, seed).is_clean


def report_of_random(seconds: float, seed: int) -> Report:
    """The same, with what it came to."""
    return report_of(within(seconds, map(partial(case_of, seed), itertools.count())), seed)


def report_of_first(count: int, seed: int) -> Report:
    """The first random calls of a seed: as many on a fast machine as on a slow one."""
    return report_of(map(partial(case_of, seed), range(count)), seed)


def within(seconds: float, cases: Iterator[Case]) -> Iterator[Case]:
    """As many as there is time for, which begins after the first: that one waits until both processes have loaded Paddle."""
    yield next(cases)
    until = time.monotonic() + seconds
    yield from itertools.takewhile(lambda _: time.monotonic() < until, cases)


def repeat_found() -> bool:
    """Runs the calls that were wrong once."""
    rows = enumerate(FOUND)
    return report_of((Case(number, Row(text, (), tolerance=tolerance), text, gradients) for number, (text, gradients, tolerance) in rows), seed=0).is_clean


def report_of(cases: Iterable[Case], seed: int) -> Report:
    report = Report(seed)
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Device("mps", folder), Device("cpu", folder)
        for case in cases:
            report.add(case, compared(case, ours, theirs))
        ours.close()
        theirs.close()
    print(report.summary())
    return report


def show(text: str, gradients: bool = False) -> None:
    """Prints what both devices make of a call: to look into a finding."""
    from .evaluate import evaluate

    for device, double in (("cpu", True), ("cpu", False), ("mps", False)):
        result = evaluate(text, device, gradients, double)
        print(f"--- {'float64' if double else device}", flush=True)
        if result.raised:
            print(f"{result.where}: {result.raised}: {result.message[:600]}")
        for kind, parts in (("value", result.values), ("gradient", result.gradients)):
            for part in parts:
                print(f"{kind}: {part}", flush=True)
