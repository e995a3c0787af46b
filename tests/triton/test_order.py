"""Loads and stores in the order of the program, on memory that overlaps; masks; what a combination's block reads; NaN."""

import numpy as np
import pytest
import triton
import triton.language as tl

from openmps.triton import array

GUARD = 7.0


@triton.jit
def in_place_kernel(z_ptr, N: tl.constexpr):
    """Transposes with the first row added, turns the rows round, adds the first column: each time the memory that it reads."""
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    row = tl.load(z_ptr + i)
    tl.store(z_ptr + i[None, :] * N + i[:, None], tl.load(z_ptr + at) + row[None, :])
    tl.store(z_ptr + (N - 1 - i)[:, None] * N + i[None, :], tl.load(z_ptr + at))
    column = tl.load(z_ptr + i * N)
    tl.store(z_ptr + at, tl.load(z_ptr + at) * 2 + column[:, None])


@triton.jit
def flagged_kernel(out_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    """A mask with a flag that was loaded under the mask, whose elements outside say yes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    flag = tl.load(flag_ptr + at, mask=mask) != 0
    mask = mask & ~flag
    tl.store(out_ptr + at, tl.load(out_ptr + at, mask=mask) + 0.5, mask=mask)


@triton.jit
def _roll(a1, last1, now1, a2, last2, now2):
    return a1 + a2, tl.where(a2 == 1, now1, 0) + last2, now2


@triton.jit
def combine_kernel(x_ptr, rolled_ptr, index_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    """A scan whose block reads constants from outside, and the indices of the largest and smallest numbers."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    ones = tl.full((M, N), 1, tl.int32)
    _, rolled, _ = tl.associative_scan((ones, tl.zeros((M, N), x.dtype), x), AXIS, _roll, reverse=REVERSE)
    tl.store(rolled_ptr + at, rolled)
    tl.store(index_ptr + tl.arange(0, M), tl.argmax(x, axis=1))
    tl.store(index_ptr + M + tl.arange(0, M), tl.argmin(x, axis=1))


@triton.jit
def _chosen(decay1, sum1, decay2, sum2):
    """A linear recurrence that begins anew where its decay is 0, with a condition instead of a product."""
    if decay2 == 0:
        result = sum2
    else:
        result = sum1 * decay2 + sum2
    return decay1 * decay2, result


@triton.jit
def _larger_magnitude(x, y):
    if tl.abs(x) > tl.abs(y):
        largest = x
    elif x == -y:
        largest = tl.abs(x)
    else:
        largest = y
    return largest


@triton.jit
def choosing_kernel(decay_ptr, x_ptr, out_ptr, largest_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    """Blocks with conditions: a scan of two tiles, and a reduction."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    _, sums = tl.associative_scan((tl.load(decay_ptr + at), x), AXIS, _chosen, reverse=REVERSE)
    tl.store(out_ptr + at, sums)
    tl.store(largest_ptr + tl.arange(0, M if AXIS == 1 else N), tl.reduce(x, AXIS, _larger_magnitude))


@triton.jit
def shift_kernel(x_ptr, y_ptr, N: tl.constexpr):
    """Two arguments that may be neighbouring views of one array."""
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + 1)


@triton.jit
def kept_kernel(x, y, rows_out, columns_out, HOW: tl.constexpr):
    """Elements of a first column that stand for whole rows, read after others have been stored in their place."""
    row, column = tl.arange(0, 4), tl.arange(0, 8)
    at = row[:, None] * 8 + column[None, :]
    first = tl.load(tl.broadcast_to(x + row[:, None] * 8, (4, 8)))
    tl.store(x + at, tl.zeros([4, 8], tl.float32))
    other = tl.load(y + at)
    if HOW == "select":
        made = tl.where((row[:, None] + column[None, :]) % 2 == 1, first, other)
    elif HOW == "clip":
        made = tl.where(column[None, :] < 3, other, first)
    else:
        made = tl.fma(other, 2.0, first)
    tl.store(rows_out + row, tl.sum(made, 1))
    tl.store(columns_out + column, tl.max(made, 0))


@triton.jit
def window_kernel(x, by, again, HOW: tl.constexpr):
    """Rows that lie over each other, read and written in place."""
    at = x + tl.arange(0, 4)[:, None] * by + tl.arange(0, 16)[None, :]
    read = tl.load(at)
    if HOW == "copy":
        tl.store(at, read)
        tl.store(again + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :], read)
    else:
        tl.store(at, read + 1)


@triton.jit
def swap_kernel(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(x_ptr + i, y)
    tl.store(y_ptr + i, x)


@triton.jit
def rotate_kernel(z_ptr, angle_ptr, N: tl.constexpr):
    """Rotary embedding in place."""
    i = tl.arange(0, N)
    a, b, c, s = tl.load(z_ptr + i), tl.load(z_ptr + N + i), tl.load(angle_ptr + i), tl.load(angle_ptr + N + i)
    tl.store(z_ptr + i, a * c - b * s)
    tl.store(z_ptr + N + i, b * c + a * s)


@triton.jit
def loop_kernel(z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    before = tl.load(z_ptr + i)
    for _ in range(3):
        now = tl.load(z_ptr + i)
        tl.store(z_ptr + N - 1 - i, now + before)
        before = now


@triton.jit
def product_kernel(x_ptr, z_ptr, N: tl.constexpr):
    """A product stored over its own factor, with an epilogue that reads a row of it."""
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    z = tl.dot(tl.load(x_ptr + at), tl.load(z_ptr + at), input_precision="ieee")
    tl.store(z_ptr + at, z + tl.load(z_ptr + i)[None, :])


@triton.jit
def scatter_kernel(z_ptr, index_ptr, N: tl.constexpr):
    """Rows go where the first column of indices says, which the rows overwrite."""
    i = tl.arange(0, N)
    tl.store(z_ptr + tl.load(index_ptr + i), tl.load(z_ptr + i))


@triton.jit
def masked_index_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Indices loaded under a mask, followed without one: outside of the mask they are 0."""
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + tl.load(index_ptr + i, mask=i < n)))


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n)))


