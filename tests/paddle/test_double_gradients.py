"""Gradients of gradients on device mps are those of Paddle's CPU: of functions of one tensor, of sums, products and quotients that broadcast."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

X = np.random.default_rng(1).standard_normal((3, 4)).astype("float32")
POSITIVE = np.abs(X) + 0.3
ROW = np.random.default_rng(2).standard_normal((1, 4)).astype("float32") + 3
IMAGE, KERNEL = (np.random.default_rng(3).standard_normal(shape).astype("float32") for shape in ((2, 3, 5, 6), (4, 3, 3, 2)))

# Each with its inputs, and how often it is differentiated.
CALLS = {
    "relu": (F.relu, [X], 2),
    "leaky_relu": (F.leaky_relu, [X], 2),
    "elu": (lambda x: F.elu(x, 0.7), [X], 2),
    "celu": (lambda x: F.celu(x, 0.7), [X], 2),
    "softplus": (lambda x: F.softplus(x, 2.0, 1.5), [X], 2),
    "sigmoid": (F.sigmoid, [X], 3),
    "tanh": (paddle.tanh, [X], 3),
    "log": (paddle.log, [POSITIVE], 2),
    "sqrt": (paddle.sqrt, [POSITIVE], 2),
    "rsqrt": (paddle.rsqrt, [POSITIVE], 2),
    "square": (paddle.square, [X], 2),
    "abs": (paddle.abs, [X], 2),
    "sin": (paddle.sin, [X], 3),
    "cos": (paddle.cos, [X], 3),
    "pow": (lambda x: paddle.pow(x, 3.5), [POSITIVE], 3),
    "pow, 2": (lambda x: paddle.pow(x, 2.0), [X], 2),
    "add": (lambda x, y: paddle.add(x * x, y * y), [X, ROW], 2),
    "subtract": (lambda x, y: paddle.subtract(x * x, y * y), [X, ROW], 2),
    "multiply": (lambda x, y: paddle.multiply(x * x, y), [X, ROW], 3),
    "divide": (paddle.divide, [X, ROW], 2),
    "divide by a column": (lambda x, y: paddle.divide(y, x), [POSITIVE, ROW], 2),
    "matmul": (lambda x, y: paddle.matmul(x * x, y, transpose_y=True), [X, ROW], 2),
    "matmul of batches": (lambda x, y: paddle.matmul(x, y), [np.stack([X, X + 1]), np.stack([X.T, X.T * 2])], 2),
    "matmul, thrice": (lambda x, y: paddle.matmul(x * x, y, transpose_y=True), [X, ROW], 3),
    "matmul of batches, thrice": (lambda x, y: paddle.matmul(x, y, transpose_x=True), [np.stack([X.T, X.T + 1]), np.stack([X.T, X.T * 2])], 3),
    "instance_norm": (lambda x, w: F.instance_norm(x * x, weight=w[0, :3], bias=w[0, 1:]), [IMAGE, ROW], 2),
    "batch_norm": (lambda x, w: F.batch_norm(x * x, paddle.zeros([3]), paddle.ones([3]), w[0, :3], w[0, 1:], training=True), [IMAGE, ROW], 2),
    "batch_norm, known": (lambda x, w: F.batch_norm(x * x, paddle.full([3], 0.3), paddle.full([3], 1.7), w[0, :3], w[0, 1:], training=True, use_global_stats=True), [IMAGE, ROW], 2),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), [IMAGE, KERNEL], 2),
    "avg_pool2d": (lambda x: F.avg_pool2d(x * x, 3, 2, 1, exclusive=False), [IMAGE], 2),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), [IMAGE[..., None] * ROW[0], KERNEL[..., None] + 1], 2),
}


def run(name: str, device: str) -> list[np.ndarray]:
    """The gradients of the weighed sum of all gradients, as often as that goes."""
    paddle.set_device(device)
    call, arrays, times = CALLS[name]
    inputs = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
    weigh = lambda value, phase: (value * paddle.cos(paddle.arange(value.size, dtype="float32") + phase).reshape(value.shape)).sum()
    loss, results = weigh(call(*inputs), 0.0), []
    for time in range(times):
        gradients = paddle.grad(loss, inputs, create_graph=time + 1 < times, allow_unused=True)
        present = [gradient for gradient in gradients if gradient is not None]
        results += [gradient.numpy() for gradient in present]
        loss = sum(weigh(gradient, 1.0 + time) for gradient in present)
    return results


@pytest.mark.parametrize("name", CALLS)
def test_it_is_as_on_the_cpu(name):
    mine, theirs = run(name, "mps"), run(name, "cpu")
    assert len(mine) == len(theirs) >= CALLS[name][2]
    for got, expected in zip(mine, theirs):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * max(1.0, np.abs(expected).max()))


def test_batch_norm_with_channels_last_is_that_with_channels_first():
    """Paddle's CPU leaves the weight's gradient unwritten there."""
    weight = paddle.to_tensor(ROW[0, :3], stop_gradient=False)

    def second(channels_last: bool) -> list[np.ndarray]:
        x = paddle.to_tensor(IMAGE.transpose(0, 2, 3, 1).copy() if channels_last else IMAGE, stop_gradient=False)
        layout = "NHWC" if channels_last else "NCHW"
        out = F.batch_norm(x * x, paddle.zeros([3]), paddle.ones([3]), weight, paddle.zeros([3]), training=True, data_format=layout)
        loss = (out**3).sum()
        first = paddle.grad(loss, [x, weight], create_graph=True)
        found = paddle.grad((first[0] ** 2).sum() + (first[1] ** 2).sum(), [x, weight])
        return [found[0].numpy().transpose(0, 3, 1, 2) if channels_last else found[0].numpy(), found[1].numpy()]

    for last, first in zip(second(True), second(False), strict=True):
        np.testing.assert_allclose(last, first, rtol=1e-4, atol=1e-4 * np.abs(first).max())
