"""The four elementwise binary kernels in depth: broadcasting, element types, layouts, special values, gradients, sizes.

python tests/paddle/test_mps_kernels_comprehensive.py
"""

from __future__ import annotations

import operator as python
import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from report import Check, difference, parametrize, print_report, tensors

REFERENCES: dict[str, Callable] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((7,), (7,)),
    ((3, 4), (3, 4)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4, 1), (3, 1, 5)),
    ((5, 6), ()),
    ((), (5, 6)),
    ((), ()),
    ((1, 1), (8, 9)),
]
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 1e-38], np.float32)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers of both signs away from zero, so that a quotient is well-conditioned."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape), np.float32)


def compute(name: str, x, y):
    import paddle

    return getattr(paddle, name)(x, y)


def reference(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(REFERENCES[name](x.astype(np.float64), y.astype(np.float64)))


def broadcasting(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> float:
    x, y = numbers(left), numbers(right, 1)
    return difference(compute(name, *tensors(x, y)), reference(name, x, y))


def element_type(name: str, dtype: str) -> float:
    """The reference starts from what the type can hold; a result of fewer bits is rounded once."""
    x, y = tensors(numbers((33, 17)), numbers((33, 17), 1), dtype=dtype)
    exact = [tensor.astype("float64").numpy() for tensor in (x, y)]
    result = compute(name, x, y)
    assert str(result.dtype) == f"paddle.{dtype}"
    return difference(result, reference(name, *exact))


def integers(name: str, dtype: str) -> float:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(1, 11, (33, 17)).astype(dtype) for _ in range(2))
    if name == "divide":
        result = compute(name, *tensors(x, y))
        return difference(result, reference(name, x, y))
    return difference(compute(name, *tensors(x, y)), REFERENCES[name](x, y))


def transposed(name: str) -> float:
    x, y = numbers((6, 5)), numbers((5, 6), 1)
    a, b = tensors(x, y)
    return difference(compute(name, a.t(), b), reference(name, x.T, y))


def sliced(name: str) -> float:
    x, y = numbers((9, 14)), numbers((5, 7), 1)
    a, b = tensors(x, y)
    return difference(compute(name, a[::2, ::2], b), reference(name, x[::2, ::2], y))


def expanded(name: str) -> float:
    import paddle

    x, y = numbers((4, 1)), numbers((4, 6), 1)
    a, b = tensors(x, y)
    return difference(compute(name, paddle.expand(a, [4, 6]), b), reference(name, np.broadcast_to(x, (4, 6)), y))


def special_values(name: str) -> float:
    """Every pair of zeros, infinities, NaN and the ends of the range, as IEEE 754 has it in float32."""
    x, y = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    with np.errstate(all="ignore"):
        expected = REFERENCES[name](x, y)
    result = compute(name, *tensors(x, y)).numpy()
    agrees = (result == expected) | (np.isnan(result) & np.isnan(expected))
    agrees |= np.abs(result - expected) < 1.2e-38  # a GPU may flush subnormal numbers to zero
    if name == "divide":
        agrees |= np.abs(y) < 1.2e-38  # and then divides by zero
    assert agrees.all(), list(zip(x[~agrees], y[~agrees], result[~agrees], expected[~agrees], strict=True))
    return 0.0


def empty(name: str) -> float:
    x, y = np.zeros((0, 3), np.float32), np.ones((1, 3), np.float32)
    return difference(compute(name, *tensors(x, y)), reference(name, x, y))


def operator_symbol(name: str) -> float:
    """The operator of Python, and a number of Python on either side."""
    function = {"add": python.add, "subtract": python.sub, "multiply": python.mul, "divide": python.truediv}[name]
    x, y = numbers((4, 5)), numbers((4, 5), 1)
    a, b = tensors(x, y)
    return max(
        difference(function(a, b), reference(name, x, y)),
        difference(function(a, 2.5), reference(name, x, np.float32(2.5))),
        difference(function(2.5, a), reference(name, np.float32(2.5), x)),
    )


def in_place(name: str) -> float:
    x, y = numbers((4, 5)), numbers((4, 5), 1)
    a, b = tensors(x, y)
    getattr(a, f"{name}_")(b)
    return difference(a, reference(name, x, y))


def gradient(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """Gradients of f(x, y) against a gradient that comes in: summed over the axes that were broadcast."""
    x, y = numbers(left), numbers(right, 1)
    a, b = tensors(x, y, gradient=True)
    result = compute(name, a, b)
    weights = numbers(tuple(result.shape), 2)
    result.backward(*tensors(weights))
    w, u, v = (array.astype(np.float64) for array in (weights, x, y))
    by_left, by_right = {
        "add": (w, w),
        "subtract": (w, -w),
        "multiply": (w * v, w * u),
        "divide": (w / v, -w * u / v**2),
    }[name]
    return max(
        difference(tensor.grad, summed_to(terms, shape), summed_to(np.abs(terms), shape))
        for tensor, terms, shape in ((a, by_left, left), (b, by_right, right))
    )


def summed_to(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sums over the axes along which `shape` was broadcast."""
    values = values.sum(axis=tuple(range(values.ndim - len(shape))))
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and values.shape[axis] != 1)
    return values.sum(axis=axes, keepdims=True)


def large(name: str) -> float:
    x, y = numbers((1 << 20,)), numbers((1 << 20,), 1)
    return difference(compute(name, *tensors(x, y)), reference(name, x, y))


def shape_error(name: str) -> None:
    """Shapes that do not fit are an exception of Python, and the device goes on."""
    x, y = tensors(numbers((3, 4)), numbers((3, 5)))
    try:
        compute(name, x, y)
    except ValueError:
        return
    raise AssertionError("no exception")


def label(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


GRADIENT_SHAPES = [SHAPES[1], SHAPES[3], SHAPES[5], SHAPES[7], SHAPES[8]]
SECTIONS: dict[str, list[Check]] = {
    f"{name.title()} (x {SYMBOLS[name]} y)": [
        *(Check(f"{name} broadcast {label(a)} and {label(b)}", partial(broadcasting, name, a, b)) for a, b in SHAPES),
        *(Check(f"{name} {dtype}", partial(element_type, name, dtype)) for dtype in FLOATS),
        *(Check(f"{name} {dtype}", partial(integers, name, dtype)) for dtype in INTEGERS if name != "divide" or dtype[:3] == "int"),
        Check(f"{name} transposed", partial(transposed, name)),
        Check(f"{name} sliced", partial(sliced, name)),
        Check(f"{name} expanded", partial(expanded, name)),
        Check(f"{name} special values", partial(special_values, name)),
        Check(f"{name} empty", partial(empty, name)),
        Check(f"{name} as {SYMBOLS[name]}", partial(operator_symbol, name)),
        Check(f"{name} in place", partial(in_place, name)),
        *(Check(f"{name} gradient {label(a)} and {label(b)}", partial(gradient, name, a, b)) for a, b in GRADIENT_SHAPES),
        Check(f"{name} one million elements", partial(large, name)),
        Check(f"{name} refuses shapes that do not fit", partial(shape_error, name)),
    ]
    for name in REFERENCES
}


@parametrize(SECTIONS)
def test_kernels(check: Check) -> None:
    check.run()


if __name__ == "__main__":
    sys.exit(bool(print_report("Comprehensive MPS Kernel Test", SECTIONS)))
