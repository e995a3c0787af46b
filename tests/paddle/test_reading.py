"""Single numbers that Python reads from the device: ``x.item()``, and tensors of one number as an index or a bound."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

NUMBERS = {"float32": 2.5, "float64": -1e300, "float16": 0.5, "bfloat16": 1.5, "int64": 2**62 + 1, "int32": -7, "uint8": 200, "bool": True}


@pytest.fixture
def without_slow_copies(monkeypatch):
    """Fails where Paddle reads a number of the device by its own copy, which begins a thread each time."""

    def refuse(*_):
        raise AssertionError("a number was read by Paddle's copy")

    def forward(name):
        original = getattr(paddle.Tensor, name)

        def get(self, index, *value):
            for part in index:
                bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
                assert not any(isinstance(bound, paddle.Tensor) for bound in bounds), "a tensor is left in the index"
            return original(self, index, *value)

        monkeypatch.setattr(paddle.Tensor, name, get)

    monkeypatch.setattr(paddle.Tensor, "_getitem_from_offset", refuse)
    forward("_getitem_dygraph")
    forward("_setitem_dygraph")


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMBERS if dtype != "bfloat16"])
@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
@pytest.mark.usefixtures("without_slow_copies")
def test_an_item_is_read_without_a_thread(dtype, shape):
    item = paddle.full(shape, NUMBERS[dtype], dtype).item()
    assert item == NUMBERS[dtype]
    assert type(item) is type(np.ones([], dtype).item())


@pytest.mark.parametrize("dtype", [*NUMBERS, "complex64"])
def test_an_item_is_that_of_the_cpu(dtype):
    number = NUMBERS.get(dtype, 1 + 2j)
    x = paddle.to_tensor(number, dtype=dtype)
    expected = x.cpu().item()
    assert (x.item(), type(x.item())) == (expected, type(expected))


def test_items_by_place_and_of_many_elements_are_those_of_the_cpu():
    x = paddle.arange(6.0).reshape([2, 3])
    assert (x.item(4), x.item(1, 2)) == (4.0, 5.0)
    for wrong in (x, paddle.zeros([0])):
        with pytest.raises(ValueError) as expected:
            wrong.cpu().item()
        with pytest.raises(ValueError) as found:
            wrong.item()
        assert str(found.value).splitlines()[-1] == str(expected.value).splitlines()[-1]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.usefixtures("without_slow_copies")
def test_a_tensor_of_no_dimensions_is_an_index(dtype):
    x = paddle.arange(24.0).reshape([2, 3, 4])
    x.stop_gradient = False
    one, last = paddle.to_tensor(1, dtype=dtype), paddle.to_tensor(-1, dtype=dtype)
    array = x.numpy()
    for found, expected in [
        (x[one], array[1]), (x[last], array[-1]), (x[:, one], array[:, 1]), (x[one, last, 2], array[1, -1, 2]),
        (x[..., last], array[..., -1]), (x[one, 1:, None], array[1, 1:, None]),
    ]:  # fmt: skip
        assert found.numpy().tolist() == expected.tolist()
    x[one, :, last].sum().backward()
    expected = np.zeros_like(array)
    expected[1, :, -1] = 1
    assert x.grad.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
@pytest.mark.usefixtures("without_slow_copies")
def test_tensors_of_one_number_are_bounds(shape):
    x = paddle.arange(24.0).reshape([4, 6])
    one, two, end = (paddle.full(shape, number, "int64") for number in (1, 2, -1))
    array = x.numpy()
    for found, expected in [(x[:two], array[:2]), (x[one:end], array[1:-1]), (x[::two, one:], array[::2, 1:]), (x[..., :end], array[..., :-1])]:
        assert found.numpy().tolist() == expected.tolist()
    x[one:two, end:] = 100.0
    array[1:2, -1:] = 100
    assert x.numpy().tolist() == array.tolist()


@pytest.mark.usefixtures("without_slow_copies")
def test_a_tensor_of_no_dimensions_says_where_is_written():
    x = paddle.zeros([3, 2])
    x[paddle.to_tensor(1)] = 5.0
    x[paddle.to_tensor(-1), paddle.to_tensor(0)] = paddle.to_tensor(7.0)
    assert x.numpy().tolist() == [[0, 0], [5, 5], [7, 0]]


def test_an_index_out_of_range_and_a_boolean_are_as_on_the_cpu():
    x = paddle.arange(6.0).reshape([2, 3])
    for index in (paddle.to_tensor(2), paddle.to_tensor(-3)):
        with pytest.raises(IndexError):
            x.cpu()[index.cpu()]
        with pytest.raises(IndexError):
            x[index]
    for index in (True, False):
        assert x[paddle.to_tensor(index)].shape == x.cpu()[paddle.to_tensor(index, place="cpu")].shape


@pytest.mark.parametrize("full_graph", [False, True])
def test_programs_of_functions_that_read_numbers_are_made(full_graph):
    """``to_static`` ends a graph where a number is read, and must not go on with what reads it."""

    def function(x, index):
        scale = 2.0 if full_graph or x.sum().item() > 0 else 3.0
        y = x[index] * scale + x[paddle.to_tensor(0)]
        x = x * 1
        x[index] = y
        return x

    static = paddle.jit.to_static(function, full_graph=full_graph)
    x = paddle.arange(12.0).reshape([3, 4])
    for sign in (1, -1):
        for index in (0, 2):
            place = paddle.to_tensor(index)
            assert static(sign * x, place).numpy().tolist() == function(sign * x, place).numpy().tolist()
