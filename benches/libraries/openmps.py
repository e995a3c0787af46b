"""openmps: the same calls of PaddlePaddle, on device mps."""

from __future__ import annotations

import os

os.environ["OPENMPS_BENCH_DEVICE"] = "mps"

import openmps
from libraries.paddle_cpu import synchronize, works

__all__ = ["synchronize", "version", "works"]


def version() -> str:
    return f"openmps {openmps.__version__}"
