"""The sanitizer: planted mistakes are found, each with its line of this file; right kernels pass and give the same results."""

import inspect
import re

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array, reachable, sanitize


@pytest.fixture(autouse=True)
def sanitized():
    sanitize()
    yield
    sanitize(False)


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2, mask=at < n)


@triton.jit
def off_by_one_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at + 1, mask=at < n)  # the mistake
    tl.store(y_ptr + at, x * 2, mask=at < n)


@triton.jit
def no_load_mask_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)  # the mistake
    tl.store(y_ptr + at, x * 2, mask=at < n)


@triton.jit
def no_store_mask_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, x * 2)  # the mistake


@triton.jit
def undefined_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr, tl.sum(x))  # the mistake: what is masked off has no value


@triton.jit
def race_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + tl.arange(0, BLOCK), x)  # the mistake


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0)))


@triton.jit
def locked_sum_kernel(x_ptr, y_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(y_ptr, tl.load(y_ptr) + tl.sum(x))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def follow_kernel(addresses_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x_ptr = tl.load(addresses_ptr).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


N, BLOCK = 100, 64


def launch(kernel, *more, n=N):
    """Runs a kernel on arrays in the middle of longer ones: an access outside would not crash."""
    x, y = np.arange(3 * BLOCK + n, dtype="float32"), np.zeros(3 * BLOCK + n, "float32")
    x, y = x[BLOCK : BLOCK + n], y[BLOCK : BLOCK + n]
    kernel[(triton.cdiv(n, BLOCK),)](array(x), array(y), *more, n, BLOCK=BLOCK)
    return x, y


def line_of_mistake(kernel) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    (place,) = (i for i, line in enumerate(lines) if "# the mistake" in line)
    return first + place


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (off_by_one_kernel, r"\(tt.load\), program \[1, 0, 0\], element 35: 4 bytes at 0x\w+ are out of bounds; argument x_ptr has 400 bytes, this is byte 400"),
        (no_load_mask_kernel, r"\(tt.load\), program \[1, 0, 0\], element 36: 4 bytes at 0x\w+ are out of bounds; argument x_ptr has 400 bytes"),
        (no_store_mask_kernel, r"\(tt.store\), program \[1, 0, 0\], element 36: 4 bytes at 0x\w+ are out of bounds; argument y_ptr has 400 bytes"),
        (race_kernel, r"\(tt.store\), program \[1, 0, 0\], element 0: 4 bytes at 0x\w+ were stored by program \[0, 0, 0\] too"),
    ],
)
def test_planted_mistakes_are_found(kernel, says):
    with pytest.raises(RuntimeError, match=says) as caught:
        launch(kernel)
    place = re.search(r"kernel `(\w+)`, (.*?):(\d+):\d+ ", str(caught.value))
    assert place, str(caught.value)
    assert place[1] == kernel.fn.__name__
    assert place[2].endswith("test_sanitizer.py")
    assert int(place[3]) == line_of_mistake(kernel)


def test_elements_that_a_mask_left_open_are_found_where_they_matter():
    with pytest.raises(RuntimeError, match="the stored value is undefined") as caught:
        launch(undefined_kernel, n=50)
    assert f"test_sanitizer.py:{line_of_mistake(undefined_kernel)}:" in str(caught.value)


def test_right_kernels_pass():
    x, y = launch(scale_kernel)
    np.testing.assert_array_equal(y, 2 * x)
    x, y = launch(sum_kernel)
    assert y[0] == x.sum()
    x, y = launch(locked_sum_kernel, array(np.zeros(1, "int32")))
    assert y[0] == x.sum()


def test_the_extent_of_an_array_with_strides():
    values = np.arange(4 * N, dtype="float32")
    output = np.zeros(N, "float32")
    scale_kernel[(2,)](array(values[1::4][:N]), array(output), N, BLOCK=BLOCK)
    np.testing.assert_array_equal(output, 2 * values[1 : N + 1])
    with pytest.raises(RuntimeError, match="argument x_ptr has 4 bytes, this is byte 4"):
        scale_kernel[(2,)](array(values[::-1][-1:]), array(output), N, BLOCK=BLOCK)
    with pytest.raises(RuntimeError, match="argument x_ptr has 0 bytes, this is byte 0"):
        scale_kernel[(2,)](array(values[:0]), array(output), N, BLOCK=BLOCK)


def test_tensors_behind_addresses_are_named():
    x, y = np.arange(N, dtype="float32"), np.zeros(N, "float32")
    addresses = np.array([x.ctypes.data])
    with pytest.raises(RuntimeError, match="out of bounds"):
        follow_kernel[(1,)](array(addresses), array(y), N, BLOCK=128)
    with reachable(array(x)):
        follow_kernel[(1,)](array(addresses), array(y), N, BLOCK=128)
    np.testing.assert_array_equal(y, x)
    with reachable(array(x)), pytest.raises(RuntimeError, match="a reachable tensor has 400 bytes, this is byte 400"):
        follow_kernel[(1,)](array(addresses), array(np.zeros(N + 1, "float32")), N + 1, BLOCK=128)


def test_a_tensor_without_extent_is_refused():
    class Bare:
        dtype = np.dtype("float32")

        def data_ptr(self):
            return 4096

    with pytest.raises(TypeError, match="mps: Bare has data_ptr"):
        scale_kernel[(1,)](Bare(), array(np.zeros(N, "float32")), N, BLOCK=BLOCK)


def test_tensors_of_paddle_are_measured():
    paddle = pytest.importorskip("paddle")
    paddle.mps.set_device(0)
    x, y = paddle.arange(N, dtype="float32"), paddle.zeros([N], dtype="float32")
    scale_kernel[(2,)](x, y, N, BLOCK=BLOCK)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(N, dtype="float32"))
    with pytest.raises(RuntimeError, match="argument x_ptr has 400 bytes, this is byte 400"):
        off_by_one_kernel[(2,)](x, y, N, BLOCK=BLOCK)


def test_the_variable_switches_it_on(program):
    text = "from paddle_custom_device import openmps_native as native; print(native.sanitizer_is_on())"
    answers = [program(text, OPENMPS_SANITIZE=value).strip() for value in ("1", "0", "")]
    assert answers == ["True", "False", "False"]
