"""A run: kernel after kernel until the time is over, then what was found."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .case import Case
from .compare import difference
from .generate import case
from .processes import Worker
from .shrink import shrink

#: The devices, the share of a run's time that each has, and the share of kernels that may be refused: more would mean that little is
#: tested. Apple's GPUs have no 64-bit atomics and no products of integers.
DEVICES = {"host": (0.8, 0.05), "metal-emulated": (0.2, 0.2)}
#: The share of kernels that the generator may make for nothing, because the interpreter does not run them.
MOST_UNUSABLE = 0.05
#: Seconds for one kernel on either side.
LIMIT = 120.0
#: However slow the machine, a run compares so many.
LEAST = 5


@dataclass
class Report:
    """What became of the kernels of a run on one device."""

    device: str = "host"
    counts: Counter = field(default_factory=Counter)
    refusals: Counter = field(default_factory=Counter)
    unusable: Counter = field(default_factory=Counter)
    failures: list[tuple[int, str, Case]] = field(default_factory=list)

    @property
    def made(self) -> int:
        return sum(self.counts.values())

    def problems(self) -> list[str]:
        """Why the run is a failure; empty where it is none."""
        found = [f"kernel {number}: {what}" for number, what, _ in self.failures]
        most = DEVICES[self.device][1]
        if self.counts["refused"] > most * self.made + 1:
            found.append(f"{self.counts['refused']} of {self.made} kernels were refused, more than {most:.0%}")
        if self.counts["unusable"] > MOST_UNUSABLE * self.made + 1:
            found.append(f"the interpreter did not run {self.counts['unusable']} of {self.made} kernels, more than {MOST_UNUSABLE:.0%}")
        if self.counts["agreed"] == 0:
            found.append("no kernel was compared")
        return found


class Sides:
    """openmps on a device, and the interpreter."""

    def __init__(self, folder: Path, device: str = "host"):
        self.folder, self.device = folder, device
        self.ours = Worker(folder, OPENMPS_TRITON="1", OPENMPS_DEVICE=device, GLOG_minloglevel="2")
        self.theirs = Worker(folder, TRITON_INTERPRET="1", OPENMPS_TRITON="0")

    def try_file(self, path: Path, buffers: list) -> tuple[str, str]:
        """("agreed" | "refused" | "unusable" | "failed", what)."""
        self.ours.ask(path)
        self.theirs.ask(path)
        (outcome, mine), (reference, theirs) = self.ours.answer(LIMIT), self.theirs.answer(LIMIT)
        if outcome in ("crashed", "hung", "panicked") or (outcome == "refused" and "panicked" in mine):
            return "failed", f"{outcome}: {mine}"
        if reference != "ran":
            return "unusable", str(theirs)
        if outcome == "refused":
            return "refused", mine
        found = difference(buffers, mine, theirs)
        return ("failed", found) if found else ("agreed", "")

    def try_case(self, kernel: Case, name: str) -> tuple[str, str]:
        path = self.folder / f"{name}.py"
        path.write_text(kernel.text())
        buffers = [(b.element.name, b.count, b.values, b.seed, b.tolerance) for b in kernel.buffers]
        return self.try_file(path, buffers)

    def end(self) -> None:
        self.ours.end()
        self.theirs.end()


def explore(seconds: float, seed: int, sides: Sides, most: int = 1_000_000, most_failures: int = 10) -> Report:
    """Kernels 0, 1, ... of a seed until the time, the number or the failures are reached."""
    report, until, number = Report(sides.device), time.monotonic() + seconds, 0
    while number != most and len(report.failures) < most_failures and (time.monotonic() < until or report.counts["agreed"] < LEAST):
        kernel = case(seed, number, apart=sides.device != "host")
        outcome, what = sides.try_case(kernel, f"kernel_{seed}_{number}")
        report.counts[outcome] += 1
        if outcome == "failed":
            report.failures.append((number, what, kernel))
        elif outcome != "agreed":
            (report.refusals if outcome == "refused" else report.unusable)[what.splitlines()[-1][:160] if what else ""] += 1
        (sides.folder / f"kernel_{seed}_{number}.py").unlink()
        number += 1
    return report


def smallest(sides: Sides, kernel: Case, what: str, seconds: float) -> tuple[Case, str]:
    """The kernel made small, and what it then does wrong. One that crashes shall still crash, not merely differ."""
    kind, last, attempts = what.split(":")[0].split(" ")[0], what, 0

    def fails(candidate: Case) -> bool:
        nonlocal last, attempts
        attempts += 1
        outcome, found = sides.try_case(candidate, f"smaller_{attempts}")
        (sides.folder / f"smaller_{attempts}.py").unlink()
        if outcome != "failed" or found.split(":")[0].split(" ")[0] != kind:
            return False
        last = found
        return True

    return shrink(kernel, fails, seconds), last


def run(seconds: float, seed: int) -> bool:
    """Prints what was found on each device; true when everything agreed."""
    agreed = [_run_on(device, seconds * share, seed) for device, (share, _) in DEVICES.items()]
    return all(agreed)


def _run_on(device: str, seconds: float, seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides(Path(folder), device)
        try:
            report = explore(seconds, seed, sides)
            for number, what, kernel in report.failures:
                small, last = smallest(sides, kernel, what, 60)
                print(f"\nkernel {number} of seed {seed} on {device}: {last}\n{'-' * 100}\n{small.text()}{'-' * 100}")
        finally:
            sides.end()
    print(f"{device}: " + ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items())), f"of {report.made} kernels, seed {seed}")
    for title, messages in (("refused", report.refusals), ("not run by the interpreter", report.unusable)):
        for message, count in messages.most_common(12):
            print(f"  {title}, {count} times: {message}")
    problems = report.problems()
    print("\n".join(f"FAILED {problem}" for problem in problems) or "every kernel that ran agreed", flush=True)
    return not problems
