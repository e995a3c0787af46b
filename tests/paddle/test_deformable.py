"""Deformable convolution and correlation on device mps, without fallback: as on Paddle's CPU, or in float64 where it has none."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.vision import ops

# Images, channels, height, width; filters, taps down and across; options; whether there is a mask.
CASES = {
    "plain": ((2, 3, 7, 6), (4, 3, 3), {}, True),
    "without a mask": ((2, 3, 7, 6), (4, 3, 3), {}, False),
    "strides and paddings": ((1, 4, 9, 8), (6, 3, 3), {"stride": [2, 1], "padding": [1, 2]}, True),
    "dilated": ((1, 2, 9, 9), (3, 3, 2), {"dilation": 2, "padding": 1}, True),
    "groups": ((2, 4, 6, 6), (6, 3, 3), {"groups": 2, "padding": 1}, True),
    "deformable groups": ((2, 4, 6, 6), (6, 3, 3), {"deformable_groups": 2, "padding": 1}, True),
    "both kinds of groups": ((1, 8, 5, 6), (4, 1, 2), {"deformable_groups": 4, "groups": 2}, False),
    "one element": ((1, 1, 1, 1), (1, 1, 1), {}, True),
}


def drawn(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape)


def pair(number: int | list[int]) -> list[int]:
    return [number, number] if isinstance(number, int) else number


def arrays(name: str, spread: float) -> tuple[list[np.ndarray], dict]:
    (images, channels, height, width), (filters, down, across), options, masked = CASES[name]
    strides, paddings, dilations = [pair(options.get(key, default)) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    rows, columns = [
        (size + 2 * padding - (dilation * (taps - 1) + 1)) // stride + 1
        for size, padding, dilation, taps, stride in zip((height, width), paddings, dilations, (down, across), strides, strict=True)
    ]
    moved = options.get("deformable_groups", 1) * down * across
    found = [drawn(images, channels, height, width), drawn(images, 2 * moved, rows, columns, seed=1) * spread]
    found.append(drawn(filters, channels // options.get("groups", 1), down, across, seed=2))
    found.append(drawn(filters, seed=3))
    return found + ([drawn(images, moved, rows, columns, low=0, seed=4)] if masked else []), options


def evaluated(device: str, name: str, dtype: str, spread: float) -> list[np.ndarray]:
    paddle.set_device(device)
    inputs, options = arrays(name, spread)
    x, offset, weight, bias, *mask = [paddle.to_tensor(array.astype(dtype), stop_gradient=False) for array in inputs]
    out = ops.deform_conv2d(x, offset, weight, bias, mask=mask[0] if mask else None, **options)
    (out * paddle.to_tensor(drawn(*out.shape, seed=5).astype(dtype))).sum().backward()
    return [out.numpy(), *(tensor.grad.numpy() for tensor in (x, offset, weight, bias, *mask))]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-11)])
# Offsets of 0 are where a network begins: points are elements, and some lie just before the first one.
@pytest.mark.parametrize("spread", [0.0, 0.9, 6.0])
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_that_of_the_cpu(name, spread, dtype, tolerance):
    for own, other in zip(evaluated("mps", name, dtype, spread), evaluated("cpu", name, dtype, spread), strict=True):
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * max(1.0, np.abs(other).max()))


def test_without_offsets_it_is_a_convolution():
    layer = ops.DeformConv2D(3, 5, 3, padding=1)
    x = paddle.to_tensor(drawn(2, 3, 8, 8).astype("float32"))
    expected = paddle.nn.functional.conv2d(x, layer.weight, layer.bias, padding=1)
    np.testing.assert_allclose(layer(x, paddle.zeros([2, 18, 8, 8])).numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_a_layer_with_learnt_offsets_trains_as_on_the_cpu():
    def losses(device: str) -> list[float]:
        paddle.set_device(device)
        offsets, layer = paddle.nn.Conv2D(2, 18, 3, padding=1), ops.DeformConv2D(2, 4, 3, padding=1)
        parameters = [*offsets.parameters(), *layer.parameters()]
        for number, parameter in enumerate(parameters):
            parameter.set_value((drawn(*parameter.shape, seed=number) * 0.3).astype("float32"))
        x, step = paddle.to_tensor(drawn(2, 2, 8, 8).astype("float32")), paddle.optimizer.Adam(0.02, parameters=parameters)
        history = []
        for _ in range(10):
            loss = (layer(x, offsets(x)) - x.mean()).square().mean()
            loss.backward()
            step.step()
            step.clear_grad()
            history.append(float(loss))
        return history

    mine, theirs = losses("mps"), losses("cpu")
    assert mine[-1] < mine[0] / 2
    np.testing.assert_allclose(mine, theirs, rtol=1e-3)


def correlated(x: np.ndarray, y: np.ndarray, around: int, kernel: int, farthest: int, stride: int, between: int) -> np.ndarray:
    radius, steps = (kernel - 1) // 2, farthest // between
    extra = around + radius
    x, y = [np.pad(image, ((0, 0), (0, 0), (extra, extra), (extra, extra))) for image in (x, y)]
    rows, columns = [-(-(size - 2 * radius - 2 * (radius + farthest)) // stride) for size in x.shape[2:]]
    sides = 2 * steps + 1
    out = np.zeros((x.shape[0], sides * sides, rows, columns))
    for image, number, row, column in np.ndindex(*out.shape):
        down, across = [(part - steps) * between for part in divmod(number, sides)]
        top, left = row * stride + farthest + radius, column * stride + farthest + radius
        own = x[image, :, top - radius : top + radius + 1, left - radius : left + radius + 1]
        other = y[image, :, top + down - radius : top + down + radius + 1, left + across - radius : left + across + radius + 1]
        out[image, number, row, column] = (own * other).mean()
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(4, 1, 4, 1, 1), (4, 1, 4, 1, 2), (3, 1, 3, 2, 2), (3, 3, 2, 1, 1), (2, 3, 3, 2, 2)])
def test_correlation_in_float64(sizes, dtype):
    """Paddle's CPU has a kernel that says that it has none."""
    x, y = drawn(2, 3, 8, 7).astype(dtype), drawn(2, 3, 8, 7, seed=1).astype(dtype)
    found = paddle.incubate.layers.correlation(paddle.to_tensor(x), paddle.to_tensor(y), *sizes)
    expected = correlated(x.astype("float64"), y.astype("float64"), *sizes)
    assert tuple(found.shape) == expected.shape and expected.size > 0
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6 if dtype == "float32" else 1e-13)
