"""Runs the models of PP-OCRv4 for long at changing sizes and watches the memory.

    python tests/ocr/soak.py [--runs 2000] [--device mps]

A run takes one image through detection, a batch of lines through the angle classifier, and a batch of another width through
recognition. Resident memory must be flat after the first quarter, and the device's allocated memory back where it was when the
predictors are gone. Exit status 1 where it is not.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

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


def soak(runs: int, device: str, progress: bool = False) -> Report:
    """Makes the predictors, runs them, and lets them go."""
    from pipeline import Predictor

    gc.collect()
    report = Report(runs, 0.0, allocated_before=allocated_bytes(device))
    predictors = {name: Predictor(name, device) for name in ("det", "cls", "rec")}
    rng = np.random.default_rng(0)
    sizes = [(height, width) for height in (64, 96, 128) for width in (64, 128, 160)]
    start = time.perf_counter()
    for run in range(runs):
        height, width = sizes[run % len(sizes)]
        lines = 1 + run % 4
        image = rng.uniform(-1, 1, (1, 3, height, width)).astype(np.float32)
        crops = rng.uniform(-1, 1, (lines, 3, 48, 192)).astype(np.float32)
        words = rng.uniform(-1, 1, (lines, 3, 48, 64 + 16 * (run % 9))).astype(np.float32)
        for name, data in (("det", image), ("cls", crops), ("rec", words)):
            assert np.isfinite(predictors[name](data)).all()
        report.resident.append(resident_bytes())
        report.allocated_during = max(report.allocated_during, allocated_bytes(device))
        if progress and (run + 1) % max(1, runs // 20) == 0:
            print(f"{run + 1:6} runs, {resident_bytes() / MEBIBYTE:8.1f} MiB resident", flush=True)
    report.seconds = time.perf_counter() - start
    del predictors
    gc.collect()
    report.allocated_after = allocated_bytes(device)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--device", default="mps")
    options = parser.parse_args()
    report = soak(options.runs, options.device, progress=True)
    print(report)
    return int(report.growth > ALLOWED_GROWTH or report.leaked > 0)


if __name__ == "__main__":
    sys.exit(main())
