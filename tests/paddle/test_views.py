"""Views: pointers into the middle of a tensor, strides, writing through them."""

import numpy as np
import paddle
import pytest


@pytest.fixture
def x():
    return np.arange(4 * 6 * 5, dtype="float32").reshape(4, 6, 5)


def test_a_slice_is_read_where_it_lies(x):
    t = paddle.to_tensor(x)
    assert (t[1:3, 2:].numpy() == x[1:3, 2:]).all()
    assert ((t[2] + t[3]).numpy() == x[2] + x[3]).all()


def test_a_transposed_input_is_read_by_its_strides(x):
    t = paddle.to_tensor(x).transpose([2, 0, 1])
    assert not t.is_contiguous()
    assert ((t + t).numpy() == 2 * x.transpose(2, 0, 1)).all()
    np.testing.assert_allclose(paddle.sqrt(t).numpy(), np.sqrt(x.transpose(2, 0, 1)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"])
def test_contiguous_moves_every_type(x, dtype):
    array = (x % 2).astype(dtype) if dtype == "bool" else (x % 100).astype(dtype)
    t = paddle.to_tensor(array).transpose([1, 2, 0]).contiguous()
    assert t.is_contiguous()
    assert (t.numpy() == array.transpose(1, 2, 0)).all()


def test_results_without_dimensions_are_dense():
    """They had no strides at all: asking for them ended the process, and whoever met one copied it first."""
    one = paddle.to_tensor(np.ones([], "float32"))
    for result in (one + 1, one.cast("bfloat16"), paddle.ones([3]).sum(), one.reshape([]), paddle.full([], 2.0)):
        assert result.strides == [] and result.is_contiguous()
    assert one.cast("bfloat16").cast_("int32").dtype == paddle.int32


def test_writing_into_a_view_changes_its_base(x):
    t = paddle.to_tensor(x)
    view = t[1:3]
    view.add_(paddle.ones_like(view))
    expected = x.copy()
    expected[1:3] += 1
    assert (t.numpy() == expected).all()


def test_in_place_on_a_strided_view(x):
    t = paddle.to_tensor(x)
    view = t.transpose([1, 0, 2])
    view.multiply_(paddle.full([6, 4, 5], 3.0))
    assert (t.numpy() == 3 * x).all()


def test_as_strided_overlaps():
    t = paddle.as_strided(paddle.to_tensor(np.arange(8, dtype="float32")), [6, 3], [1, 1])
    assert ((t + t).numpy() == 2 * np.lib.stride_tricks.sliding_window_view(np.arange(8, dtype="float32"), 3)).all()


def test_a_broadcast_view_has_stride_zero():
    t = paddle.to_tensor(np.arange(3, dtype="float32")).expand([4, 3])
    assert ((t * t).numpy() == np.broadcast_to(np.arange(3.0) ** 2, (4, 3))).all()


@pytest.mark.parametrize("shape", [[0], [0, 3], [2, 0], [3, 0, 2]])
def test_empty_tensors_pass(shape):
    t = paddle.zeros(shape)
    assert (t + t).shape == shape and t.is_contiguous()
    assert paddle.exp(t).numpy().shape == tuple(shape)
    assert t.contiguous().strides == paddle.zeros(shape, device="cpu").strides


def test_scalars_pass():
    t = paddle.to_tensor(2.0)
    assert t.shape == [] and (t * t).numpy() == 4


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_written_in_place(dtype):
    def written(device: str) -> list[np.ndarray]:
        paddle.set_device(device)
        results = []

        def change(assign):
            base = paddle.to_tensor(np.arange(12).reshape(3, 4) * (1 - 2j), dtype=dtype)
            assign(base)
            results.append(base.numpy())

        change(lambda z: z[0].__setitem__(1, 5))
        change(lambda z: z[1].__setitem__(slice(None), 0))
        change(lambda z: z.reshape([12]).__setitem__(slice(2, 9, 3), 1j))
        change(lambda z: z.__setitem__((..., 0), 2 + 1j))
        change(lambda z: z[1:].__setitem__((slice(None), slice(None, None, 2)), paddle.to_tensor([1j, 2], dtype=dtype)))
        change(lambda z: z.__setitem__(paddle.to_tensor(np.eye(3, 4) > 0), 3j))
        change(lambda z: z.__setitem__(paddle.to_tensor([0, 2]), 3j))
        change(lambda z: z.__setitem__((0, 3), np.array([4], dtype)))
        return results

    for result, expected in zip(written("mps"), written("cpu"), strict=True):
        np.testing.assert_array_equal(result, expected)
