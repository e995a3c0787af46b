"""Parts of complex tensors that are written, and the gradients of what was written, beside Paddle's CPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

DTYPES = ["complex64", "complex128"]
FORMS = {
    "slice": (np.s_[:, :3], (4, 3)),
    "steps": (np.s_[::2, 4:0:-2], (2, 2)),
    "repeated": (np.s_[1:3], (5,)),
    "one for all": (np.s_[:, 1:4], ()),
    "dropped axis": (np.s_[2], (5,)),
    "last element": (np.s_[-1, -2], ()),
    "new axis": (np.s_[:, None, 1:3], (4, 1, 2)),
    "leading axis": (np.s_[:2], (1, 2, 5)),
    "whole": (np.s_[...], (4, 5)),
    "nothing": (np.s_[2:2], (0, 5)),
}


def numbers(shape, dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)


def written(device: str, dtype: str, index, value_shape) -> list[np.ndarray]:
    paddle.set_device(device)
    start = paddle.to_tensor(numbers((4, 5), dtype), stop_gradient=False)
    value = paddle.to_tensor(numbers(value_shape, dtype, 1), stop_gradient=False)
    x = start * 2
    x[index] = value
    weights = paddle.to_tensor(numbers((4, 5), dtype, 2))
    (x * weights).real().sum().backward()
    # A value that is written nowhere has no gradient.
    return [tensor.numpy() for tensor in (x, start.grad, value.grad) if tensor is not None]


def slope_of_value(dtype: str, index, shape) -> np.ndarray:
    """Where the value was written, summed up over what it was repeated along. Paddle's CPU has other numbers where there are new axes."""
    part = numbers((4, 5), dtype, 2).conj()[index]
    while part.ndim > len(shape):
        part = part.sum(0)
    part = part.reshape((1,) * (len(shape) - part.ndim) + part.shape)
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 != part.shape[axis])
    return part.sum(repeated, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_part_is_written_and_differentiated(form, dtype):
    ours, theirs = written("mps", dtype, *FORMS[form]), written("cpu", dtype, *FORMS[form])
    assert len(ours) == len(theirs)
    for found, expected in zip(ours, [*theirs[:2], slope_of_value(dtype, *FORMS[form])], strict=False):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [3.0, 1 - 2j], ids=["real", "complex"])
def test_a_number_is_written_and_differentiated(value, dtype):
    def run(device):
        paddle.set_device(device)
        start = paddle.to_tensor(numbers((4, 5), dtype), stop_gradient=False)
        x = start * 1
        x[1:3, ::2] = value
        x.abs().sum().backward()
        return x.numpy(), start.grad.numpy()

    for found, expected in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_program_writes_a_part(dtype):
    def run(device):
        paddle.set_device(device)

        def write(x, y):
            x = x * 1
            x[:, :2] = y
            x[0] = 2 + 1j
            return x

        static = paddle.jit.to_static(write, full_graph=True)
        return static(paddle.to_tensor(numbers((3, 4), dtype)), paddle.to_tensor(numbers((3, 2), dtype, 1))).numpy()

    paddle.mps.record_fallbacks()
    found = run("mps")
    report = [each.operator for each in paddle.mps.fallback_report()]
    paddle.mps.record_fallbacks(False)
    np.testing.assert_allclose(found, run("cpu"), rtol=1e-6)
    assert not [name for name in report if name.startswith("set_value")], report


def test_a_layer_in_fourier_space_trains():
    """As neural operators have it: low frequencies times weights, in a tensor of zeros."""

    def run(device):
        paddle.set_device(device)
        x = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16)).astype("float32"), stop_gradient=False)
        weight = paddle.to_tensor(numbers((3, 4), "complex64"), stop_gradient=False)
        spectrum = paddle.fft.rfft(x)
        kept = paddle.zeros(spectrum.shape, "complex64")
        kept[:, :, :4] = spectrum[:, :, :4] * weight
        paddle.fft.irfft(kept, n=16).square().sum().backward()
        return x.grad.numpy(), weight.grad.numpy()

    for found, expected in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
