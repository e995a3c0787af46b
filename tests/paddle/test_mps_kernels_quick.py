"""A minute's look at the elementwise binary kernels: the report of the seed, and a test for each line of it.

python tests/paddle/test_mps_kernels_quick.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from report import Check, difference, parametrize, print_report, tensors

OPERATORS: dict[str, Callable] = {"Add": np.add, "Multiply": np.multiply, "Subtract": np.subtract, "Divide": np.divide}
SHAPES = {"same shape": ((64, 48), (64, 48)), "broadcast": ((64, 48), (48,)), "scalar": ((64, 48), ())}


def check(operator: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
    import paddle

    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in shapes)
    result = getattr(paddle, operator.lower())(*tensors(x, y))
    return difference(result, OPERATORS[operator](x.astype(np.float64), y.astype(np.float64)))


SECTIONS = {
    "Testing Operations": [
        Check(f"{operator} ({name})", lambda operator=operator, shapes=shapes: check(operator, shapes))
        for operator in OPERATORS
        for name, shapes in SHAPES.items()
    ]
}


@parametrize(SECTIONS)
def test_kernels(check: Check) -> None:
    check.run()


if __name__ == "__main__":
    sys.exit(bool(print_report("Quick MPS Kernel Test", SECTIONS)))
