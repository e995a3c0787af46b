"""Runs the models of PP-OCRv4 for long at changing sizes and watches the memory.

    python tests/ocr/soak.py [--runs 2000] [--device mps]

A run takes one image through detection, a batch of lines through the angle classifier, and a batch of another width through
recognition. Resident memory must be flat after the first quarter, and the device's allocated memory back where it was when the
predictors are gone. Exit status 1 where it is not.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from soak_report import ALLOWED_GROWTH, MEBIBYTE, Report, allocated_bytes, resident_bytes


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