@triton.jit
def constant_index_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """A mask that is the same for the whole tile, though it is made of indices."""
    i = tl.arange(0, BLOCK)
    mask = i * 0 + tl.program_id(0) * BLOCK < n
    tl.store(out_ptr + tl.program_id(0) * BLOCK + i, tl.where(mask, tl.load(x_ptr + i, mask=mask), 1.0))


@pytest.mark.parametrize("size", [4, 16, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
def test_memory_that_is_read_and_written(size, dtype):
    rng = np.random.default_rng(size)
    z = rng.integers(-9, 9, (size, size)).astype(dtype)
    expected = (z + z[:1]).T[::-1]
    expected = expected * 2 + expected[:, :1]
    in_place_kernel[(1,)](array(z), size)
    np.testing.assert_array_equal(z, expected.astype(dtype))

    for step in (1, -1, 0, 3):
        line = rng.integers(-9, 9, size + 3).astype(dtype)
        begin, to = (0, step) if step >= 0 else (-step, 0)
        expected = line.copy()
        expected[to : to + size] = line[begin : begin + size] + np.ones((), dtype)
        shift_kernel[(1,)](array(line[begin:]), array(line[to:]), size)
        np.testing.assert_array_equal(line, expected, err_msg=f"by {step}")

    x, y = rng.integers(-9, 9, (2, size)).astype(dtype)
    expected = y.copy(), x.copy()
    swap_kernel[(1,)](array(x), array(y), size)
    np.testing.assert_array_equal((x, y), expected)

    line = rng.integers(-2, 2, size).astype(dtype)
    before, expected = line.copy(), line.copy()
    for _ in range(3):
        now = expected.copy()
        expected = (now + before)[::-1].copy()
        before = now
    loop_kernel[(1,)](array(line), size)
    np.testing.assert_array_equal(line, expected)

    index = rng.permutation(size).astype("int64")
    line = np.arange(size).astype(dtype)
    expected = np.empty_like(line)
    expected[index] = line
    scatter_kernel[(1,)](array(line), array(index), size)
    np.testing.assert_array_equal(line, expected)


def test_indices_that_are_overwritten_where_they_lie():
    index = np.array([3, 2, 1, 0, 7, 6, 5, 4], "int32")
    expected = np.empty_like(index)
    expected[index] = index
    scatter_kernel[(1,)](array(index), array(index), 8)
    np.testing.assert_array_equal(index, expected)


def test_rotation_in_place_and_a_product_over_its_factor():
    z, angle = np.random.randn(2, 64).astype("float32")
    (a, b), (c, s) = z.reshape(2, 32).copy(), angle.reshape(2, 32)
    rotate_kernel[(1,)](array(z), array(angle), 32)
    np.testing.assert_allclose(z, np.concatenate([a * c - b * s, b * c + a * s]), rtol=1e-5, atol=1e-6)
    for size in (16, 64):
        x, z = np.random.randn(2, size, size).astype("float32")
        expected = x @ z + z[:1]
        product_kernel[(1,)](array(x), array(z), size)
        np.testing.assert_allclose(z, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_a_store_keeps_within_a_mask_with_a_loaded_flag(dtype):
    for n in (2500, 1000, 100):
        out, flag = np.full(n + 2048, GUARD, "float32"), np.zeros(n + 2048, dtype)
        out[:n] = 0
        flag[:n] = np.random.randint(0, 2, n)
        flagged_kernel[(triton.cdiv(n, 1024),)](array(out), array(flag), n, BLOCK=1024)
        np.testing.assert_array_equal(out[:n], np.where(flag[:n], 0, 0.5))
        assert (out[n:] == GUARD).all()


def test_what_a_mask_leaves_out_is_zero():
    x, index, out = np.arange(64, dtype="float32") + 1, np.full(64, 9, "int32"), np.empty(64, "float32")
    # Numbers that would lead far away, in scratch memory too.
    masked_index_kernel[(1,)](array(x), array(np.full(64, 63, "int32")), array(out), 64, BLOCK=64)
    masked_index_kernel[(1,)](array(x), array(index), array(out), 10, BLOCK=64)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 10, 10, 1))
    sum_kernel[(1,)](array(x), array(out), 10, BLOCK=64)
    assert out[0] == 55
    out = np.empty(128, "float32")
    constant_index_kernel[(2,)](array(x), array(out), 50, BLOCK=64)
    np.testing.assert_array_equal(out, np.concatenate([x, np.ones(64)]))


@pytest.mark.parametrize("shape", [(2, 4), (8, 32), (32, 2), (1, 16)])
def test_scans_of_several_tiles_by_a_block_with_constants(shape):
    for axis in (0, 1):
        for reverse in (False, True):
            x = np.random.randint(1, 99, shape).astype("float32")
            rolled, index = np.empty_like(x), np.empty(2 * shape[0], "int32")
            combine_kernel[(1,)](array(x), array(rolled), array(index), *shape, axis, reverse)
            turned = np.flip(x, axis) if reverse else x
            expected = np.roll(turned, 1, axis)
            expected[(0, slice(None)) if axis == 0 else (slice(None), 0)] = 0
            np.testing.assert_array_equal(rolled, np.flip(expected, axis) if reverse else expected)
            np.testing.assert_array_equal(index, np.concatenate([x.argmax(1), x.argmin(1)]))


def test_the_largest_number_is_found_past_nan():
    n, inf = np.nan, np.inf
    x = np.array([[n, 6, 8, 1], [6, n, 8, 1], [6, 8, 1, n], [n, 6, 8, inf], [3, 5, n, -inf], [n, n, 2, n], [1, 1, n, n], [4, n, n, 4]], "float32")
    rolled, index = np.empty_like(x), np.empty(16, "int32")
    combine_kernel[(1,)](array(x), array(rolled), array(index), 8, 4, 1, False)
    np.testing.assert_array_equal(index, np.concatenate([np.nanargmax(x, 1), np.nanargmin(x, 1)]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "columns", "axis"), [(1, 2048, 1), (16, 64, 1), (4, 1024, 1), (512, 8, 0), (256, 1, 0), (64, 32, 0), (2, 2, 1)])
def test_blocks_with_conditions(rows, columns, axis, reverse):
    decay, x = np.random.uniform(0.5, 1, (rows, columns)).astype("float32"), np.random.standard_normal((rows, columns)).astype("float32")
    decay[np.random.random(decay.shape) < 0.1] = 0
    out, largest = np.zeros_like(x), np.zeros(columns if axis == 0 else rows, "float32")
    choosing_kernel[(1,)](*map(array, (decay, x, out, largest)), rows, columns, axis, reverse)
    turned = [np.flip(np.moveaxis(part, axis, 0), 0) if reverse else np.moveaxis(part, axis, 0) for part in (decay, x, out)]
    sums = np.zeros(turned[0].shape[1:])
    for by, term, found in zip(*turned):
        sums = sums * by + term
        np.testing.assert_allclose(found, sums, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.abs(largest), np.abs(x).max(axis))
    assert np.isin(largest, x).all()


@pytest.mark.parametrize("how", ["select", "clip", "fma"])
def test_repeated_elements_are_kept_where_a_store_overwrites_them(how):
    x, y = np.arange(32, dtype="float32") + 100, np.arange(32, dtype="float32")
    first, other = x.reshape(4, 8)[:, :1].copy(), y.reshape(4, 8)
    row, column = np.arange(4)[:, None], np.arange(8)[None, :]
    made = {
        "select": np.where((row + column) % 2 == 1, first, other),
        "clip": np.where(column < 3, other, first),
        "fma": other * 2 + first,
    }[how]
    rows, columns = np.zeros(4, "float32"), np.zeros(8, "float32")
    kept_kernel[(1,)](array(x), array(y), array(rows), array(columns), how)
    np.testing.assert_array_equal(rows, made.sum(1))
    np.testing.assert_array_equal(columns, made.max(0))


@pytest.mark.parametrize("how", ["add", "copy"])
@pytest.mark.parametrize("by", [0, 1, 8, 16, 20])
def test_rows_over_each_other_are_read_before_they_are_written(by, how):
    x, again = np.arange(256, dtype="float32"), np.zeros((4, 16), "float32")
    at = np.arange(4)[:, None] * by + np.arange(16)
    expected = x.copy()
    if how == "add":
        expected[at] = x[at] + 1
    read = x[at].copy()
    window_kernel[(1,)](array(x), by, array(again), how)
    np.testing.assert_array_equal(x, expected)
    if how == "copy":
        np.testing.assert_array_equal(again, read)
