"""Random Triton kernels, compiled by openmps and under Triton's interpreter: memory must be the same afterwards."""

from .runs import run

__all__ = ["run"]
