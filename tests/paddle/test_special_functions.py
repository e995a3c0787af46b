"""Special functions and shifts on device mps: values and gradients of Paddle's CPU, over the ranges where their formulas change."""

import numpy as np
import paddle
import pytest

RANDOM = np.random.default_rng(3)
WIDE = np.concatenate([RANDOM.uniform(-6, 30, 60), [0.5, 1.0, 2.0, 1e-3, 7.25, 150.0]]).reshape(6, 11)
POSITIVE = np.abs(WIDE) + 0.01
SMALL = np.abs(WIDE) % 9 + 0.05
UNIT = np.concatenate([RANDOM.uniform(-1, 1, 60), [0.0, 0.5, -0.5, 0.999, -0.999, 1e-6]]).reshape(6, 11)

CALLS = {
    "lgamma": (paddle.lgamma, [WIDE]),
    "gammaln": (paddle.gammaln, [POSITIVE]),
    "digamma": (paddle.digamma, [POSITIVE]),
    "digamma of negative numbers": (lambda x: paddle.digamma(x.detach()) * x, [-POSITIVE[:, 1:5] - 0.25]),
    "polygamma": (lambda x: paddle.polygamma(x, 1) + paddle.polygamma(x, 2) + paddle.polygamma(x, 4), [POSITIVE + 0.1]),
    "gammaincc": (lambda a, x: paddle.gammaincc(a.detach(), x), [SMALL, SMALL[::-1].copy()]),
    "gammainc": (lambda a, x: paddle.gammainc(a.detach(), x), [SMALL, SMALL[::-1].copy()]),
    "erfinv": (paddle.erfinv, [UNIT * 0.95]),
    "i0": (paddle.i0, [UNIT * 20]),
    "i0e": (paddle.i0e, [WIDE]),
    "i1": (paddle.i1, [UNIT * 20]),
    "i1e": (paddle.i1e, [WIDE]),
    "asinh": (paddle.asinh, [np.concatenate([WIDE, UNIT * 1e-3, UNIT * 1e15])]),
    "acosh": (paddle.acosh, [POSITIVE + 1]),
    "atanh": (paddle.atanh, [UNIT]),
    "copysign": (paddle.copysign, [WIDE, UNIT]),
    "copysign of zeros": (paddle.copysign, [np.array([1.0, 0.0, -0.0, 2.0]), np.array([-0.0, -1.0, 1.0, 0.0])]),
}


def run(name: str, device: str, dtype: str) -> list[np.ndarray]:
    paddle.set_device(device)
    call, arrays = CALLS[name]
    inputs = [paddle.to_tensor(array.astype(dtype), stop_gradient=False) for array in arrays]
    result = call(*inputs)
    (result * paddle.cos(paddle.arange(result.size, dtype=dtype)).reshape(result.shape)).sum().backward()
    return [result.numpy(), *(x.grad.numpy() for x in inputs if x.grad is not None)]


@pytest.mark.parametrize("name", CALLS)
def test_it_is_as_on_the_cpu(name):
    for dtype, tolerance in ("float32", 1e-5), ("float64", 1e-12):
        for mine, theirs in zip(run(name, "mps", dtype), run(name, "cpu", dtype), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def test_slopes_where_those_of_the_cpu_are_wrong():
    """Trigamma of negative numbers by its reflection, and the slope of the incomplete gamma function where powers overflow."""
    paddle.set_device("mps")
    x = paddle.to_tensor([-0.5, -1.25, -23.1], dtype="float64", stop_gradient=False)
    paddle.digamma(x).sum().backward()
    mirrored = (np.pi / np.sin(np.pi * x.numpy())) ** 2 - paddle.polygamma(1 - x.detach(), 1).numpy()
    np.testing.assert_allclose(x.grad.numpy(), mirrored, rtol=1e-12)
    y = paddle.to_tensor([25.0, 8.0], stop_gradient=False)
    paddle.gammaincc(paddle.to_tensor([29.0, 150.0]), y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), [-0.06321459690, 0.0], rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_shifts(dtype):
    bits = np.iinfo(dtype).bits
    x = np.array([0, 1, 5, -1, -7, np.iinfo(dtype).max, np.iinfo(dtype).min]).clip(np.iinfo(dtype).min).astype(dtype)
    distance = np.array([0, 1, 2, bits - 1]).astype(dtype)[:, None]
    for call in paddle.bitwise_left_shift, paddle.bitwise_right_shift:
        for is_arithmetic in True, False:
            got, expected = (call(paddle.to_tensor(x, place=place), paddle.to_tensor(distance, place=place), is_arithmetic).numpy() for place in ("mps", "cpu"))
            np.testing.assert_array_equal(got, expected)
