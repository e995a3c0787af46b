"""The six unary kernels of the seed: values, element types, layouts, special values, gradients.

python tests/paddle/test_mps_unary_operators.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from report import Check, difference, parametrize, print_report, tensors


@dataclass(frozen=True)
class Operator:
    """An operator with its reference, its derivative, and the interval on which it is tried."""

    call: str
    value: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    low: float = -4.0
    high: float = 4.0

    def __call__(self, tensor):
        import paddle

        return getattr(paddle.nn.functional if self.call in ("relu", "sigmoid") else paddle, self.call)(tensor)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


OPERATORS = {
    "Abs": Operator("abs", np.abs, np.sign),
    "Exp": Operator("exp", np.exp, np.exp),
    "Log": Operator("log", np.log, np.reciprocal, low=0.1),
    "Sqrt": Operator("sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x), low=0.1),
    "ReLU": Operator("relu", lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype)),
    "Sigmoid": Operator("sigmoid", _sigmoid, lambda x: _sigmoid(x) * (1 - _sigmoid(x))),
}
SHAPES = [(), (1,), (1000,), (31, 33), (2, 3, 4, 5), (0,), (4, 0, 3)]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.0, -88.0, 200.0, -200.0, 1e30, 1e-30], np.float32)


def numbers(operator: Operator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.random.default_rng(0).uniform(operator.low, operator.high, shape), np.float32)


def values(operator: Operator, shape: tuple[int, ...]) -> float:
    x = numbers(operator, shape)
    return difference(operator(*tensors(x)), operator.value(x.astype(np.float64)))


def element_type(operator: Operator, dtype: str) -> float:
    (x,) = tensors(numbers(operator, (31, 33)), dtype=dtype)
    result = operator(x)
    assert str(result.dtype) == f"paddle.{dtype}"
    return difference(result, operator.value(x.astype("float64").numpy()))


def transposed(operator: Operator) -> float:
    x = numbers(operator, (6, 5))
    return difference(operator(tensors(x)[0].t()), operator.value(x.T.astype(np.float64)))


def sliced(operator: Operator) -> float:
    x = numbers(operator, (20, 6))
    return difference(operator(tensors(x)[0][3::4, ::2]), operator.value(x[3::4, ::2].astype(np.float64)))


def special_values(operator: Operator) -> float:
    """Zeros, infinities, NaN, and arguments at which the result leaves the range."""
    with np.errstate(all="ignore"):
        expected = operator.value(SPECIAL.astype(np.float64)).astype(np.float32).astype(np.float64)
    if operator.call == "relu":
        expected[np.isnan(SPECIAL)] = np.nan
    return difference(operator(*tensors(SPECIAL)), expected)


def gradient(operator: Operator) -> float:
    x = numbers(operator, (31, 33))
    (tensor,) = tensors(x, gradient=True)
    incoming = np.random.default_rng(1).uniform(0.5, 2.0, x.shape).astype(np.float32)
    operator(tensor).backward(*tensors(incoming))
    return difference(tensor.grad, operator.slope(x.astype(np.float64)) * incoming)


def label(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


SECTIONS: dict[str, list[Check]] = {
    name: [
        *(Check(f"{name} {label(shape)}", partial(values, operator, shape)) for shape in SHAPES),
        *(Check(f"{name} {dtype}", partial(element_type, operator, dtype)) for dtype in ("float16", "bfloat16", "float64")),
        Check(f"{name} transposed", partial(transposed, operator)),
        Check(f"{name} sliced", partial(sliced, operator)),
        Check(f"{name} special values", partial(special_values, operator)),
        Check(f"{name} gradient", partial(gradient, operator)),
    ]
    for name, operator in OPERATORS.items()
}


@parametrize(SECTIONS)
def test_operators(check: Check) -> None:
    check.run()


if __name__ == "__main__":
    sys.exit(bool(print_report("MPS Unary Operators Test", SECTIONS)))
