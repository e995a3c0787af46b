"""``ReduceOp.AVG`` of ``paddle.distributed``: Paddle asks NVIDIA's library for its version, which only its builds for CUDA can answer."""

from __future__ import annotations


def install(paddle) -> None:
    """Answers that there is none: Paddle then divides and adds, and does not ask plug-in devices for averages, which its core refuses to do."""
    core = paddle.base.core
    if not hasattr(core, "nccl_version"):
        core.nccl_version = lambda: 0
