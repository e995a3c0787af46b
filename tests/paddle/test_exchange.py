"""Tensors of device mps go to other libraries by DLPack, and come back."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


def numbers(dtype: str) -> np.ndarray:
    return np.arange(24).reshape(2, 3, 4).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_reads_what_is_on_the_device(dtype):
    x = paddle.to_tensor(numbers(dtype), place="mps")
    np.testing.assert_array_equal(np.from_dlpack(x), numbers(dtype))
    np.testing.assert_array_equal(np.from_dlpack(x.transpose([2, 0, 1])), numbers(dtype).transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_capsules_of_paddle(dtype):
    x = paddle.to_tensor(numbers(dtype), place="mps")
    back = paddle.from_dlpack(paddle.to_dlpack(x))
    assert back.place.is_cpu_place()
    np.testing.assert_array_equal(back.numpy(), numbers(dtype))


def test_a_copy_is_nobody_elses():
    x = paddle.zeros([3]).to("mps")
    there = np.from_dlpack(x)
    x.fill_(1.0)
    np.testing.assert_array_equal(there, np.zeros(3))


def test_the_way_to_the_device():
    own = paddle.to_tensor([1.0, 2.0], place="mps")
    assert paddle.from_dlpack(own).data_ptr() == own.data_ptr()
    assert paddle.from_dlpack(own, copy=True).data_ptr() != own.data_ptr()
    assert paddle.from_dlpack(own, device="cpu").place.is_cpu_place()
    there = paddle.from_dlpack(np.arange(4.0), device="mps")
    assert there.place.is_custom_place()
    np.testing.assert_array_equal(there.numpy(), np.arange(4.0))
    with pytest.raises(BufferError, match="copy=False"):
        paddle.from_dlpack(np.arange(4.0), device="mps", copy=False)


def test_what_cannot_be_exported_is_told():
    x = paddle.ones([2]).to("mps")
    assert tuple(x.__dlpack_device__()) == (1, 0)
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(copy=False)
    x.stop_gradient = False
    with pytest.raises(BufferError, match="requires gradients"):
        np.from_dlpack(x)


def test_tensors_of_the_cpu_are_shared_as_before():
    x = paddle.zeros([3]).cpu()
    there = np.from_dlpack(x)
    x[0] = 5.0
    assert there[0] == 5.0
