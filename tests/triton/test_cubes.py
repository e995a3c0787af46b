"""Sorts, reversals and what else reshapes tiles to dimensions of two, against what they say of NumPy's elements, bit by bit."""

import pathlib

import numpy as np
import pytest
import triton
import triton.language as tl

import differential
import versions
from openmps.triton import array

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ONE_OF_MANY = versions.needs(tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6), "tl.topk of one element")
SHAPES = [(1, 1, 2), (1, 1, 8), (1, 1, 64), (1, 1, 512), (1, 1, 4096), (1, 8, 16), (1, 16, 4), (4, 2, 32), (2, 128, 8)]


@triton.jit
def sort_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DESCENDING: tl.constexpr):
    places = tl.arange(0, A * B * C)
    x = tl.reshape(tl.load(x_ptr + places), (A, B, C))
    tl.store(out_ptr + places, tl.reshape(tl.sort(x, descending=DESCENDING), (A * B * C,)))


@triton.jit
def topk_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, A * B * C)), (A, B, C))
    tl.store(out_ptr + tl.arange(0, A * B * K), tl.reshape(tl.topk(x, K), (A * B * K,)))


@triton.jit
def flip_kernel(x_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    places = tl.arange(0, A * B * C)
    x = tl.reshape(tl.load(x_ptr + places), (A, B, C))
    tl.store(out_ptr + places, tl.reshape(tl.flip(x, AXIS), (A * B * C,)))


@triton.jit
def side(n: tl.constexpr, j: tl.constexpr):
    return tl.reshape(tl.arange(0, 2), [1] * (n - j - 1) + [2] + [1] * j)


@triton.jit
def argsort_kernel(x_ptr, out_ptr, at_ptr, L: tl.constexpr, NARROW: tl.constexpr):
    """As inference engines sort scores with the numbers of their tokens: both change places where the scores say so."""
    places = tl.arange(0, 1 << L)
    x, at = tl.reshape(tl.load(x_ptr + places), [2] * L), tl.reshape(places, [2] * L)
    for stage in tl.static_range(1, L + 1):
        for step in tl.static_range(stage):
            order = (side(L, stage) if stage < L else 1) ^ side(L, stage - 1 - step)
            bits = x.to(tl.int32, bitcast=True)
            other = (bits ^ tl.xor_sum(bits, L - stage + step, True)).to(x.dtype, bitcast=True)
            if NARROW:
                swaps = (x > other) != order.to(tl.int1)
            else:
                swaps = (x > other) != order
            at = tl.where(swaps, at ^ tl.xor_sum(at, L - stage + step, True), at)
            x = tl.where(swaps, other, x)
    tl.store(out_ptr + places, tl.reshape(x, [1 << L]))
    tl.store(at_ptr + places, tl.reshape(at, [1 << L]))


@triton.jit
def exchanged_by_sums(x, places, stage: tl.constexpr, step: tl.constexpr, L: tl.constexpr):
    shape: tl.constexpr = [1 << (L - stage + step), 2, 1 << (stage - 1 - step)]
    y = tl.reshape(x, shape)
    right = tl.arange(0, 2)[None, :, None]
    of_left = tl.reshape(tl.broadcast_to(tl.sum(y * (1 - right), 1)[:, None, :], shape), x.shape)
    of_right = tl.reshape(tl.broadcast_to(tl.sum(y * right, 1)[:, None, :], shape), x.shape)
    descends = (places >> stage) & 1 if stage < L else 0
    swaps = (of_left > of_right) != (descends != 0)
    return tl.where(swaps, tl.where((places >> (stage - 1 - step)) & 1 != 0, of_left, of_right), x)


@triton.jit
def sums_kernel(x_ptr, out_ptr, L: tl.constexpr):
    """A sort in the manner of earlier Tritons: the other side is a sum under a mask."""
    places = tl.arange(0, 1 << L)
    x = tl.load(x_ptr + places)
    for stage in tl.static_range(1, L + 1):
        for step in tl.static_range(stage):
            x = exchanged_by_sums(x, places, stage, step, L)
    tl.store(out_ptr + places, x)


def special(shape, dtype: str) -> np.ndarray:
    """Numbers of a type, many of them equal, and what is special of floats."""
    count = int(np.prod(shape))
    if np.issubdtype(np.dtype(dtype), np.integer):
        numbers = np.frombuffer(np.random.bytes(count * np.dtype(dtype).itemsize), dtype).copy()
        numbers[::3] = numbers[0]
        return numbers.reshape(shape)
    numbers = np.round(np.random.randn(count) * 8).astype(dtype)
    numbers[np.random.rand(count) < 0.1] = -0.0
    numbers[np.random.rand(count) < 0.1] = np.inf
    return numbers.reshape(shape)


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def network(x: np.ndarray, descending: bool) -> np.ndarray:
    """What Triton's sorting network makes of the rows of x, NaN and zeros of either sign included."""
    length, places = x.shape[-1], np.arange(x.size).reshape(x.shape)
    stages = length.bit_length() - 1
    x = x.copy()
    for stage in range(1, stages + 1):
        flip = (places >> stage) & 1 if stage < stages else np.full(x.shape, int(descending))
        for bit in reversed(range(stage)):
            other = x[..., np.arange(length) ^ (1 << bit)]
            x = np.where((x > other) != ((flip ^ (places >> bit)) & 1).astype(bool), other, x)
    return x


@pytest.mark.parametrize(("descending", "dtype"), [(dtype.startswith("u"), dtype) for dtype in INTEGERS] + [(True, dtype) for dtype in FLOATS])
def test_rows_are_sorted(dtype, descending):
    for shape in SHAPES:
        x = special(shape, dtype)
        out = np.empty_like(x)
        sort_kernel[(1,)](array(x), array(out), *shape, descending)
        expected = np.sort(x, axis=-1)
        np.testing.assert_array_equal(out, expected[..., ::-1] if descending else expected, str(shape))
        np.testing.assert_array_equal(bits(out), bits(network(x, descending)), str(shape))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_goes_where_the_network_leaves_it(dtype):
    for shape in SHAPES:
        x = special(shape, dtype)
        x[np.random.rand(*shape) < 0.2] = np.nan
        out = np.empty_like(x)
        sort_kernel[(1,)](array(x), array(out), *shape, False)
        np.testing.assert_array_equal(bits(out), bits(network(x, False)), str(shape))


@triton.jit
def sort_bfloat_kernel(x_ptr, out_ptr, N: tl.constexpr):
    places = tl.arange(0, N)
    x = tl.load(x_ptr + places).to(tl.bfloat16, bitcast=True)
    tl.store(out_ptr + places, tl.sort(x).to(tl.int16, bitcast=True))


def test_bfloat16_is_sorted_as_float32_is():
    for count in (2, 32, 256):
        x = special((count,), "float32")
        x[:: max(count // 4, 2)] = np.nan
        out = np.empty(count, "int16")
        sort_bfloat_kernel[(1,)](array((bits(x) >> 16).astype("uint16").view("int16")), array(out), count)
        expected = bits(network(x, False)) >> 16
        np.testing.assert_array_equal(out.view("uint16"), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", *FLOATS])
@pytest.mark.parametrize("k", [pytest.param(1, marks=ONE_OF_MANY), 2, 8, 64])
def test_the_largest_of_rows_come_first(dtype, k):
    for shape in (shape for shape in SHAPES[1:] if shape[-1] >= k):
        x = special(shape, dtype)
        out = np.empty((*shape[:2], k), dtype)
        topk_kernel[(1,)](array(x), array(out), *shape, k)
        np.testing.assert_array_equal(out, np.sort(x, axis=-1)[..., ::-1][..., :k], str(shape))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_dimensions_are_reversed(dtype, axis):
    for shape in [(1, 1, 8), (2, 1024, 1), (8, 4, 16), (1, 128, 8), (32, 2, 64)]:
        x = special(shape, dtype)
        out = np.empty_like(x)
        flip_kernel[(1,)](array(x), array(out), *shape, axis)
        np.testing.assert_array_equal(bits(out), bits(np.flip(x, axis)), str(shape))


@triton.jit
def exclusive_or(x, y):
    return x ^ y


@triton.jit
def halves_kernel(x_ptr, out_ptr, A: tl.constexpr, C: tl.constexpr):
    places = tl.arange(0, A * 2 * C)
    x = tl.reshape(tl.load(x_ptr + places), (A, 2, C))
    both = tl.reduce(x, 1, exclusive_or, keep_dims=True)
    other = x ^ both
    chosen = tl.where((x > other) != (tl.arange(0, 2)[None, :, None] == 1), other, x)
    length: tl.constexpr = A * 2 * C
    tl.store(out_ptr + places, tl.reshape(other, (length,)))
    tl.store(out_ptr + length + places, tl.reshape(chosen, (length,)))
    tl.store(out_ptr + 2 * length + places, tl.reshape(chosen + other, (length,)))
    half = tl.arange(0, A * C)
    tl.store(out_ptr + 3 * length + half, tl.reshape(both, (A * C,)))
    tl.store(out_ptr + 3 * length + A * C + half, tl.reshape(tl.max(x, 1), (A * C,)))
    tl.store(out_ptr + 3 * length + 2 * A * C + half, tl.reshape(tl.sum(x, 1), (A * C,)))


@pytest.mark.parametrize("sizes", [(1, 1), (1, 4), (8, 1), (4, 2), (2, 16), (16, 8), (4, 128)])
def test_what_others_read_too_is_there(sizes):
    outer, inner = sizes
    x = special((outer, 2, inner), "int32")
    out = np.empty(9 * outer * inner, "int32")
    halves_kernel[(1,)](array(x), array(out), outer, inner)
    other, both = x[:, ::-1], x[:, 0] ^ x[:, 1]
    chosen = np.sort(x, axis=1)
    expected = [other, chosen, chosen + other, both, x.max(1), x.sum(1, dtype="int32")]
    np.testing.assert_array_equal(out, np.concatenate([part.ravel() for part in expected]))


@triton.jit
def together(x, numbers, STAGE: tl.constexpr, STEP: tl.constexpr, STEPS: tl.constexpr):
    """A step of a sorting network in which numbers go with their elements."""
    places = tl.reshape(tl.arange(0, 1 << STEPS), [2] * STEPS)
    y = x ^ tl.reduce(x, STEPS - 1 - STEP, exclusive_or, keep_dims=True)
    other = numbers ^ tl.reduce(numbers, STEPS - 1 - STEP, exclusive_or, keep_dims=True)
    is_greater = (x > y) | ((x == y) & (numbers > other))
    goes = is_greater != ((((places >> STEP) ^ (places >> STAGE)) & 1) != 0)
    return tl.where(goes, y, x), tl.where(goes, other, numbers)


@triton.jit
def order_of_kernel(x_ptr, out_ptr, STEPS: tl.constexpr):
    places = tl.arange(0, 1 << STEPS)
    x = tl.reshape(tl.load(x_ptr + places), [2] * STEPS)
    numbers = tl.reshape(places, [2] * STEPS)
    for stage in tl.static_range(1, STEPS + 1):
        for step in tl.static_range(stage):
            x, numbers = together(x, numbers, stage, stage - 1 - step, STEPS)
    tl.store(out_ptr + places, tl.reshape(numbers, (1 << STEPS,)))


@pytest.mark.parametrize("steps", [1, 3, 6, 8])
def test_numbers_go_with_their_elements(steps):
    x, out = special((1 << steps,), "int32"), np.empty(1 << steps, "int32")
    order_of_kernel[(1,)](array(x), array(out), steps)
    np.testing.assert_array_equal(out, np.argsort(x, kind="stable"))


@triton.jit
def repeated_kernel(x_ptr, out_ptr, N: tl.constexpr, COUNT):
    """A sort in a loop, and one of equal elements."""
    places = tl.arange(0, N)
    x = tl.load(x_ptr + places)
    for step in range(COUNT):
        x = tl.flip(tl.sort(x + step * (places % 3)), 0)
    tl.store(out_ptr + places, x)
    tl.store(out_ptr + N + places, tl.sort(tl.full((N,), COUNT, tl.int32)))


def test_a_sort_in_a_loop_and_one_of_equal_elements():
    x, out = np.random.randint(-99, 99, 128, dtype="int32"), np.empty(256, "int32")
    repeated_kernel[(1,)](array(x), array(out), 128, 5)
    expected = x
    for step in range(5):
        expected = np.sort(expected + step * (np.arange(128, dtype="int32") % 3))[::-1]
    np.testing.assert_array_equal(out, [*expected, *[5] * 128])


PROGRAM = """
import numpy as np
import triton
import triton.language as tl
from differential.triton.interpreter import Tensor


@triton.jit
def kernel(x_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    places = tl.arange(0, N)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, tl.sort(x))
    tl.store(out_ptr + N + places, tl.flip(tl.sort(x, descending=True), 0))
    tl.store(out_ptr + 2 * N + tl.arange(0, K), tl.topk(x, K))


for dtype, name in {"float32": "fp32", "float16": "fp16", "int16": "i16", "uint8": "u8"}.items():
    x = np.random.default_rng(3).normal(size=64) * 9
    x = np.where(np.arange(64) % 7 == 0, np.nan if dtype.startswith("float") else 3, x).astype("float32")
    x = x.astype("int32").astype(dtype) if "int" in dtype else x.astype(dtype)
    out = np.zeros(136, dtype)
    kernel[(1,)](Tensor(x.ctypes.data, name), Tensor(out.ctypes.data, name), 64, 8)
    print(out.tobytes().hex())
"""


def test_triton_s_interpreter_gives_the_same_bits(script):
    folder = str(pathlib.Path(differential.__file__).parents[1])
    host, interpreter = (script(PROGRAM, PYTHONPATH=folder, TRITON_INTERPRET=by) for by in ("0", "1"))
    assert host == interpreter


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("bits_of_length", [1, 3, 7])
def test_numbers_are_sorted_along_with_their_keys(bits_of_length, narrow):
    x = np.random.permutation(1 << bits_of_length).astype(np.float32) - 7
    out, at = np.zeros_like(x), np.zeros(x.size, np.int32)
    argsort_kernel[(1,)](array(x), array(out), array(at), bits_of_length, narrow)
    np.testing.assert_array_equal(out, np.sort(x)[::-1])
    np.testing.assert_array_equal(x[at], out)


@pytest.mark.parametrize("bits_of_length", [1, 4, 8])
def test_a_sort_by_sums_is_one(bits_of_length):
    x = np.random.randn(1 << bits_of_length).astype(np.float32)
    out = np.zeros_like(x)
    sums_kernel[(1,)](array(x), array(out), bits_of_length)
    np.testing.assert_array_equal(out, np.sort(x))
