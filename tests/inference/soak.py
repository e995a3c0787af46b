"""Runs a program for long at many shapes and watches the memory.

    python tests/inference/soak.py FOLDER [--runs 10000] [--shapes 500]

FOLDER is where the program is saved to. More shapes come in turn than a predictor keeps, so that most runs compile anew. Resident
memory must be flat after the first quarter, the device's memory must stay where the first quarter had it, and be given back with the
predictor. Exit status 1 where it is not.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "ocr")]

from networks import feed, ours, results, save
from soak_report import ALLOWED_GROWTH, Report, allocated_bytes, resident_bytes

NETWORK = "detector"


def soak(folder: Path, runs: int, shapes: int, progress: bool = False) -> Report:
    """Makes a predictor, runs it, and lets it go."""
    before = allocated_bytes("mps")
    predictor = ours(folder, NETWORK)
    report = Report(runs, 0.0, allocated_before=before)
    columns = int(np.ceil(shapes**0.5))
    order = np.random.default_rng(0)
    start = time.perf_counter()
    early = 0
    for run in range(runs):
        number = int(order.integers(shapes))
        data = feed(NETWORK, 1, 32 + 4 * (number % columns), 32 + 4 * (number // columns))
        assert all(np.isfinite(result).all() for result in results(predictor, data))
        report.resident.append(resident_bytes())
        report.allocated_during = max(report.allocated_during, allocated_bytes("mps"))
        if run == runs // 4:
            early = report.allocated_during
        if progress and (run + 1) % max(1, runs // 20) == 0:
            print(f"{run + 1:6} runs, {resident_bytes() / 2**20:8.1f} MiB resident, {allocated_bytes('mps') / 2**20:6.2f} MiB allocated", flush=True)
    report.seconds = time.perf_counter() - start
    del predictor
    gc.collect()
    report.allocated_after = allocated_bytes("mps")
    assert report.allocated_during <= 1.05 * early, f"{early} bytes after a quarter, {report.allocated_during} at the most"
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=500)
    options = parser.parse_args()
    save(options.folder, [NETWORK])
    report = soak(options.folder, options.runs, options.shapes, progress=True)
    print(report)
    return int(report.growth > ALLOWED_GROWTH or report.leaked > 0)


if __name__ == "__main__":
    sys.exit(main())
