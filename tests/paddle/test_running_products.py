"""Gradients of running products that begin at the other end or leave out the element itself."""

from __future__ import annotations

import itertools

import numpy as np
import paddle
import pytest
from paddle import _C_ops

KINDS = list(itertools.product([False, True], [False, True]))
SHAPES = [((2, 4), 1), ((2, 4), 0), ((3, 5, 2), -2), ((6,), 0), ((1,), 0), ((2, 1), 1), ((0, 3), 1), ((3, 0), 1)]


def gradients(device: str, x: np.ndarray, axis: int, kind: tuple[bool, bool]) -> list[np.ndarray]:
    paddle.set_device(device)
    tensor = paddle.to_tensor(x, stop_gradient=False)
    products = _C_ops.cumprod(tensor, axis, *kind)
    (products * paddle.arange(1, x.size + 1).reshape(x.shape).astype(products.dtype)).sum().backward()
    return [products.astype("float64").numpy(), tensor.grad.astype("float64").numpy()]


def slopes(x: np.ndarray, axis: int, kind: tuple[bool, bool]) -> np.ndarray:
    """By the sum over all products that an element is in, each without it."""
    exclusive, reverse = kind
    lines = np.moveaxis(x, axis, -1)
    weights = np.moveaxis(np.arange(1.0, x.size + 1).reshape(x.shape), axis, -1)
    found = np.zeros_like(lines)
    for at in np.ndindex(lines.shape):
        line, own, size = lines[at[:-1]], at[-1], lines.shape[-1]
        for place in range(size):
            members = range(place, size) if reverse else range(place + 1)
            members = [member for member in members if not (exclusive and member == place)]
            if own in members:
                found[at] += weights[(*at[:-1], place)] * np.prod([line[member] for member in members if member != own])
    return np.moveaxis(found, -1, axis)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"exclusive {kind[0]}, reverse {kind[1]}")
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_gradients_are_those_of_the_cpu(shape, axis, kind):
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("float32")
    for found, expected in zip(gradients("mps", x, axis, kind), gradients("cpu", x, axis, kind), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"exclusive {kind[0]}, reverse {kind[1]}")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_gradients_are_the_formula_where_factors_are_zero(dtype, kind):
    x = np.array([[1.5, 0.0, -0.5, 2.0], [0.5, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 0.0]])
    paddle.set_device("mps")
    tensor = paddle.to_tensor(x).astype(dtype)
    tensor.stop_gradient = False
    products = _C_ops.cumprod(tensor, 1, *kind)
    (products.astype("float64") * paddle.arange(1.0, 13.0, dtype="float64").reshape([3, 4])).sum().backward()
    tolerance = {"float64": 1e-13, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(tensor.grad.astype("float64").numpy(), slopes(x, 1, kind), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"exclusive {kind[0]}, reverse {kind[1]}")
def test_a_tensor_of_no_dimensions_is_its_own_product_unless_it_is_left_out(kind):
    """Paddle's CPU gives the tensor itself in both cases."""
    products, gradient = gradients("mps", np.asarray(1.5, "float32"), 0, kind)
    assert (products, gradient) == ((1.0, 0.0) if kind[0] else (1.5, 1.0))
