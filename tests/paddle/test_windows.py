"""Pooling by places, fractional pooling, norms over windows and resizing by wide filters: values, gradients and refusals, beside Paddle's CPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from beside_cpu import Case, assert_as_on_cpu, drawn, evaluated, replaced

operators = paddle._C_ops


def unpooled(axes: int, dtype: str, output: int = 5) -> Case:
    """Random places: of several numbers at one place the last stays."""
    shape = (2, 3, *[3] * axes)
    places = np.random.default_rng(axes).permuted(np.tile(np.arange(output**axes, dtype="int32"), (6, 1)), axis=1)
    places = places[:, : 3**axes].reshape(shape)

    def call(x, places):
        if axes == 2:
            return operators.unpool(x, places, [2, 2], [2, 2], [0, 0], [output] * 2, "NCHW")
        return operators.unpool3d(x, places, [2] * 3, [2] * 3, [0] * 3, [output] * 3, "NCDHW")

    return Case(call, (drawn(*shape, low=-9, high=9).astype(dtype), places), 1)


def fractional(axes: int, size: list[int], kernel: list[int] | None, shift: float, shape: tuple[int, ...], dtype: str = "float32") -> Case:
    pool = F.fractional_max_pool2d if axes == 2 else F.fractional_max_pool3d
    return Case(lambda x: pool(x, size, kernel, shift, return_mask=True), (drawn(*shape, dtype=dtype),), 1)


def ties(x: np.ndarray) -> np.ndarray:
    return np.round(x)


def norm_pool(norm: float, kernel, stride=None, padding=0, ceil=False, format="NCHW", dtype="float32", shape=(2, 3, 7, 8)) -> Case:
    def call(x):
        return F.lp_pool2d(x, norm, kernel, stride, padding, ceil, format)

    return Case(call, (drawn(*shape, low=0.1, dtype=dtype),), 1)


def whole_pool(kernel: list[int], is_global: bool, is_adaptive: bool) -> Case:
    def call(x):
        return operators.lp_pool2d(x, kernel, [1, 1], [0, 0], False, True, "NCHW", "", is_global, is_adaptive, "EXPLICIT", 2.0)

    return Case(call, (drawn(2, 3, 7, 8, low=0.1),), 1)


def resized(method: str, size=None, scale=None, align=False, format="NCHW", dtype="float32", shape=(2, 3, 9, 7)) -> Case:
    def call(x):
        return operators.interp_antialias(x, None, None, None, format, -1, *(size or (-1, -1)), scale or [], method, align, 0)

    return Case(call, (drawn(*shape, dtype=dtype),), 1)


CASES = {
    "unpool": unpooled(2, "float32"),
    "unpool, float64": unpooled(2, "float64"),
    "unpool3d": unpooled(3, "float32"),
    "unpool3d, float64": unpooled(3, "float64", 4),
    "unpool nothing": Case(unpooled(2, "float32").call, (np.zeros((0, 3, 3, 3), "float32"), np.zeros((0, 3, 3, 3), "int32")), 1),
    "fractional": fractional(2, [3, 4], None, 0.3, (2, 3, 7, 9)),
    "fractional, one window": fractional(2, [1, 2], None, 0.6, (1, 2, 5, 6)),
    "fractional, as many as there are": fractional(2, [5, 6], None, 0.7, (1, 2, 5, 6)),
    "fractional, kernels": fractional(2, [4, 3], [2, 3], 0.4, (2, 3, 8, 9)),
    "fractional, float64": fractional(2, [3, 3], None, 0.9, (2, 1, 8, 8), "float64"),
    "fractional, volumes": fractional(3, [2, 3, 3], None, 0.5, (2, 2, 5, 6, 7)),
    "fractional, volumes, kernels": fractional(3, [2, 3, 2], [2, 2, 3], 0.2, (1, 2, 5, 6, 7), "float64"),
    "fractional, ties": Case(fractional(2, [3, 3], None, 0.3, (2, 3, 7, 9)).call, (ties(drawn(2, 3, 7, 9)),), 1),
    "lp_pool2d": norm_pool(2.0, 3, 2),
    "lp_pool2d, sums": norm_pool(1.0, 2),
    "lp_pool2d, padded": norm_pool(3.0, [3, 2], [2, 1], 1),
    "lp_pool2d, ceil": norm_pool(2.5, 3, 2, 0, True),
    "lp_pool2d, same": norm_pool(2.0, 3, 2, "SAME"),
    "lp_pool2d, valid": norm_pool(2.0, 3, 2, "VALID"),
    "lp_pool2d, four borders": norm_pool(2.0, 3, 2, [0, 1, 1, 0]),
    "lp_pool2d, channels last": norm_pool(2.0, 3, 2, 1, format="NHWC"),
    "lp_pool2d, float64": norm_pool(2.0, 2, 1, dtype="float64"),
    "lp_pool2d, of all": whole_pool([1, 1], True, False),
    "lp_pool2d, adaptive": whole_pool([3, 5], False, True),
    "interp_antialias, smaller": resized("bilinear", (4, 3)),
    "interp_antialias, larger": resized("bilinear", (13, 11)),
    "interp_antialias, cubic": resized("bicubic", (4, 10)),
    "interp_antialias, corners": resized("bicubic", (5, 4), align=True),
    "interp_antialias, one element": resized("bilinear", (1, 1)),
    "interp_antialias, one element of corners": resized("bicubic", (1, 1), align=True),
    "interp_antialias, as large": resized("bilinear", (9, 7)),
    "interp_antialias, scale": resized("bilinear", scale=[0.45, 0.6]),
    "interp_antialias, channels last": resized("bicubic", (4, 3), format="NHWC"),
    "interp_antialias, float64": resized("bicubic", (4, 3), dtype="float64"),
    "interpolate": Case(lambda x: F.interpolate(x, size=[3, 3], mode="bilinear", antialias=True), (drawn(1, 2, 10, 12),), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_paddle_s_cpu(name):
    assert_as_on_cpu(CASES[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["fractional", "lp_pool2d", "interp_antialias, cubic"])
def test_half_types_are_near(name, dtype):
    case = CASES[name]
    exact = evaluated(case, "mps")[0]
    x = paddle.to_tensor(case.arrays[0]).astype(dtype)
    found = case.call(x)
    found = found[0] if isinstance(found, (tuple, list)) else found
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype("float32").numpy(), exact, rtol=2e-2, atol=2e-2)


def test_a_drawn_shift_is_the_seed_s():
    x = paddle.to_tensor(drawn(1, 1, 20, 20))

    def places(seed):
        paddle.seed(seed)
        return F.fractional_max_pool2d(x, 7, return_mask=True)[1].numpy()

    assert (places(3) == places(3)).all()
    assert any((places(3) != places(seed)).any() for seed in range(4, 9))


def normalized(x: np.ndarray, count: int, k: float, alpha: float, beta: float) -> np.ndarray:
    squares = np.pad(x.astype("float64") ** 2, [(0, 0), ((count - 1) // 2, count // 2), (0, 0), (0, 0)])
    sums = sum(squares[:, at : at + x.shape[1]] for at in range(count))
    return x / (k + alpha * sums) ** beta


@pytest.mark.parametrize("format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_local_response_normalisation_in_float64(count, format):
    x = drawn(2, 6, 3, 4)
    order = [0, 2, 3, 1] if format == "NHWC" else [0, 1, 2, 3]
    tensor = paddle.to_tensor(x.transpose(order), stop_gradient=False)
    out = paddle._legacy_C_ops.lrn(tensor, "n", count, "k", 1.5, "alpha", 0.2, "beta", 0.75, "data_format", format)
    out = out[0] if isinstance(out, (tuple, list)) else out
    np.testing.assert_allclose(out.numpy(), normalized(x, count, 1.5, 0.2, 0.75).transpose(order), rtol=1e-5, atol=1e-6)
    weights = drawn(*x.shape, low=0.5, high=1.5)
    (out * paddle.to_tensor(weights.transpose(order))).sum().backward()
    step, numeric = 1e-5, np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = [x.astype("float64"), x.astype("float64")]
        moved[0][place] += step
        moved[1][place] -= step
        above, below = [(normalized(m, count, 1.5, 0.2, 0.75) * weights).sum() for m in moved]
        numeric[place] = (above - below) / (2 * step)
    np.testing.assert_allclose(tensor.grad.numpy(), numeric.transpose(order), rtol=1e-3, atol=1e-4)


REFUSED = {
    "places beyond the output": (replaced(CASES["unpool"], 1, np.full((2, 3, 3, 3), 25, "int32")), "indices"),
    "places below 0": (replaced(CASES["unpool"], 1, np.full((2, 3, 3, 3), -1, "int32")), "indices"),
    "a filter that is not there": (resized("nearest", (3, 3)), "interp_method"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    case, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        evaluated(case, "mps")
