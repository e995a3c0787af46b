"""What a soak saw: the memory of the process and of the device, run by run."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MEBIBYTE = 1 << 20
ALLOWED_GROWTH = 8 * MEBIBYTE
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Memory of this process in RAM: now where the system tells, else the peak so far."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def allocated_bytes(device: str) -> int:
    """Memory of the device in use; 0 on the CPU, which is not under test."""
    if device == "cpu":
        return 0
    from openmps import native

    return native.memory_statistics(int(device.partition(":")[2] or 0))["allocated"]


@dataclass
class Report:
    """What a soak saw."""

    runs: int
    seconds: float
    resident: list[int] = field(default_factory=list)
    allocated_before: int = 0
    allocated_during: int = 0
    allocated_after: int = 0

    @property
    def growth(self) -> int:
        """Bytes of resident memory gained between the second and the last quarter, by their medians."""
        quarter = max(1, len(self.resident) // 4)
        return int(np.median(self.resident[-quarter:]) - np.median(self.resident[quarter : 2 * quarter]))

    @property
    def leaked(self) -> int:
        return self.allocated_after - self.allocated_before

    def __str__(self) -> str:
        return (
            f"{self.runs} runs in {self.seconds:.1f} s; resident {self.resident[-1] / MEBIBYTE:.1f} MiB, "
            f"growth {self.growth / MEBIBYTE:+.2f} MiB; allocated on the device {self.allocated_before} bytes before, "
            f"{self.allocated_during} during, {self.allocated_after} after"
        )
