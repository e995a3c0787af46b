"""NumPy, with its OpenBLAS."""

from __future__ import annotations

import numpy as np

from libraries import shapes


def version() -> str:
    return f"NumPy {np.__version__}"


def works():
    made = {f"matmul {n}": (lambda n=n: _binary(np.matmul, (n, n))) for n in shapes.MATMUL}
    for label, count in shapes.ELEMENTS.items():
        for name, function in (("add", np.add), ("multiply", np.multiply)):
            made[f"{name} {label}"] = lambda function=function, count=count: _binary(function, (count,))
        for name, function in (("exp", np.exp), ("sum", np.sum)):
            made[f"{name} {label}"] = lambda function=function, count=count: _unary(function, count)
    made[f"x + y, {shapes.TINY} elements"] = lambda: _binary(lambda x, y: x + y, (shapes.TINY,))
    return made


def _tensor(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _unary(function, count: int):
    x = _tensor(count)
    return lambda: function(x)


def _binary(function, shape):
    x, y = _tensor(*shape), _tensor(*shape)
    return lambda: function(x, y)
