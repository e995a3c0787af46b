"""What Paddle's GPUs compute in half types: results and gradients are those of float32 of the same numbers, rounded once."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype("float32")


VOLUME, KERNEL = normal(2, 4, 5, 6, 7), normal(4, 4, 3, 2, 3)
IMAGE, FILTER = normal(2, 4, 8, 9), normal(6, 4, 3, 3)
OFFSET, MASK = normal(2, 18, 6, 7), np.abs(normal(2, 9, 6, 7))
BOXES = np.array([[0, 0, 5, 4], [1, 2, 7, 6], [2, 1, 6, 7]], "float32")
ROWS, EDGES = normal(7, 5), np.array([0, 1, 1, 3, 6, 6])


def whole(numbers) -> paddle.Tensor:
    return paddle.to_tensor(np.asarray(numbers))


CASES = {
    "conv3d": (lambda x, w: F.conv3d(x, w, stride=[1, 2, 1], padding=1), (VOLUME, KERNEL)),
    "conv3d, channels last": (lambda x, w: F.conv3d(x, w, data_format="NDHWC"), (np.moveaxis(VOLUME, 1, -1), KERNEL)),
    "conv3d_transpose": (lambda x, w: F.conv3d_transpose(x, w, stride=2), (VOLUME, KERNEL)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, return_mask=True)[0], (VOLUME,)),
    "max_unpool2d": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_mask=True), 2), (IMAGE[..., :8],)),
    "deform_conv2d": (lambda x, offset, w, mask: paddle.vision.ops.deform_conv2d(x, offset, w, mask=mask), (IMAGE, OFFSET, FILTER, MASK)),
    "roi_align": (lambda x: paddle.vision.ops.roi_align(x, paddle.to_tensor(BOXES).astype(x.dtype), whole([1, 2]).astype("int32"), 3), (IMAGE,)),
    "dist": (lambda x, y: paddle.dist(x, y, 3.0), (ROWS, ROWS[::-1].copy())),
    "affine_grid": (lambda theta: F.affine_grid(theta, [2, 4, 5, 6]), (normal(2, 2, 3),)),
    **{
        f"send_u_recv, {how}": (lambda x, how=how: paddle.geometric.send_u_recv(x, whole(EDGES), whole(EDGES[::-1].copy()), how), (ROWS,))
        for how in ("sum", "mean", "max")
    },
    **{
        f"segment_{how}": (lambda x, how=how: getattr(paddle.geometric, f"segment_{how}")(x, whole([0, 0, 1, 1, 1, 2, 2])), (ROWS,))
        for how in ("sum", "mean", "min", "max")
    },
    "send_ue_recv": (lambda x, e: paddle.geometric.send_ue_recv(x, e, whole(EDGES), whole(EDGES[::-1].copy()), "mul", "sum"), (ROWS, normal(6, 5))),
    "send_uv": (lambda x, y: paddle.geometric.send_uv(x, y, whole(EDGES), whole(EDGES[::-1].copy()), "mul"), (ROWS, normal(7, 5, seed=1))),
}


def computed(call, inputs, dtype: str, as_dtype: str):
    """The result and the gradients of numbers that *dtype* has, computed in *as_dtype*."""
    tensors = [paddle.to_tensor(x, place="mps").astype(dtype).astype(as_dtype) for x in inputs]
    for tensor in tensors:
        tensor.stop_gradient = False
    out = call(*tensors)
    assert out.dtype == getattr(paddle, as_dtype)
    weight = paddle.to_tensor(np.cos(np.arange(out.size)).reshape(out.shape).astype("float32"), place="mps").astype(dtype)
    (out * weight.astype(as_dtype)).sum().backward()
    return [value.astype("float32").numpy() for value in [out, *(tensor.grad for tensor in tensors)]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_half_types_are_float32_rounded(name, dtype):
    call, inputs = CASES[name]
    half, single = (computed(call, inputs, dtype, as_dtype) for as_dtype in (dtype, "float32"))
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    for number, (got, expected) in enumerate(zip(half, single, strict=True)):
        # The upstream gradient is rounded before it arrives, and a result twice where it was one of another step.
        np.testing.assert_allclose(got, expected, rtol=2 * unit, atol=2 * unit * np.abs(expected).max(), err_msg=f"{name}, result {number}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_searches_in_half_types(dtype):
    line = paddle.to_tensor(np.sort(normal(20)), place="mps").astype(dtype)
    values = paddle.to_tensor(normal(3, 4), place="mps").astype(dtype)
    expected = np.searchsorted(line.astype("float32").numpy(), values.astype("float32").numpy())
    np.testing.assert_array_equal(paddle.searchsorted(line, values).numpy(), expected)
    np.testing.assert_array_equal(paddle.bucketize(values, line).numpy(), expected)


def test_places_of_largest_elements_are_the_same_in_half_types():
    x = paddle.to_tensor(VOLUME, place="mps").astype("float16")
    for pool in (F.max_pool3d, F.adaptive_max_pool3d):
        half, single = pool(x, 2, return_mask=True), pool(x.astype("float32"), 2, return_mask=True)
        np.testing.assert_array_equal(half[1].numpy(), single[1].numpy())
        np.testing.assert_array_equal(half[0].astype("float32").numpy(), single[0].numpy())
