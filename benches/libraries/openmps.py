"""openmps: the same calls of PaddlePaddle, on device mps, and models of ONNX by ONNX Runtime's names."""

from __future__ import annotations

import os

os.environ["OPENMPS_BENCH_DEVICE"] = "mps"

import openmps
import openmps.onnx
from libraries import onnx_sessions, paddle_cpu, shapes
from libraries.paddle_cpu import synchronize
from paddle_custom_device import openmps_native as native

__all__ = ["ceilings", "synchronize", "version", "works"]


def works():
    return paddle_cpu.works() | onnx_sessions.works(openmps.onnx)


def ceilings() -> dict[str, float]:
    """What this machine does at most with these threads: arithmetic of float32 a second, and bytes a second by what is done and how many."""
    traffic = {f"{kind} {label}": native.host_bandwidth(kind, size) for kind in ("read", "copy") for label, size in shapes.MEMORY.items()}
    return {"arithmetic": native.ceilings(0)[1], **traffic}


def version() -> str:
    return f"openmps {openmps.__version__}"
